"""`kubectl gpushare top pods`: reads the pods, and the reports of their nodes."""

import asyncio
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Final

import msgspec

from scheduler.kube.port import CONFIG_MAPS, NODES, PODS, Kind
from scheduler.pods.pod import Pod
from scheduler.pods.selector_text import SelectorError
from scheduler.state.columns.selectors import Expressions, match, of_text
from scheduler.tools.cli.answering import give_up
from scheduler.tools.cli.asking import ClusterView, cluster_view, tell_unread
from scheduler.tools.cli.following import follow
from scheduler.tools.cli.manifests import Unanswerable
from scheduler.tools.cli.node_reports import NodeReports, isolations, node_reports
from scheduler.tools.cli.session import session
from scheduler.tools.cli.target import Target
from scheduler.tools.explain.held import (
    HoldingPod,
    HoldingPods,
    by_name,
    gone,
    holding_pods,
    pod_lines,
    pods_by,
    reported,
)
from scheduler.tools.explain.tones import Line

KINDS_OF_TOP: Final[tuple[Kind[Any], ...]] = (NODES, PODS, CONFIG_MAPS)


def selected(program: str, selector: str) -> Expressions:
    """Return the requirements of `--selector`, () for all pods. Exits if it is invalid."""
    try:
        return of_text(selector) if selector else ()
    except SelectorError as error:
        give_up(program, f"--selector: {error}")


@dataclass(frozen=True, slots=True)
class Chosen:
    """Pods selected by flags. labels, names, node: empty for all. everywhere: whether to include all namespaces.

    selector: the label selector as typed.
    """

    labels: Expressions
    selector: str
    names: frozenset[str]
    node: str
    sort_by: str
    everywhere: bool

    def held(self, view: ClusterView) -> HoldingPods:
        """Return these pods of the cluster."""

        def chosen(pod: Pod, node: str) -> bool:
            return (
                (self.everywhere or pod.key.namespace == view.namespace)
                and (not self.names or pod.key.name in self.names)
                and self.node in {"", node}
                and match(self.labels, pod.labels)
            )

        return holding_pods(view.reading, chosen)

    def where(self, namespace: str) -> str:
        """Return the scope in words. namespace: the flag's, otherwise the context's."""
        labels = f" with labels {self.selector}" if self.selector else ""
        node = f" on node {self.node}" if self.node else ""
        return f"{node} in {'any namespace' if self.everywhere else f'namespace {namespace}'}{labels}"

    def sorted(self, found: HoldingPods, reports: NodeReports) -> HoldingPods:
        """Return the sorted pods with the reports of their nodes."""
        return pods_by(reported(found, reports.isolation, reports.used_mib), self.sort_by)


def holding(target: Target, chosen: Chosen) -> tuple[HoldingPods, str]:
    """Return (the chosen pods, the scope in words). Raises Unanswerable."""

    async def ask() -> tuple[HoldingPods, str]:
        async with session(target) as of:
            view = await cluster_view(of.cluster, of.configuration, KINDS_OF_TOP)
            view.namespace = of.namespace
            found, where = chosen.held(view), chosen.where(of.namespace)
            if missing := sorted(chosen.names - {pod.name for pod in (*found.pods, *found.waiting)}):
                raise Unanswerable(f"pod {missing[0]} does not exist{where}, or requests no GPU memory")
            reports = await node_reports(of.cluster, _nodes(found))
        tell_unread([*view.unread, *reports.unread])
        return chosen.sorted(found, reports), where

    return asyncio.run(ask())


def _nodes(found: HoldingPods) -> set[str]:
    return {pod.node for pod in found.pods}


def follow_holding(target: Target, chosen: Chosen, *, wide: bool, headers: bool) -> None:
    """Print the chosen pods, then each that changes or ends, until interrupted. Raises Unanswerable.

    The memory that they use is not read.
    """
    asked, known = set[str](), dict[str, str]()
    before: dict[tuple[str, str], HoldingPod] = {}

    async def lines(view: ClusterView) -> Iterable[Line]:
        found = chosen.held(view)
        # Each node is read only once, because its pods change far more often than its isolation.
        if new := _nodes(found) - asked:
            known.update((await isolations(view.cluster, new)).isolation)
            asked.update(new)
        shown = chosen.sorted(found, NodeReports(known))
        now = {by_name(pod): pod for pod in (*shown.pods, *shown.waiting)}
        ended = [gone(pod) for name, pod in before.items() if name not in now]
        before.clear()
        before.update(now)
        shown = msgspec.structs.replace(shown, pods=(*shown.pods, *ended))
        return pod_lines(shown, wide=wide, namespaces=chosen.everywhere)

    follow(target, KINDS_OF_TOP, lines, headers=headers)
