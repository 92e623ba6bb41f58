"""GpuSharersPerCard: the limit of a profile, of a node, and what happens around it."""

import pytest

from config.protocol import names
from config.settings.scheduler import SchedulerConfiguration, configuration_model
from scheduler.core.build import build_engine
from scheduler.core.engine import Engine
from scheduler.plugins.card.gpu_sharers_per_card import REASON
from scheduler.plugins.registry import describe
from tests.support.builders import bound, engine, pod, wire_node
from tests.support.placing import on_card, place, settle, where, why


def limited(most: int | None, **nodes: dict[str, str]) -> Engine:
    """Nodes of one card of 16 units each, with these annotations."""
    args = [] if most is None else [{"name": "GpuSharersPerCard", "args": {"maxSharers": most}}]
    said = configuration_model(describe()).model_validate({"profiles": [{"pluginConfig": args}]})
    built, _ = build_engine(said)
    for name, annotations in nodes.items():
        built.node_changed(wire_node(name, [16], annotations=annotations))
    return built


@pytest.mark.parametrize(
    ("argument", "annotation", "fit"),
    [
        pytest.param(None, None, 5, id="no limit"),
        pytest.param(2, None, 2, id="by the argument"),
        pytest.param(None, "3", 3, id="by the node"),
        pytest.param(4, "2", 2, id="the node says less"),
        pytest.param(2, "4", 4, id="the node says more"),
        pytest.param(2, "many", 2, id="what cannot be read counts as left out"),
    ],
)
def test_so_many_pods_share_a_card(argument: int | None, annotation: str | None, fit: int) -> None:
    built = limited(argument, a={} if annotation is None else {names.MAX_SHARERS: annotation})
    outcomes = [place(built, f"p{number}", 3) for number in range(6)]
    assert [where(outcome) for outcome in outcomes[:fit]] == [[("a", 0)]] * fit
    assert REASON in why(outcomes[fit]) or fit == 5


def test_the_message_says_memory_first_and_sharers_where_memory_would_do() -> None:
    built = limited(1, a={}, b={})
    assert where(place(built, "first", 10)) == [("a", 0)]
    assert where(place(built, "second", 3)) == [("b", 0)]
    assert why(place(built, "small", 3)) == f"0/2 nodes are available: 2 {REASON}."
    memory = "Insufficient GPU memory on one card: wants 14, most free 13 (of 16)"
    assert why(place(built, "large", 14)) == f"0/2 nodes are available: 2 {memory}."


def test_a_pod_waits_for_the_annotation_and_is_woken_by_it() -> None:
    built = limited(None, a={names.MAX_SHARERS: "1"})
    place(built, "first", 3)
    assert REASON in why(place(built, "waits", 3))
    built.node_changed(wire_node("a", [16], annotations={names.MAX_SHARERS: "1"}, labels={"news": "1"}))
    assert settle(built) == []
    built.node_changed(wire_node("a", [16], annotations={names.MAX_SHARERS: "2"}))
    assert settle(built) == ["waits"]


def test_as_many_wait_as_the_limit_leaves_out() -> None:
    built = limited(None, a={names.MAX_SHARERS: "1"})
    for number in range(5):
        place(built, f"p{number}", 1)
    built.node_changed(wire_node("a", [16], annotations={names.MAX_SHARERS: "3"}))
    assert len(settle(built)) == 2


def test_a_pod_whose_card_nobody_knows_counts_on_every_card() -> None:
    built = limited(1)
    built.node_changed(wire_node("a", [16, 16]))
    built.pod_assigned(bound(pod("unknown", 1), "a"))
    assert REASON in why(place(built, "p", 1))


def test_the_limit_of_a_node_goes_with_the_node() -> None:
    built = limited(None, a={names.MAX_SHARERS: "1"})
    place(built, "first", 3)
    built.pod_gone("uid-default-first")
    built.node_gone("a")
    built.node_changed(wire_node("b", [16]))
    assert [where(place(built, f"p{number}", 3)) for number in range(3)] == [[("b", 0)]] * 3


def test_a_node_whose_limit_cannot_be_read_says_so() -> None:
    built = engine()
    problem = built.node_changed(wire_node("a", [16], annotations={names.MAX_SHARERS: "0"}))
    assert problem == "gpushare/max-sharers: '0' is no number of pods; expected 1 to 9999"


def test_two_cards_below_the_limit_are_found_one_by_one() -> None:
    built = limited(1)
    built.node_changed(wire_node("a", [16, 16, 16]))
    built.pod_assigned(bound(pod("there", 2), "a", on_card(1, 2)))
    assert where(place(built, "two", 4, annotations={names.GPU_COUNT: "2"})) == [("a", 0), ("a", 2)]
    assert REASON in why(place(built, "again", 4, annotations={names.GPU_COUNT: "2"}))


def test_the_default_configuration_limits_nothing() -> None:
    built, _ = build_engine(SchedulerConfiguration())
    built.node_changed(wire_node("a", [16]))
    assert [where(place(built, f"p{number}", 1)) for number in range(16)] == [[("a", 0)]] * 16
