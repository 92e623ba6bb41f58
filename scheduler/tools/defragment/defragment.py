"""`defragment`: reads a cluster or a cluster file, plans, and on request evicts pods one at a time."""

import asyncio
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from scheduler.kube.port import Cluster
from scheduler.process.output import warn
from scheduler.tools.cli.answering import show_answer
from scheduler.tools.cli.asking import tell_unread
from scheduler.tools.cli.manifests import manifest, within
from scheduler.tools.cli.session import LISTS, WATCHES, session
from scheduler.tools.cli.target import Target
from scheduler.tools.defragment.evicting import Planner, Rebalancing
from scheduler.tools.defragment.text import lines
from scheduler.tools.simulate.played import cluster_of


@dataclass(frozen=True, slots=True, kw_only=True)
class DefragmentFlags:
    """Flags for `defragment`. file: the pod's manifest; None: plan for typical pods.

    cluster: cluster files; (): the kubeconfig's cluster. max_priority: None: the pod's priority, or 0 without a pod.
    evicts: whether to make the moves. timeout_s: for each move.
    """

    file: Path | None = None
    cluster: tuple[Path, ...] = ()
    most_moves: int = 10
    max_priority: int | None = None
    evicts: bool = False
    timeout_s: float = 300.0
    output: str | None = None


def defragment(target: Target, flags: DefragmentFlags) -> bool:
    """Print the plan, and execute it on request. Returns whether it succeeds.

    Mistakes in a cluster file end the program. Raises Unanswerable.
    """
    pod = None if flags.file is None else within(manifest(flags.file), target.namespace)
    planning = partial(Planner, pod=pod, most_moves=flags.most_moves, max_priority=flags.max_priority)
    if flags.cluster:
        configuration, played = cluster_of(target, flags.cluster)
        planner = planning(configuration, namespace=target.namespace or "default")
        return asyncio.run(_planned(played, planner, flags))

    async def of_kubeconfig() -> bool:
        async with session(target, WATCHES if flags.evicts else LISTS) as of:
            planner = planning(of.configuration, namespace=of.namespace)
            if not flags.evicts:
                return await _planned(of.cluster, planner, flags)
            rebalancing = Rebalancing(of.cluster, of.configuration, planner, flags.timeout_s, _say)
            return await rebalancing.run(lambda plan: show_answer(plan.answer, lines(plan.answer), flags.output))

    return asyncio.run(of_kubeconfig())


async def _planned(cluster: Cluster, planner: Planner, flags: DefragmentFlags) -> bool:
    of = await planner.read(cluster)
    of.of_files = bool(flags.cluster)
    plan = await planner.plan(of)
    tell_unread(of.unread)
    show_answer(plan.answer, lines(plan.answer), flags.output)
    return plan.answer.found


def _say(text: str) -> None:
    warn([text])
