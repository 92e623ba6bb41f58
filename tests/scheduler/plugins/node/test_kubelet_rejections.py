"""Nodes whose kubelet has rejected such a pod."""

import numpy as np
from msgspec.structs import replace

from scheduler.framework.cycle_state import CycleState
from scheduler.framework.plugin import Relevance
from scheduler.plugins.node.kubelet_rejections import REASON, Because, KubeletRejections
from scheduler.pods.gpu_request import ResourceNames
from scheduler.state.columns.arrays import ALL_ROWS
from scheduler.state.tables import Tables
from tests.support.builders import pod, wire_node

WEB, OTHER = pod("web", 3), pod("other", 4)


def tables(**reasons: str) -> Tables:
    """Nodes a, b and c, of which those named have rejected WEB."""
    made = Tables(ResourceNames())
    for name in "abc":
        made.upsert_node(wire_node(name, [16]))
    for node, reason in reasons.items():
        made.rejections.note(replace(WEB, node_name=node), reason, 0.0)
    return made


def test_only_such_pods_are_concerned() -> None:
    rule, of = KubeletRejections(), tables(a="OutOfcpu")
    assert rule.pre_filter(WEB, of, CycleState()) is Relevance.EVALUATE
    assert rule.pre_filter(OTHER, of, CycleState()) is Relevance.SKIP
    assert (rule.signature(WEB, of) is None, rule.signature(OTHER, of)) == (False, None)
    of.rejections.expire(10.0)
    assert (rule.pre_filter(WEB, of, CycleState()), rule.signature(WEB, of)) == (Relevance.SKIP, None)


def test_nodes_are_rejected_by_name_whichever_rows_are_judged() -> None:
    of = tables(a="OutOfcpu", c="OutOfmemory", gone="OutOfpods")
    for rows in (ALL_ROWS, np.array([2, 1]), np.array([0])):
        (rejection,) = KubeletRejections().filter(WEB, of, CycleState(), rows)
        judged = np.arange(of.capacity)[rows]
        assert [of.names[row] for row in judged[rejection.rejected]] == [
            of.names[row] for row in judged if row in {0, 2}
        ]
        assert (rejection.reason, rejection.rejected.shape) == (REASON, judged.shape)


def test_the_message_has_the_kubelets_reasons_of_the_nodes_that_it_counts() -> None:
    (rejection,) = KubeletRejections().filter(
        WEB, tables(a="OutOfcpu", b="OutOfmemory"), CycleState(), np.array([1, 0])
    )
    assert rejection.numbers is not None
    both, one = rejection.numbers(np.array([True, True])), rejection.numbers(np.array([True, False]))
    assert both.worded(REASON) == "node(s) had rejected such a pod (OutOfcpu, OutOfmemory)"
    assert one.worded(REASON) == "node(s) had rejected such a pod (OutOfmemory)"
    assert one.joined(both) == both
    assert Because(frozenset("dcba")).worded("x") == "x (a, b, c, …)"
