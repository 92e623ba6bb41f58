"""`defragment`: reads a cluster, or plays a cluster file, plans, and on request evicts pods one at a time."""

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from config.clusterfile.reading import left_out, read
from config.settings.mistakes import ConfigurationError
from config.settings.scheduler import SchedulerConfiguration
from scheduler.core.build import build_engine, installed_plugins, resource_names
from scheduler.kube.port import Cluster
from scheduler.process.output import warn
from scheduler.testing.cluster.cluster import MemoryCluster
from scheduler.testing.cluster.world import World
from scheduler.tools.cli.answering import give_up, show_answer
from scheduler.tools.cli.asking import LISTS, WATCHES, opened, tell_unread
from scheduler.tools.cli.manifests import manifest
from scheduler.tools.defragment.evicting import Planner, Rebalancing
from scheduler.tools.defragment.text import lines
from scheduler.tools.simulate.replay import world_after


@dataclass(frozen=True, slots=True, kw_only=True)
class DefragmentFlags:
    """file: of the pod, None for pods as they usually come. cluster: files, () for the cluster of the kubeconfig.

    max_priority: None for that of the pod, or 0 without one. evicts: the moves are made. timeout_s: for each of them.
    """

    file: Path | None = None
    cluster: tuple[Path, ...] = ()
    most_moves: int = 10
    max_priority: int | None = None
    evicts: bool = False
    timeout_s: float = 300.0
    output: str = "table"


def defragment(
    program: str, configuration: SchedulerConfiguration, environment: Mapping[str, str], flags: DefragmentFlags
) -> bool:
    """Print the plan, and execute it on request. Returns whether it succeeds.

    Mistakes in a cluster file end the program. Raises Unanswerable.
    """
    pod = None if flags.file is None else manifest(flags.file)
    planning = partial(Planner, configuration, pod, most_moves=flags.most_moves, max_priority=flags.max_priority)
    if flags.cluster:
        try:
            world = played(configuration, flags.cluster)
        except ConfigurationError as error:
            give_up(program, str(error))
        return asyncio.run(_planned(MemoryCluster(world), planning(), flags))

    async def of_kubeconfig() -> bool:
        async with opened(configuration, environment, WATCHES if flags.evicts else LISTS) as cluster:
            planner = planning(namespace=cluster.namespace)
            if not flags.evicts:
                return await _planned(cluster, planner, flags)
            rebalancing = Rebalancing(cluster, configuration, planner, flags.timeout_s, _say)
            return await rebalancing.run(lambda plan: show_answer(plan.answer, lines(plan.answer), flags.output))

    return asyncio.run(of_kubeconfig())


async def _planned(cluster: Cluster, planner: Planner, flags: DefragmentFlags) -> bool:
    of = await planner.read(cluster)
    of.of_files = bool(flags.cluster)
    plan = await planner.plan(of)
    tell_unread(of.unread)
    show_answer(plan.answer, lines(plan.answer), flags.output)
    return plan.answer.found


def played(configuration: SchedulerConfiguration, files: tuple[Path, ...]) -> World:
    """The cluster of the files once it is stable. Raises ConfigurationError."""
    built, resources = build_engine(configuration, installed_plugins()), resource_names(configuration)
    described = read(*files)
    if line := left_out(described.ignored):
        _say(line)
    return world_after(described, built, resources=resources, unit_mib=configuration.memory_unit_mib)


def _say(text: str) -> None:
    warn([text])
