"""GpuCore: shares of a card's compute, card by card."""

import pytest

from config.protocol import names
from scheduler.core.engine import Engine
from scheduler.plugins.card.gpu_core import percent_per_card
from tests.support.builders import bound, engine, pod, wire_node
from tests.support.placing import on_card, place, settle, where, why

CORE = names.GPU_CORE
SHORT = f"Insufficient {CORE} on one card"


def sharing(**nodes: list[int]) -> Engine:
    """Nodes with cards of so many units, which announce 100 percent for each."""
    built = engine()
    for name, cards in nodes.items():
        built.node_changed(wire_node(name, cards, more={CORE: str(100 * len(cards))}))
    return built


def asking(percent: int, **options: object) -> dict[str, object]:
    return {"requests": {CORE: str(percent)}, **options}


def test_a_card_takes_pods_up_to_a_hundred_percent() -> None:
    built = sharing(a=[16])
    assert [where(place(built, f"p{n}", 1, **asking(40))) for n in range(2)] == [[("a", 0)]] * 2
    assert why(place(built, "third", 1, **asking(40))) == f"0/1 nodes are available: 1 Insufficient {CORE}."
    assert where(place(built, "rest", 1, **asking(20))) == [("a", 0)]


def test_the_card_counts_not_the_node() -> None:
    built = sharing(a=[16, 16])
    for number in range(2):
        place(built, f"p{number}", 16, **asking(60))
    built.pod_gone("uid-default-p0")
    # 140 of 200 percent are free on the node, 40 on the card that has memory.
    built.pod_assigned(bound(pod("memory", 16), "a", on_card(0, 16)))
    built.pod_gone("uid-default-p1")
    built.pod_assigned(bound(pod("core", 1, **asking(60)), "a", on_card(1, 1)))
    assert why(place(built, "p", 1, **asking(50))) == f"0/1 nodes are available: 1 {SHORT}."


def test_a_pod_without_a_share_goes_where_no_share_is_left() -> None:
    built = sharing(a=[16])
    place(built, "all", 1, **asking(100))
    assert where(place(built, "none", 1)) == [("a", 0)]


def test_a_node_that_announces_none_takes_none() -> None:
    built = engine(a=[16])
    assert why(place(built, "p", 1, **asking(1))) == f"0/1 nodes are available: 1 Insufficient {CORE}."


@pytest.mark.parametrize(
    ("options", "message"),
    [
        pytest.param(asking(101), f"{CORE}: the pod asks 101 of one card; expected at most 100", id="too much"),
        pytest.param(
            {**asking(10), "gpu_mem": 0},
            f"{CORE}: the pod asks no {names.GPU_MEM}, which gives it a card; ask for both",
            id="no memory",
        ),
        pytest.param(
            asking(201, annotations={names.GPU_COUNT: "2"}),
            f"{CORE}: the pod asks 101 of one card; expected at most 100",
            id="too much of two",
        ),
    ],
)
def test_a_request_that_no_card_can_meet_is_named(options: dict[str, object], message: str) -> None:
    built = sharing(a=[16, 16])
    assert message in why(place(built, "p", **{"gpu_mem": 2, **options}))  # type: ignore[arg-type]


def test_several_cards_share_the_request_evenly() -> None:
    built = sharing(a=[16, 16])
    waiting = pod("p", 2, **asking(101, annotations={names.GPU_COUNT: "2"}))
    assert percent_per_card(waiting, CORE) == 51
    assert where(place(built, "p", 2, **asking(101, annotations={names.GPU_COUNT: "2"}))) == [("a", 0), ("a", 1)]
    assert where(place(built, "q", 1, **asking(49))) == [("a", 0)]
    assert where(place(built, "r", 1, **asking(49))) == [("a", 1)]


def test_freed_percent_wakes_as_many_as_fit() -> None:
    built = sharing(a=[16])
    place(built, "all", 1, **asking(100))
    for number in range(4):
        place(built, f"waits-{number}", 1, **asking(40))
    built.pod_gone("uid-default-all")
    assert settle(built) == ["waits-0", "waits-1"]


def test_a_pod_bound_by_others_holds_its_share() -> None:
    built = sharing(a=[16])
    place(built, "first", 1, **asking(10))
    built.pod_assigned(bound(pod("stranger", 2, **asking(80)), "a", on_card(0, 2)))
    assert why(place(built, "p", 1, **asking(11))) == f"0/1 nodes are available: 1 Insufficient {CORE}."
