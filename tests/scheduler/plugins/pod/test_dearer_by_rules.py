"""Where rules want more victims than plain amounts: the node is chosen by all of them, and as it is at the end."""

from collections.abc import Callable
from typing import Any, Final

import pytest

from config.protocol import names
from scheduler.core.engine import Engine
from scheduler.core.scheduling_cycle import NoFit
from scheduler.pods.pod import Pod
from scheduler.state.changes import Change
from tests.support.builders import bound, engine, pod, wire_node
from tests.support.placing import NOW_NS, on_card
from tests.support.preempting import chosen

APART: Final[dict[str, Any]] = {
    "podAntiAffinity": {
        "requiredDuringSchedulingIgnoredDuringExecution": [
            {"labelSelector": {"matchLabels": {"app": "x"}}, "topologyKey": "kubernetes.io/hostname"}
        ]
    }
}
URGENT: Final = pod("urgent", requests={"cpu": "20"}, priority=100, affinity=APART)


def nodes_with(**priorities: tuple[int, int]) -> Engine:
    """On each node a pod that holds the cpu, and one that the urgent pod may not be beside: their priorities."""
    built = engine(**{name: [] for name in priorities})
    for name, (large, beside) in priorities.items():
        built.pod_assigned(bound(pod(f"{name}-large", requests={"cpu": "60"}, priority=large), name))
        built.pod_assigned(bound(pod(f"{name}-x", labels={"app": "x"}, priority=beside), name))
    return built


@pytest.mark.parametrize(
    ("a", "b", "expected"),
    [
        pytest.param((5, 12), (8, 15), "a", id="less dear by amounts and by rules"),
        pytest.param((5, 15), (8, 12), "b", id="less dear by amounts only"),
        pytest.param((8, 15), (5, 12), "b", id="dearer by both"),
        pytest.param((5, 12), (5, 12), "a", id="as dear: by name"),
    ],
)
def test_the_node_is_chosen_by_what_the_rules_want(a: tuple[int, int], b: tuple[int, int], expected: str) -> None:
    found = chosen(nodes_with(a=a, b=b), URGENT)

    assert (found.node, found.victims) == (expected, (f"default/{expected}-x", f"default/{expected}-large"))


def first_step(built: Engine, waiting: Pod) -> None:
    """The search has looked at the node that is the less dear one by amounts, and there is another."""
    built.budgets_listed()
    built.pod_waiting(waiting, 0.0)
    decision = built.decide(0.0, NOW_NS)
    assert decision is not None
    assert isinstance(decision.outcome, NoFit)
    assert built.post_filter(decision.outcome, 0.0) is None


def filled(built: Engine) -> None:
    built.pod_assigned(bound(pod("high", requests={"cpu": "60"}, priority=200), "a"))


@pytest.mark.parametrize(
    "changes",
    [pytest.param(filled, id="is full"), pytest.param(lambda built: built.node_gone("a"), id="is gone")],
)
def test_nobody_goes_where_the_chosen_node_has_changed_by_the_end(changes: Callable[[Engine], None]) -> None:
    built = nodes_with(a=(5, 12), b=(8, 15))
    # The better one of the two, as long as it serves.
    first_step(built, URGENT)

    changes(built)
    found = built.post_filter_next(0.0)

    assert found is not None
    assert found.preemption is None
    assert found.diagnosis.tail == "preemption: the pods on the chosen node have changed, trying again."


def test_a_card_that_its_node_announces_no_longer_is_left_out() -> None:
    built = engine(a=[16] * 9, b=[16])
    for name, node, card, units, priority in (
        *((f"high-{card}", "a", card, 16, 200) for card in range(8)),
        ("a-low", "a", 8, 16, 5),
        ("b-low", "b", 0, 12, 1),
        ("b-x", "b", 0, 1, 50),
    ):
        running = pod(name, units, priority=priority, labels={"app": "x"} if name == "b-x" else {})
        built.pod_assigned(bound(running, node, on_card(card, units)))
    first_step(built, pod("urgent", 12, priority=100, annotations={names.CARD_ANTI_AFFINITY: "app=x"}))

    built.node_changed(wire_node("a", [16] * 8))
    found = built.post_filter_next(0.0)

    assert found is not None
    assert found.preemption is not None
    assert [victim.key.name for victim in found.preemption.victims] == ["b-x", "b-low"]


def test_changes_of_very_long_ago_are_as_good_as_any() -> None:
    built = nodes_with(a=(5, 12), b=(8, 15))
    first_step(built, URGENT)

    for number in range(70_000):
        built.tables.changes.note(number % 2, int(Change.PODS))
    found = built.post_filter_next(0.0)

    assert found is not None
    assert found.preemption is not None
    assert found.preemption.node == "a"
