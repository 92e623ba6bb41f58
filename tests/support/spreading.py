"""Zones, pods in them, and a spread pod: the starting point of PodTopologySpread tests."""

from typing import Any

from msgspec.structs import replace

from scheduler.plugins.pod.pod_topology_spread import PodTopologySpread
from scheduler.pods.pod import Pod
from scheduler.state.tables import Tables
from tests.support.builders import bound, pod, wire_node
from tests.support.judging import reasons, tables_of

SKEWED = "node(s) didn't match pod topology spread constraints"
LACKING = "node(s) didn't match pod topology spread constraints (missing required label)"
HOST = "kubernetes.io/hostname"
WEB = {"labelSelector": {"matchLabels": {"app": "web"}}}


def hard(**more: object) -> dict[str, Any]:
    """Return a constraint: at most one web pod more than in the emptiest zone."""
    return {"topologyKey": "zone", "maxSkew": 1, "whenUnsatisfiable": "DoNotSchedule", **WEB, **more}


def soft(**more: object) -> dict[str, Any]:
    """Return a constraint that prefers zones with fewer web pods."""
    return hard(whenUnsatisfiable="ScheduleAnyway", **more)


def waiting(*constraints: dict[str, Any], app: str = "web", **options: Any) -> Pod:  # noqa: ANN401 - as `manifest`
    """Return a pod that is spread."""
    labels = {"app": app, **options.pop("labels", {})}
    return pod("waiting", labels=labels, topologySpreadConstraints=list(constraints), **options)


def zoned(**nodes: str) -> Tables:
    """Return tables with one node per keyword, in that zone; "" is none."""
    return tables_of(*(wire_node(name, labels={"zone": zone} if zone else {}) for name, zone in nodes.items()))


def put(
    tables: Tables,
    node: str,
    count: int = 1,
    app: str = "web",
    *,
    terminating: bool = False,
    **options: Any,  # noqa: ANN401 - as above
) -> None:
    """Put this many pods on a node."""
    labels = {"app": app, **options.pop("labels", {})}
    for _ in range(count):
        number = sum(1 for _ in tables.records())
        there = bound(pod(f"there-{number}", labels=labels, **options), node)
        tables.add(replace(there, terminating=terminating))


def against(tables: Tables, asking: Pod) -> dict[str, set[str]]:
    """Return reason -> nodes."""
    return reasons(PodTopologySpread(), asking, tables)
