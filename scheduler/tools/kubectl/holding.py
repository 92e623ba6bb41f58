"""`kubectl gpushare top pods`: reads the pods, and the reports of their nodes."""

import asyncio
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Final

from scheduler.kube.port import CONFIG_MAPS, NODES, PODS, Kind
from scheduler.pods.selector_text import SelectorError
from scheduler.state.columns.selectors import Expressions, match, of_text
from scheduler.state.pod_record import PodRecord
from scheduler.tools.cli.answering import give_up
from scheduler.tools.cli.asking import ClusterView, cluster_view, tell_unread
from scheduler.tools.cli.following import follow
from scheduler.tools.cli.node_reports import NodeReports, isolations, node_reports
from scheduler.tools.cli.session import session
from scheduler.tools.cli.target import Target
from scheduler.tools.explain.held import HoldingPods, holding_pods, pod_lines, pods_by, reported
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
    """Pods chosen by flags. labels, names, node: empty for all. everywhere: in all namespaces."""

    labels: Expressions
    names: frozenset[str]
    node: str
    sort_by: str
    everywhere: bool

    def held(self, view: ClusterView) -> HoldingPods:
        """Return these pods of the cluster."""

        def chosen(record: PodRecord) -> bool:
            key = record.pod.key
            return (
                (self.everywhere or key.namespace == view.namespace)
                and (not self.names or key.name in self.names)
                and self.node in {"", record.node}
                and match(self.labels, record.pod.labels)
            )

        return holding_pods(view.reading.engine, view.reading.unit_mib, chosen)

    def sorted(self, found: HoldingPods, reports: NodeReports) -> HoldingPods:
        """Return the sorted pods with the reports of their nodes."""
        return pods_by(reported(found, reports.isolation, reports.used_mib), self.sort_by)


def holding(target: Target, chosen: Chosen) -> HoldingPods:
    """Return the chosen pods. Raises Unanswerable."""

    async def ask() -> HoldingPods:
        async with session(target) as of:
            view = await cluster_view(of.cluster, of.configuration, KINDS_OF_TOP)
            view.namespace = of.namespace
            found = chosen.held(view)
            reports = await node_reports(of.cluster, _nodes(found))
        tell_unread([*view.unread, *reports.unread])
        return chosen.sorted(found, reports)

    return asyncio.run(ask())


def _nodes(found: HoldingPods) -> set[str]:
    return {pod.node for pod in found.pods}


def follow_holding(target: Target, chosen: Chosen, *, wide: bool, headers: bool) -> None:
    """Print the pods, and those that change, until interrupted. Does not read their memory in use.

    Raises Unanswerable.
    """
    asked, known = set[str](), dict[str, str]()

    async def lines(view: ClusterView) -> Iterable[Line]:
        found = chosen.held(view)
        # Each node is read only once, because its pods change far more often than its isolation.
        if new := _nodes(found) - asked:
            known.update((await isolations(view.cluster, new)).isolation)
            asked.update(new)
        return pod_lines(chosen.sorted(found, NodeReports(known)), wide=wide, namespaces=chosen.everywhere)

    follow(target, KINDS_OF_TOP, lines, headers=headers)
