"""Which cards a pod occupies, and how many units of each, in the unit of its node."""

from collections.abc import Mapping
from typing import Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from config.protocol import names
from config.protocol.allocation import Allocation, LegacyFields, encode
from config.protocol.booked_cards import Ask, BookedCards, on_cards, read, rescaled
from config.protocol.inventory import Card, nameless

GIB: Final = 1024
ONE_CARD: Final = Ask(12, 1)
TWO_CARDS: Final = Ask(12, 2)
BROKEN: Final = {names.ALLOCATION: "{"}


def card(index: int, *, mib: int = 16 * GIB, unit: int = GIB, uuid: str = "") -> Card:
    return Card(index=index, uuid=uuid or f"GPU-{index}", model="M", memory_mib=mib, units=mib // unit)


def written(
    per_card: Mapping[int, int], *, uuids: bool = True, unit: int = GIB, device: int = 16, by: Mapping[int, str] = {}
) -> dict[str, str]:
    """One container on these cards (index -> units)."""
    known = dict(by) or {index: f"GPU-{index}" for index in per_card}
    allocation = Allocation({0: dict(per_card)}, {}, known if uuids else {}, unit)
    return encode(allocation, LegacyFields(sum(per_card.values()), device, 1))


def without(key: str, annotations: dict[str, str]) -> dict[str, str]:
    return {name: value for name, value in annotations.items() if name != key}


def booked(annotations: Mapping[str, str], ask: Ask, cards: list[Card], unit: int = GIB) -> BookedCards:
    return on_cards(read(annotations, ask), cards, unit)


def units(found: BookedCards) -> dict[str, int]:
    return {one.uuid: one.units for one in found.cards}


CARDS: Final = [card(0), card(1)]


@pytest.mark.parametrize(
    ("annotations", "ask", "expected"),
    [
        pytest.param(written({1: 12}), ONE_CARD, {"GPU-1": 12}, id="by UUID"),
        pytest.param(written({1: 12}, by={1: "GPU-0"}), ONE_CARD, {"GPU-0": 12}, id="the UUID wins over the index"),
        pytest.param(written({0: 6, 1: 6}), TWO_CARDS, {"GPU-0": 6, "GPU-1": 6}, id="two cards"),
        pytest.param(written({0: 6, 1: 6}, by={0: "GPU-0", 1: "GPU-0"}), TWO_CARDS, {"GPU-0": 12}, id="one card twice"),
        pytest.param(written({1: 12}, uuids=False), ONE_CARD, {"GPU-1": 12}, id="by index"),
        pytest.param({names.MEM_IDX: "1", names.MEM_DEV: "16"}, ONE_CARD, {"GPU-1": 12}, id="the legacy index"),
        pytest.param(
            BROKEN | {names.MEM_IDX: "1", names.UNIT_MIB: "1024"},
            ONE_CARD,
            {"GPU-1": 12},
            id="broken, the legacy index",
        ),
        pytest.param(written({0: 12}, by={0: "GPU-gone"}), ONE_CARD, {"GPU-gone": 12}, id="a lost card"),
    ],
)
def test_the_cards_are_read_in_order(annotations: dict[str, str], ask: Ask, expected: dict[str, int]) -> None:
    found = booked(annotations, ask, CARDS)
    assert (units(found), found.everywhere) == (expected, 0)
    assert [one.uuid for one in found.cards if one.lost] == [uuid for uuid in expected if uuid == "GPU-gone"]


@pytest.mark.parametrize(
    ("annotations", "ask"),
    [
        pytest.param({}, ONE_CARD, id="nothing"),
        pytest.param({names.MEM_IDX: "7", names.MEM_DEV: "16"}, ONE_CARD, id="an index that the node lacks"),
        pytest.param(written({7: 12}, uuids=False), ONE_CARD, id="an allocation to such an index"),
        pytest.param(written({0: 6, 1: 6}) | BROKEN, TWO_CARDS, id="broken, of two cards, with an index"),
        pytest.param(written({0: 5, 1: 5}), TWO_CARDS, id="of another sum, of two cards, with an index"),
        pytest.param(written({0: 12}) | BROKEN, Ask(12, 0), id="broken, of nobody knows how many cards"),
        pytest.param(
            without(names.ALLOCATION, written({0: 20})),
            Ask(20, 1),
            id="an index whose card is smaller than the request",
        ),
        pytest.param(written({0: 6, 1: 6}, by={0: "GPU-0"}), TWO_CARDS, id="a UUID for one of two cards"),
    ],
)
def test_otherwise_the_request_counts_against_every_card(annotations: dict[str, str], ask: Ask) -> None:
    found = booked(annotations, ask, CARDS)
    assert (found.cards, found.everywhere, found.blocks) == ((), ask.units, False)


@pytest.mark.parametrize(
    ("annotations", "unit", "expected"),
    [
        pytest.param(written({0: 3}), 256, 12, id="1024 to 256"),
        pytest.param(without(names.UNIT_MIB, written({0: 3})), 256, 12, id="1024 to 256, told from the card's size"),
        pytest.param(written({0: 3}, unit=1), 1024, 1, id="MiB to GiB, rounded up"),
        pytest.param(written({0: 3}, unit=1000), 1024, 3, id="an odd unit"),
        pytest.param(without(names.UNIT_MIB, written({0: 3}, device=16384)), 1024, 1, id="MiB, told"),
        pytest.param(without(names.UNIT_MIB, written({0: 3}, device=17)), 1024, 3, id="a driver that reserved less"),
        pytest.param({names.MEM_IDX: "0", names.MEM_DEV: "16"}, 256, 12, id="the legacy index, told"),
        pytest.param({names.MEM_IDX: "0", names.MEM_DEV: "16", names.UNIT_MIB: "x"}, 256, 12, id="a unit that is none"),
    ],
)
def test_another_unit_is_rescaled_and_rounded_up(annotations: dict[str, str], unit: int, expected: int) -> None:
    found = booked(annotations, Ask(3, 1), [card(0, unit=unit), card(1, unit=unit, mib=80 * GIB)], unit)
    assert units(found) == {"GPU-0": expected}
    assert [one.asked for one in found.cards] == [3]


@pytest.mark.parametrize(
    "annotations",
    [
        pytest.param({names.MEM_IDX: "0"}, id="an index alone"),
        pytest.param(without(names.UNIT_MIB, without(names.MEM_DEV, written({0: 3}))), id="an allocation alone"),
        pytest.param(without(names.UNIT_MIB, written({0: 3}, device=700)), id="a size that no unit gives"),
        pytest.param(without(names.UNIT_MIB, written({7: 3}, uuids=False)), id="no such card, and unequal cards"),
    ],
)
def test_a_number_whose_unit_is_not_known_blocks_every_card(annotations: dict[str, str]) -> None:
    found = booked(annotations, Ask(3, 1), [card(0), card(1, mib=80 * GIB)])
    assert (found.cards, found.blocks) == ((), True)
    assert "the size of its 3 units is unknown" in found.problem


def test_a_lost_card_of_an_unknown_unit_blocks_nobody() -> None:
    found = booked({**written({0: 3}, by={0: "GPU-x"}), names.UNIT_MIB: "", names.MEM_DEV: ""}, Ask(3, 1), CARDS)
    assert (units(found), found.blocks) == ({"GPU-x": 3}, False)


def test_a_node_of_totals_knows_its_cards_by_index() -> None:
    totals = [card(index, uuid=nameless(index)) for index in range(2)]
    assert units(booked(written({1: 12}), ONE_CARD, totals)) == {"#1": 12}


def test_a_pod_that_asks_nothing_is_nowhere() -> None:
    assert booked(written({0: 3}), Ask(0, 1), CARDS).cards == ()


@given(st.integers(0, 2**40), st.integers(1, 2**30), st.integers(1, 2**30))
def test_rescaled_units_are_never_less_memory(amount: int, from_mib: int, to_mib: int) -> None:
    there = rescaled(amount, from_mib, to_mib)
    assert amount * from_mib <= there * to_mib < amount * from_mib + to_mib


@given(st.sampled_from([1, 128, 256, 1000, 1024, 4096]), st.sampled_from([1, 256, 1024, 4096]), st.integers(2, 200))
def test_a_unit_that_is_told_is_never_too_small(own: int, of_node: int, gib: int) -> None:
    """Told from the size, a booking is as large as it is, or larger, where the unit is a usual one or the node's."""
    mib = gib * GIB
    announced = [card(0, mib=mib, unit=of_node)]
    asked = max(1, mib // own // 2)
    annotations = without(names.UNIT_MIB, written({0: asked}, device=mib // own))
    found = booked(annotations, Ask(asked, 1), announced, of_node)
    assert found.blocks or units(found)["GPU-0"] * of_node >= asked * own
