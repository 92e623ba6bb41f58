"""TaintToleration: which toleration tolerates which taint, what keeps a pod off, and what is only disliked."""

import pytest

from scheduler.kube.objects import Taint, Toleration
from scheduler.plugins.node.taint_toleration import TaintToleration, has_untolerated, soft_untolerated, tolerates
from tests.support.builders import pod, wire_node
from tests.support.judging import reasons, rejected, scored, state_of, tables_of

TAINT = Taint("k", "NoSchedule", "v")
GPU = Taint("gpu", "NoSchedule", "yes")
EVICTING = Taint("bad", "NoExecute")
SOFT = Taint("old", "PreferNoSchedule")
SOFT_TOO = Taint("slow", "PreferNoSchedule")


@pytest.mark.parametrize(
    ("toleration", "expected"),
    [
        pytest.param(Toleration("k", "Equal", "v", "NoSchedule"), True, id="Equal"),
        pytest.param(Toleration("k", "", "v", "NoSchedule"), True, id="no operator is Equal"),
        pytest.param(Toleration("k", "Equal", "w", "NoSchedule"), False, id="another value"),
        pytest.param(Toleration("k", "Equal"), False, id="no value is the empty value"),
        pytest.param(Toleration("k", "Exists"), True, id="Exists takes any value and any effect"),
        pytest.param(Toleration("k", "Exists", effect="NoExecute"), False, id="another effect"),
        pytest.param(Toleration("l", "Exists"), False, id="another key"),
        pytest.param(Toleration("", "Exists"), True, id="no key takes any key"),
        pytest.param(Toleration("", "Exists", effect="NoExecute"), False, id="no key, another effect"),
        pytest.param(Toleration("", "Equal", "v"), True, id="no key with a value"),
        pytest.param(Toleration("k", "exists"), False, id="unknown operator"),
    ],
)
def test_a_toleration_tolerates(toleration: Toleration, expected: bool) -> None:  # noqa: FBT001 - a case of the table
    assert tolerates(toleration, TAINT) is expected


@pytest.mark.parametrize("operator", ["Lt", "Gt"])
def test_comparing_operators_are_behind_a_gate_that_is_off(operator: str) -> None:
    assert not tolerates(Toleration("k", operator, "5"), Taint("k", "NoSchedule", "3"))
    assert not tolerates(Toleration("k", operator, "3"), Taint("k", "NoSchedule", "5"))


@pytest.mark.parametrize(
    ("taints", "tolerations", "hard", "soft"),
    [
        pytest.param((), (), False, 0, id="no taints"),
        pytest.param((GPU,), (), True, 0, id="NoSchedule"),
        pytest.param((EVICTING,), (), True, 0, id="NoExecute"),
        pytest.param((SOFT, SOFT_TOO), (), False, 2, id="soft ones are counted"),
        pytest.param((SOFT, SOFT_TOO), (Toleration("old", "Exists"),), False, 1, id="unless tolerated"),
        pytest.param((SOFT,), (Toleration("old", "Exists", effect="NoSchedule"),), False, 1, id="in their effect"),
        pytest.param((GPU, EVICTING), (Toleration("gpu", "Exists"),), True, 0, id="every hard one has to be tolerated"),
        pytest.param((GPU, EVICTING, SOFT), (Toleration(operator="Exists"),), False, 0, id="everything is tolerated"),
    ],
)
def test_taints_of_a_node(
    taints: tuple[Taint, ...],
    tolerations: tuple[Toleration, ...],
    hard: bool,  # noqa: FBT001 - a case of the table
    soft: int,
) -> None:
    assert has_untolerated(taints, tolerations) is hard
    assert soft_untolerated(taints, tolerations) == soft


def test_a_node_with_an_untolerated_taint_is_rejected_in_kube_schedulers_words() -> None:
    tables = tables_of(wire_node("a"), wire_node("b", taints=(GPU,)), wire_node("c", taints=(GPU, EVICTING)))
    assert reasons(TaintToleration(), pod("p"), tables) == {"node(s) had untolerated taint(s)": {"b", "c"}}
    tolerating = pod("p", tolerations=[{"key": "gpu", "value": "yes"}])
    assert rejected(TaintToleration(), tolerating, tables) == {"c"}


def test_nodes_are_scored_by_the_soft_taints_that_are_not_tolerated() -> None:
    nodes = (wire_node("a"), wire_node("b", taints=(SOFT, GPU)), wire_node("c", taints=(SOFT, SOFT_TOO)))
    assert scored(TaintToleration(), pod("p"), tables_of(*nodes)) == {"a": 0, "b": 1, "c": 2}


def test_what_was_worked_out_for_a_class_follows_the_nodes() -> None:
    plugin, waiting, tables = TaintToleration(), pod("p"), tables_of(wire_node("a", taints=(GPU,)), wire_node("b"))
    state = state_of(plugin, waiting, tables)
    assert reasons(plugin, waiting, tables, state) == {"node(s) had untolerated taint(s)": {"a"}}
    tables.upsert_node(wire_node("a", taints=(SOFT,)))
    tables.upsert_node(wire_node("b", taints=(EVICTING,)))
    assert reasons(plugin, waiting, tables, state) == {"node(s) had untolerated taint(s)": {"b"}}
