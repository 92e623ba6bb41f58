"""`kubectl gpushare top pods`: reads the pods, and what their nodes report of them."""

import asyncio
from collections.abc import Callable, Mapping

from scheduler.kube.port import CONFIG_MAPS, NODES, PODS
from scheduler.tools.cli.asking import cluster_view, tell_unread
from scheduler.tools.cli.node_reports import node_reports
from scheduler.tools.cli.session import session
from scheduler.tools.cli.target import Target
from scheduler.tools.explain.held import HoldingPods, holding_pods, on_node, reported


def holding(
    target: Target, matches: Callable[[Mapping[str, str]], bool], node: str, *, everywhere: bool
) -> HoldingPods:
    """Pods with these labels, of the flag's namespace or of all. node: "" for every node. Raises Unanswerable."""

    async def ask() -> HoldingPods:
        async with session(target) as of:
            read = await cluster_view(of.cluster, of.configuration, (NODES, PODS, CONFIG_MAPS))
            engine = read.reading.engine
            found = holding_pods(engine, read.reading.unit_mib, "" if everywhere else of.namespace, matches)
            if node:
                found = on_node(found, node)
            reports = await node_reports(of.cluster, {pod.node for pod in found.pods})
        tell_unread(read.unread)
        return reported(found, reports.isolation, reports.used_mib)

    return asyncio.run(ask())
