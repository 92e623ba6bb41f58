"""Small rules about nodes: what no recording of kube-scheduler shows of them.

What it says of ports, taints, features, images, names and cordons: `tests/differential`, the groups of these names.
That all rows follow when one node pulls an image: `framework/test_evaluation_cache.py`.
"""

from typing import Any

import numpy as np
import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule
from msgspec.structs import replace

from scheduler.framework.cycle_state import CycleState
from scheduler.framework.plugin import Rejected, Relevance
from scheduler.framework.profile import Profile
from scheduler.framework.runtime import Runtime
from scheduler.kube.objects import Taint, Toleration
from scheduler.plugins.node.image_locality import ImageLocality
from scheduler.plugins.node.kubelet_rejections import REASON as REJECTED_BEFORE
from scheduler.plugins.node.kubelet_rejections import Because, KubeletRejections
from scheduler.plugins.node.node_declared_features import REASON, NodeDeclaredFeatures
from scheduler.plugins.node.node_name import NodeName
from scheduler.plugins.node.node_ports import HostPorts
from scheduler.plugins.node.taint_toleration import TaintToleration, tolerates
from scheduler.plugins.pod.priority_sort import sort_key
from scheduler.plugins.pod.scheduling_gates import SchedulingGates
from scheduler.plugins.pod.unsupported_rules import UnsupportedRules
from scheduler.pods.declared_features import FEATURES
from scheduler.pods.gpu_request import ResourceNames
from scheduler.pods.pod import HostPort, Pod
from scheduler.state.changes import Change
from scheduler.state.columns.arrays import ALL_ROWS, Rows
from scheduler.state.tables import Tables
from tests.support.builders import pod, wire_node
from tests.support.judging import reasons, scored, tables_of

# Rules of one line


def test_a_pod_with_gates_is_not_queued_and_says_which() -> None:
    gated = pod("p", schedulingGates=[{"name": "example.com/quota"}, {"name": "b"}])
    assert SchedulingGates().pre_enqueue(gated) == "waiting for scheduling gates: [example.com/quota b]"
    assert SchedulingGates().pre_enqueue(pod("p")) is None


def test_a_higher_priority_comes_first() -> None:
    by_priority = sorted([pod("low", priority=-5), pod("high", priority=7), pod("none")], key=sort_key)
    assert [each.key.name for each in by_priority] == ["high", "none", "low"]


def test_pods_that_name_different_nodes_are_different_classes() -> None:
    tables = tables_of()
    keys = [NodeName().signature(pod("p", node=node), tables) for node in ("a", "b", "")]
    assert keys == ["a", "b", None]


def test_all_that_is_not_built_is_named_at_once_and_keeps_the_pod_pending() -> None:
    asking = pod("p", volumes=[{"name": "v", "newDisk": {}}], resourceClaims=[{"name": "r"}])
    result = UnsupportedRules().pre_filter(asking, tables_of(), CycleState())
    words = "pod uses volumes of kind newDisk, resource claims, which this scheduler does not support yet"
    assert result == Rejected(words)
    assert UnsupportedRules().pre_filter(pod("p"), tables_of(), CycleState()) is Relevance.SKIP


@pytest.mark.parametrize("operator", ["Lt", "Gt", "exists"])
def test_operators_that_compare_are_behind_a_gate_that_is_off_and_others_are_unknown(operator: str) -> None:
    assert not tolerates(Toleration("k", operator, "5"), Taint("k", "NoSchedule", "3"))
    assert not tolerates(Toleration("k", operator, "3"), Taint("k", "NoSchedule", "5"))


def test_soft_taints_count_also_where_a_profile_leaves_the_filter_out() -> None:
    tables = tables_of(wire_node("a"), wire_node("b", taints=(Taint("old", "PreferNoSchedule"),)))
    assert scored(TaintToleration(), pod("p"), tables) == {"a": 0, "b": 1}


# NodeDeclaredFeatures

RESTARTS, HOST_USERS = FEATURES
RESTARTING = [{"name": "c", "restartPolicyRules": [{"action": "RestartAllContainers"}]}]


@pytest.mark.parametrize(
    ("options", "needed"),
    [
        pytest.param({"containers": RESTARTING}, {RESTARTS}, id="restarts all"),
        pytest.param({"hostNetwork": True}, set(), id="the host's network and users"),
        pytest.param({"hostUsers": False}, set(), id="users of its own"),
        pytest.param({"hostNetwork": True, "hostUsers": False}, {HOST_USERS}, id="users of its own, host's network"),
    ],
)
def test_which_features_a_pod_needs(options: dict[str, Any], needed: set[str]) -> None:
    asking = pod("p", **options)
    assert asking.template.required_features == needed
    judged = NodeDeclaredFeatures().pre_filter(asking, tables_of(), CycleState())
    assert judged is (Relevance.EVALUATE if needed else Relevance.SKIP)


def test_nodes_have_to_declare_every_feature_that_the_pod_needs_however_many_come_and_go() -> None:
    asking = pod("p", containers=RESTARTING, hostNetwork=True, hostUsers=False)
    tables = tables_of(
        wire_node("a", features=(RESTARTS, HOST_USERS)), wire_node("b", features=(RESTARTS, "Other")), wire_node("c")
    )
    tables.upsert_node(wire_node("b", features=(RESTARTS, HOST_USERS)))
    tables.remove_node("a")
    for number in range(70):
        tables.upsert_node(wire_node(f"n{number}", features=(HOST_USERS,) if number else (RESTARTS, HOST_USERS)))
    found = set(tables.row_of) - reasons(NodeDeclaredFeatures(), asking, tables)[REASON]
    assert found == {"b", "n0"}


# NodePorts

ANY, HOME = "0.0.0.0", "127.0.0.1"  # noqa: S104 - compared with, not bound to
PORTS = st.frozensets(
    st.builds(
        HostPort,
        st.sampled_from(["", ANY, HOME, "10.0.0.1", "::"]),
        st.sampled_from(["TCP", "UDP"]),
        st.integers(1, 3),
    ),
    min_size=1,
    max_size=3,
)
ROWS: tuple[Rows, ...] = (ALL_ROWS, np.array([3, 0, 2]), slice(1, 3), slice(0, 1))


def conflicts(one: HostPort, other: HostPort) -> bool:
    """The rule, written another way: as for kube-scheduler, `::` is an address like others."""
    addresses = {ANY if port.ip == "" else port.ip for port in (one, other)}
    same = (one.protocol, one.port) == (other.protocol, other.port)
    return same and (len(addresses) == 1 or ANY in addresses)


class PortHistories(RuleBasedStateMachine):
    """Pods with host ports come and go, held against a plain list of them."""

    def __init__(self) -> None:
        super().__init__()
        self.tables = Tables(ResourceNames())
        self.ports = self.tables.fact(HostPorts)
        self.pods: list[tuple[int, frozenset[HostPort]]] = []

    @rule(row=st.integers(0, 3), ports=PORTS)
    def pod_comes(self, row: int, ports: frozenset[HostPort]) -> None:
        self.ports.book(row, ports, 1)
        self.pods.append((row, ports))

    @precondition(lambda self: self.pods)
    @rule(data=st.data())
    def pod_goes(self, data: st.DataObject) -> None:
        row, ports = self.pods.pop(data.draw(st.integers(0, len(self.pods) - 1)))
        self.ports.book(row, ports, -1)

    @invariant()
    def conflicts_are_those_with_the_pods_there(self) -> None:
        for wanted in (HostPort("", "TCP", 1), HostPort(HOME, "UDP", 2), HostPort("::", "TCP", 3)):
            taken = {row for row, ports in self.pods if any(conflicts(wanted, port) for port in ports)}
            for rows in ROWS:
                expected = [row in taken for row in np.arange(self.tables.capacity)[rows].tolist()]
                assert self.ports.in_conflict(frozenset({wanted}), rows).tolist() == expected


TestPortHistories = PortHistories.TestCase


# KubeletRejections

WEB, OTHER = pod("web", 3), pod("other", 4)


def rejecting(**because: str) -> Tables:
    """Nodes a, b and c, of which those named have rejected WEB."""
    made = tables_of(*(wire_node(name, [16]) for name in "abc"))
    for node, reason in because.items():
        made.rejections.note(replace(WEB, node_name=node), reason, 0.0)
    return made


def test_only_pods_as_the_kubelet_has_rejected_are_concerned() -> None:
    judging, of = KubeletRejections(), rejecting(a="OutOfcpu")
    assert judging.pre_filter(WEB, of, CycleState()) is Relevance.EVALUATE
    assert judging.pre_filter(OTHER, of, CycleState()) is Relevance.SKIP
    assert (judging.signature(WEB, of) is None, judging.signature(OTHER, of)) == (False, None)
    of.rejections.expire(10.0)
    assert (judging.pre_filter(WEB, of, CycleState()), judging.signature(WEB, of)) == (Relevance.SKIP, None)


def test_nodes_whose_kubelet_has_rejected_such_a_pod_are_rejected_by_name_whichever_rows_are_judged() -> None:
    of = rejecting(a="OutOfcpu", c="OutOfmemory", gone="OutOfpods")
    assert reasons(KubeletRejections(), WEB, of) == {REJECTED_BEFORE: {"a", "c"}}
    (rejection,) = KubeletRejections().filter(WEB, of, CycleState(), np.array([2, 1]))
    assert rejection.rejected.tolist() == [True, False]


def test_the_message_has_the_kubelets_reasons_of_the_nodes_that_it_counts() -> None:
    of = rejecting(a="OutOfcpu", b="OutOfmemory")
    (rejection,) = KubeletRejections().filter(WEB, of, CycleState(), np.array([1, 0]))
    assert rejection.numbers is not None
    both, one = rejection.numbers(np.array([True, True])), rejection.numbers(np.array([True, False]))
    assert both.worded(REJECTED_BEFORE) == "node(s) had rejected such a pod (OutOfcpu, OutOfmemory)"
    assert one.worded(REJECTED_BEFORE) == "node(s) had rejected such a pod (OutOfmemory)"
    assert one.joined(both) == both
    assert Because(frozenset("dcba")).worded("x") == "x (a, b, c, …)"


# ImageLocality

LOCALITY = ImageLocality()


def running(image: str, *, name: str = "p", **more: Any) -> Pod:  # noqa: ANN401 - as `pod`
    """A pod of this image."""
    return pod(name, containers=[{"name": "c", "image": image}], **more)


def test_an_absurd_size_is_worth_no_more_than_a_large_one() -> None:
    tables = tables_of(wire_node("a", images={"web:1": 2**40}), wire_node("b"))
    assert scored(LOCALITY, running("web:1"), tables) == {"a": 100_000, "b": 0}


@pytest.mark.parametrize(
    ("asked", "there"),
    [
        ("registry.example:5000/web", "registry.example:5000/web:latest"),
        ("registry.example:5000/web:2", "registry.example:5000/web:2"),
        ("web@sha256:00", "web@sha256:00"),
    ],
)
def test_a_name_without_tag_means_the_latest(asked: str, there: str) -> None:
    tables = tables_of(wire_node("a", images={there: 1000}))
    assert scored(LOCALITY, running(asked), tables) == {"a": 100_000}


def test_pods_of_other_images_are_of_another_class() -> None:
    assert running("web:1").template is running("web:1", name="q").template
    assert running("web:1").template is not running("web:2").template
    mounting = running("web:1", volumes=[{"name": "v", "image": {"reference": "data:1"}}])
    assert running("web:1").template is not mounting.template


class Counting(ImageLocality):
    """Counts how often it is asked about all rows."""

    def __init__(self) -> None:
        super().__init__()
        self.rows = 0

    def score(self, pod, tables, state, rows):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN201 - as ImageLocality
        scores = super().score(pod, tables, state, rows)
        self.rows += len(scores)
        return scores


def test_bookings_and_the_images_of_others_do_not_score_the_rows_again() -> None:
    nodes = [wire_node(f"n{number:02}", images={"web:1": 500} if number < 4 else None) for number in range(20)]
    tables, asking, rule = tables_of(*nodes), running("web:1"), Counting()
    runtime = Runtime(Profile(score=((rule, 1),)), tables)
    runtime.evaluate(asking)
    asked = rule.rows
    tables.changes.note(3, int(Change.BOOKINGS))
    runtime.evaluate(asking)
    assert rule.rows == asked
    tables.upsert_node(wire_node("n10", images={"other:1": 500}))
    runtime.evaluate(asking)
    assert rule.rows == asked + 1
