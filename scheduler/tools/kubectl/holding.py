"""`kubectl gpushare top pods`: reads the pods, and what their nodes report of them."""

import asyncio
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Final

from scheduler.kube.port import CONFIG_MAPS, NODES, PODS, Kind
from scheduler.tools.cli.asking import ClusterView, cluster_view, tell_unread
from scheduler.tools.cli.following import follow
from scheduler.tools.cli.node_reports import NodeReports, isolations, node_reports
from scheduler.tools.cli.session import session
from scheduler.tools.cli.target import Target
from scheduler.tools.explain.held import HoldingPods, holding_pods, on_node, pod_lines, pods_by, reported
from scheduler.tools.explain.label_selector import Test
from scheduler.tools.explain.tones import Line

KINDS_OF_TOP: Final[tuple[Kind[Any], ...]] = (NODES, PODS, CONFIG_MAPS)


@dataclass(frozen=True, slots=True)
class Chosen:
    """The pods of the flags. names, node: none, "" for all. everywhere: of all namespaces."""

    matches: Test
    names: frozenset[str]
    node: str
    sort_by: str
    everywhere: bool

    def of(self, view: ClusterView, reports: NodeReports) -> HoldingPods:
        """These pods of the cluster, sorted."""
        found = self.held(view)
        return pods_by(reported(found, reports.isolation, reports.used_mib), self.sort_by, self.names)

    def held(self, view: ClusterView) -> HoldingPods:
        """These pods, whatever their names."""
        namespace = "" if self.everywhere else view.namespace
        found = holding_pods(view.reading.engine, view.reading.unit_mib, namespace, self.matches)
        return on_node(found, self.node) if self.node else found


def holding(target: Target, chosen: Chosen) -> HoldingPods:
    """Pods with these labels, of the flag's namespace or of all. Raises Unanswerable."""

    async def ask() -> HoldingPods:
        async with session(target) as of:
            view = await cluster_view(of.cluster, of.configuration, KINDS_OF_TOP)
            view.namespace = of.namespace
            reports = await node_reports(of.cluster, {pod.node for pod in chosen.held(view).pods})
        tell_unread(view.unread)
        return chosen.of(view, reports)

    return asyncio.run(ask())


def follow_holding(target: Target, chosen: Chosen, *, wide: bool, headers: bool) -> None:
    """Print them, and those that change, until interrupted; what they use is not read. Raises Unanswerable."""

    async def lines(view: ClusterView) -> Iterable[Line]:
        reports = await isolations(view.cluster, {pod.node for pod in chosen.held(view).pods})
        return pod_lines(chosen.of(view, reports), wide=wide, namespaces=chosen.everywhere)

    follow(target, KINDS_OF_TOP, lines, headers=headers)
