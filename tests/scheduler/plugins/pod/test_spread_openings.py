"""PodTopologySpread: who waits is asked again when a place opens, and not when none can."""

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
from msgspec.structs import replace

from scheduler.framework.profile import Profile
from scheduler.framework.runtime import Runtime
from scheduler.kube.objects import Taint
from scheduler.plugins.pod.pod_topology_spread import PodTopologySpread
from scheduler.state.tables import Tables
from tests.support.builders import bound, pod, wire_node
from tests.support.judging import tables_of
from tests.support.spreading import hard, put, waiting, zoned


def pod_comes(tables: Tables) -> None:
    put(tables, "b")


def pod_leaves(tables: Tables) -> None:
    tables.remove("uid-default-there-0")


def pod_terminates(tables: Tables) -> None:
    (record,) = tables.records_on("a")
    tables.add(replace(record.pod, terminating=True))


def node_goes(tables: Tables) -> None:
    tables.remove_node("b")


def node_is_tainted(tables: Tables) -> None:
    labels = {"zone": "west", "pool": "x"}
    tables.upsert_node(wire_node("b", labels=labels, taints=(Taint("closed", "NoSchedule"),)))


def node_is_labelled(tables: Tables, **labels: str) -> None:
    tables.upsert_node(wire_node("b", labels={"zone": "west", "pool": "x", **labels}))


def domain_comes(tables: Tables) -> None:
    tables.add(bound(pod("there-before", labels={"app": "web"}), "c"))
    tables.take_cluster_events()
    tables.upsert_node(wire_node("c", labels={"zone": "north", "pool": "x"}))


@pytest.mark.parametrize(
    ("constraint", "change"),
    [
        pytest.param(hard(), pod_comes, id="a pod comes to the emptiest zone"),
        pytest.param(hard(), pod_leaves, id="a pod leaves the fullest"),
        pytest.param(hard(), pod_terminates, id="a pod of the fullest terminates"),
        pytest.param(hard(), node_goes, id="the emptiest zone goes"),
        pytest.param(hard(nodeTaintsPolicy="Honor"), node_is_tainted, id="it is tainted"),
        pytest.param(hard(), partial(node_is_labelled, zone="east"), id="its node moves to another zone"),
        pytest.param(hard(), partial(node_is_labelled, pool="y"), id="the pod may not go there any more"),
        pytest.param(hard(minDomains=3), domain_comes, id="there are as many zones as it asks"),
    ],
)
def test_who_waits_is_asked_again_when_a_place_opens(
    constraint: dict[str, Any], change: Callable[[Tables], None]
) -> None:
    zones = {"a": "east", "b": "west"}
    tables = tables_of(*(wire_node(name, labels={"zone": zone, "pool": "x"}) for name, zone in zones.items()))
    put(tables, "a")
    if "minDomains" in constraint:
        put(tables, "b")
    asking = waiting(constraint, nodeSelector={"pool": "x"})
    runtime = Runtime(Profile(pre_filter=(PodTopologySpread(),), filter=(PodTopologySpread(),)), tables)
    evaluation = runtime.evaluate(asking, runtime.signature(asking))
    assert not runtime.feasible(asking, evaluation)[tables.row_of["a"]]
    tables.take_cluster_events()
    change(tables)
    opened = tables.take_cluster_events()
    is_open = runtime.feasible(asking, runtime.evaluate(asking, runtime.signature(asking)))[tables.row_of["a"]]
    assert is_open
    assert evaluation.wakes_on & opened.everywhere


def test_what_cannot_help_asks_nobody() -> None:
    tables = zoned(a="east", b="west")
    put(tables, "a")
    put(tables, "b", app="db")
    asking = waiting(hard())
    runtime = Runtime(Profile(pre_filter=(PodTopologySpread(),), filter=(PodTopologySpread(),)), tables)
    evaluation = runtime.evaluate(asking, runtime.signature(asking))
    runtime.feasible(asking, evaluation)
    tables.take_cluster_events()
    put(tables, "b", app="db")
    put(tables, "b", namespace="other")
    tables.remove("uid-default-there-1")
    tables.upsert_node(wire_node("b", labels={"zone": "west", "temperature": "34"}))
    tables.upsert_node(wire_node("b", labels={"zone": "west"}, taints=(Taint("closed", "NoSchedule"),)))
    assert not evaluation.wakes_on & tables.take_cluster_events().everywhere
