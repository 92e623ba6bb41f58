"""SchedulingGates, PrioritySort, NodeName, NodeUnschedulable, NodePorts and UnsupportedRules."""

import pytest

from scheduler.framework.cycle_state import CycleState
from scheduler.framework.plugin import Rejected, Relevance
from scheduler.plugins.node.node_name import NodeName
from scheduler.plugins.node.node_ports import NodePorts
from scheduler.plugins.node.node_unschedulable import NodeUnschedulable
from scheduler.plugins.pod.priority_sort import sort_key
from scheduler.plugins.pod.scheduling_gates import SchedulingGates
from scheduler.plugins.pod.unsupported_rules import UnsupportedRules
from scheduler.pods.pod import Pod
from tests.support.builders import bound, pod, wire_node
from tests.support.judging import reasons, rejected, tables_of

UNSCHEDULABLE_KEY = "node.kubernetes.io/unschedulable"


def with_port(name: str, port: int, ip: str = "") -> Pod:
    """A pod with one host port."""
    return pod(name, containers=[{"name": "c", "ports": [{"containerPort": 1, "hostPort": port, "hostIP": ip}]}])


def test_a_pod_with_gates_is_not_queued_and_says_which() -> None:
    gated = pod("p", schedulingGates=[{"name": "example.com/quota"}, {"name": "b"}])
    assert SchedulingGates().pre_enqueue(gated) == "waiting for scheduling gates: [example.com/quota b]"


def test_a_pod_without_gates_is_queued() -> None:
    assert SchedulingGates().pre_enqueue(pod("p")) is None


def test_a_higher_priority_comes_first() -> None:
    by_priority = sorted([pod("low", priority=-5), pod("high", priority=7), pod("none")], key=sort_key)
    assert [each.key.name for each in by_priority] == ["high", "none", "low"]


def test_a_pod_that_names_its_node_goes_nowhere_else() -> None:
    tables = tables_of(wire_node("a"), wire_node("b"))
    named = pod("p", node="a")
    assert reasons(NodeName(), named, tables) == {"node(s) didn't match the requested node name": {"b"}}
    assert rejected(NodeName(), pod("p", node="gone"), tables) == {"a", "b"}
    assert rejected(NodeName(), pod("p"), tables) == set()


def test_pods_that_name_different_nodes_are_different_classes() -> None:
    tables = tables_of()
    keys = [NodeName().signature(pod("p", node=node), tables) for node in ("a", "b", "")]
    assert keys == ["a", "b", None]


@pytest.mark.parametrize(
    ("tolerations", "kept_off"),
    [
        pytest.param([], {"b"}, id="no toleration"),
        pytest.param([{"key": UNSCHEDULABLE_KEY, "operator": "Exists"}], set(), id="tolerated"),
        pytest.param([{"operator": "Exists"}], set(), id="everything is tolerated"),
        pytest.param(
            [{"key": UNSCHEDULABLE_KEY, "effect": "NoExecute", "operator": "Exists"}], {"b"}, id="other effect"
        ),
    ],
)
def test_a_node_out_of_use_takes_only_pods_that_tolerate_it(
    tolerations: list[dict[str, str]], kept_off: set[str]
) -> None:
    tables = tables_of(wire_node("a"), wire_node("b", unschedulable=True))
    expected = {"node(s) were unschedulable": kept_off} if kept_off else {}
    assert reasons(NodeUnschedulable(), pod("p", tolerations=tolerations), tables) == expected


def test_a_host_port_is_taken_once_per_node() -> None:
    tables = tables_of(wire_node("a"), wire_node("b"))
    tables.add(bound(with_port("there", 80, "10.0.0.1"), "a"))
    words = "node(s) didn't have free ports for the requested pod ports"
    assert reasons(NodePorts(), with_port("p", 80), tables) == {words: {"a"}}
    assert rejected(NodePorts(), with_port("p", 80, "10.0.0.2"), tables) == set()
    assert rejected(NodePorts(), pod("p"), tables) == set()
    tables.remove("uid-default-there")
    assert rejected(NodePorts(), with_port("p", 80), tables) == set()


def test_what_is_not_built_is_named_and_keeps_the_pod_pending() -> None:
    volumes = [{"name": "v", "newDisk": {}}]
    result = UnsupportedRules().pre_filter(pod("p", volumes=volumes), tables_of(), CycleState())
    words = "pod asks for volumes of kind newDisk, which this scheduler does not support yet"
    assert result == Rejected(words)


def test_all_that_is_not_built_is_named_at_once() -> None:
    asking = pod("p", volumes=[{"name": "v", "newDisk": {}}], resourceClaims=[{"name": "r"}])
    result = UnsupportedRules().pre_filter(asking, tables_of(), CycleState())
    words = "pod asks for volumes of kind newDisk, resource claims, which this scheduler does not support yet"
    assert result == Rejected(words)


def test_a_pod_that_asks_for_what_is_built_is_left_alone() -> None:
    assert UnsupportedRules().pre_filter(pod("p"), tables_of(), CycleState()) is Relevance.SKIP
