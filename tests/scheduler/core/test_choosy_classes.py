"""Classes of waiting pods that request certain cards or nodes get no hints about others."""

from typing import Any

import pytest

from config.protocol import names
from scheduler.core.engine import Engine
from scheduler.core.scheduling_cycle import Placement
from tests.support.builders import card, engine, pod, wire_node
from tests.support.placing import decided

TEMPLATES = 20
ON_NODE_A = {"nodeSelector": {"kubernetes.io/hostname": "a"}}


def full(**nodes: list[int]) -> Engine:
    """Each card is held by two pods of half its units: `a-0-first` and `a-0-second` on card 0 of node a, and so on."""
    built = engine(**nodes)
    for node, cards in nodes.items():
        for index, units in enumerate(cards):
            for turn in ("first", "second"):
                on_card = {names.CARD_UUIDS: f"GPU-{node}-{index}"}
                built.pod_waiting(pod(f"{node}-{index}-{turn}", units // 2, annotations=on_card), 0.0)
                placed = decided(built, 1.0)
                assert isinstance(placed, Placement)
                built.bound(placed)
    return built


def waits(built: Engine, units: int, **options: Any) -> None:  # noqa: ANN401 - as `manifest`
    """As many templates as pods, and none fits."""
    for number in range(TEMPLATES):
        built.pod_waiting(pod(f"p-{number}", units, requests={"cpu": f"{1 + number}m"}, **options), 0.0)
    while (decision := built.decide(0.0, 1)) is not None:
        assert not isinstance(decision.outcome, Placement)


def leave(built: Engine, *pods: str) -> None:
    for name in pods:
        built.pod_gone(f"uid-default-{name}")


def questions(built: Engine) -> int:
    """Number of hints until none is left, or a pod may be decided."""
    asked = 0
    while built.run_hint(1.0):
        asked += 1
    return asked


def placed_on(built: Engine) -> str:
    outcome = decided(built, 1.0)
    assert isinstance(outcome, Placement)
    return outcome.node


@pytest.mark.parametrize(
    ("units", "options", "elsewhere", "theirs"),
    [
        pytest.param(
            1, {"annotations": {names.CARD_UUIDS: "GPU-a-0"}}, ("a-1-first", "b-0-first"), ("a-0-first",), id="a card"
        ),
        pytest.param(
            1,
            {"annotations": {names.CARD_UUIDS: "GPU-a-0,GPU-none"}},
            ("a-1-first", "b-0-first"),
            ("a-0-first",),
            id="cards of which one is there",
        ),
        pytest.param(
            1,
            {"annotations": {names.EXCLUSIVE: "true"}},
            ("a-0-first", "a-1-first", "b-0-first"),
            ("a-0-second",),
            id="a card of its own",
        ),
        pytest.param(
            8,
            {"annotations": {names.GPU_COUNT: "2"}},
            ("a-0-first", "a-0-second", "b-0-first"),
            ("a-1-first",),
            id="two cards",
        ),
        pytest.param(1, ON_NODE_A, ("b-0-first", "b-1-first"), ("a-0-first",), id="a node"),
    ],
)
def test_what_becomes_free_elsewhere_is_no_question(
    units: int, options: dict[str, Any], elsewhere: tuple[str, ...], theirs: tuple[str, ...]
) -> None:
    built = full(a=[16, 16], b=[16, 16])
    waits(built, units, **options)
    for name in elsewhere:
        leave(built, name)
        assert questions(built) == 0, name
    leave(built, *theirs)
    assert questions(built) == 1
    assert placed_on(built) == "a"


def test_cards_of_another_model_are_no_question() -> None:
    built = full(a=[16], b=[16])
    built.node_changed(wire_node("b", [card(0, 16, node="b", model="N")]))
    waits(built, 1, annotations={names.CARD_MODELS: "M"})
    leave(built, "b-0-first")
    assert questions(built) == 0
    leave(built, "a-0-first")
    assert questions(built) == 1
    assert placed_on(built) == "a"


def test_a_model_that_comes_later_is_one() -> None:
    built = full(a=[16], b=[16])
    waits(built, 1, annotations={names.CARD_MODELS: "N"})
    leave(built, "b-0-first")
    assert questions(built) == 0
    built.node_changed(wire_node("b", [card(0, 16, node="b", model="N")]))
    assert questions(built) == 1
    assert placed_on(built) == "b"


def test_a_node_that_is_labelled_while_it_is_full_is_one_once_there_is_place() -> None:
    built = full(a=[16], b=[16])
    waits(built, 1, nodeSelector={"pool": "theirs"})
    built.node_changed(wire_node("b", [16], labels={"pool": "theirs"}))
    questions(built)
    leave(built, "b-0-first")
    assert questions(built) == 1
    assert placed_on(built) == "b"


def test_so_is_a_node_that_comes() -> None:
    built = full(a=[16], b=[16])
    waits(built, 1, nodeSelector={"kubernetes.io/hostname": "c"})
    leave(built, "b-0-first")
    assert questions(built) == 0
    built.node_changed(wire_node("c", [16]))
    assert questions(built) == 1
    assert placed_on(built) == "c"


def test_places_on_many_nodes_at_once_are_questions_for_who_asks_for_one_of_them() -> None:
    built = full(**{f"n{number:02}": [16] for number in range(20)}, a=[16])
    waits(built, 1, **ON_NODE_A)
    leave(built, *(f"n{number:02}-0-first" for number in range(20)))
    assert questions(built) == 0
    leave(built, *(f"n{number:02}-0-second" for number in range(20)), "a-0-first")
    assert questions(built) == 1
    assert placed_on(built) == "a"
