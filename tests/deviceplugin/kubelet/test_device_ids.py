"""Fake devices: how many, how large, and which of them are unhealthy."""

from collections import Counter
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from config.protocol.inventory import Card
from deviceplugin.kubelet import device_ids
from deviceplugin.kubelet.device_ids import LARGEST_MESSAGE, TooManyDevices
from deviceplugin.kubelet.v1beta1 import deviceplugin_pb2 as wire

GIB = 1024
UUID = "GPU-01234567-89ab-cdef-0123-456789abcde"  # and one digit
SICK, HEALTHY = frozenset({"A"}), frozenset({"B"})
CARDS = ("A", "B", "C")


def cards(*units: int) -> list[Card]:
    return [
        Card(index=index, uuid=f"{UUID}{index}", model="M", memory_mib=n * GIB, units=n)
        for index, n in enumerate(units)
    ]


def encoded_bytes(ids: Sequence[str]) -> int:
    devices = [wire.Device(ID=name, health="Unhealthy") for name in ids]
    return wire.ListAndWatchResponse(devices=devices).ByteSize()


@pytest.mark.parametrize(
    ("units", "old_style", "ids"),
    [
        pytest.param((2, 1), False, ("u0", "u1", "u2"), id="short"),
        pytest.param((2, 1), True, (f"{UUID}0-_-0", f"{UUID}0-_-1", f"{UUID}1-_-0"), id="old style"),
        pytest.param((0, 1), True, (f"{UUID}1-_-0",), id="a card without units has none"),
        pytest.param((0,), False, (), id="no units, no ids"),
        pytest.param((), True, (), id="no cards"),
    ],
)
def test_every_unit_has_an_id(units: tuple[int, ...], old_style: bool, ids: tuple[str, ...]) -> None:  # noqa: FBT001
    assert device_ids.device_ids(cards(*units), old_style=old_style) == ids


def test_short_ids_stay_when_cards_change_and_the_total_does_not() -> None:
    assert device_ids.device_ids(cards(3, 9), old_style=False) == device_ids.device_ids(cards(8, 4), old_style=False)


@pytest.mark.parametrize("old_style", [False, True])
def test_no_two_units_share_an_id(old_style: bool) -> None:  # noqa: FBT001
    ids = device_ids.device_ids(cards(12, 0, 110), old_style=old_style)
    assert len(set(ids)) == len(ids) == 122


def size_of(ids: Sequence[str]) -> int:
    return device_ids.message_bytes(Counter(len(name.encode()) for name in ids))


@given(st.lists(st.text(st.characters(codec="utf-8"), min_size=1, max_size=150), max_size=20))
def test_the_size_is_that_of_the_encoded_message(ids: list[str]) -> None:
    assert size_of(ids) == encoded_bytes(ids)


def test_the_largest_number_of_devices_is_what_a_message_holds() -> None:
    ids = [f"d{number:019}" for number in range(127_000)]
    assert size_of(ids) == 35 * 127_000
    assert size_of(ids[:119_837]) <= LARGEST_MESSAGE < size_of(ids[:119_838])


def test_mib_units_of_large_cards_are_refused_with_the_unit_that_fits() -> None:
    with pytest.raises(TooManyDevices) as refused:
        device_ids.check([80 * GIB] * 8, 1, old_style=False)
    assert str(refused.value) == (
        "8 cards of 81920 MiB at memoryUnitMiB 1 make 655360 devices, a message of 13.6 MiB; "
        "the kubelet accepts 4 MiB; memoryUnitMiB 4 fits; use 128 to 1024 (each device is an entry in pod status)"
    )


def test_each_kind_of_card_is_named() -> None:
    with pytest.raises(TooManyDevices, match=r"^1 card of 196608 MiB and 2 cards of 40960 MiB at memoryUnitMiB 1 make"):
        device_ids.check([40_960, 196_608, 40_960], 1, old_style=False)


@pytest.mark.parametrize("old_style", [False, True])
@pytest.mark.parametrize("unit_mib", [128, 1024])
def test_the_advised_units_fit(unit_mib: int, old_style: bool) -> None:  # noqa: FBT001
    device_ids.check([80 * GIB] * 8, unit_mib, old_style=old_style)


def test_cards_without_memory_make_no_devices() -> None:
    device_ids.check([0, 0], 1, old_style=True)


@pytest.mark.parametrize(
    ("fits", "old_style"),
    [pytest.param(195_700, False, id="short"), pytest.param(66_962, True, id="old style")],
)
def test_one_unit_more_than_a_message_holds_is_refused(fits: int, old_style: bool) -> None:  # noqa: FBT001
    memory_mib = [7 * 20_000, 7 * 1_000 + 6, 7 * (fits - 21_000)]
    ids = device_ids.device_ids(cards(20_000, 1_000, fits - 21_000), old_style=old_style)
    assert size_of(ids) <= LARGEST_MESSAGE
    device_ids.check(memory_mib, 7, old_style=old_style)
    with pytest.raises(TooManyDevices):
        device_ids.check([*memory_mib, 7], 7, old_style=old_style)


@pytest.mark.parametrize("old_style", [False, True])
def test_the_unit_that_is_advised_fits_and_half_of_it_does_not(old_style: bool) -> None:  # noqa: FBT001
    fits = 16 if old_style else 4
    device_ids.check([80 * GIB] * 8, fits, old_style=old_style)
    with pytest.raises(TooManyDevices, match=rf"memoryUnitMiB {fits} fits"):
        device_ids.check([80 * GIB] * 8, fits // 2, old_style=old_style)


IDS = ("u0", "u1", "u2", "u3")


@pytest.mark.parametrize(
    ("holders", "unhealthy"),
    [
        pytest.param({}, {"u0", "u1"}, id="all free: the first"),
        pytest.param({"u3": SICK}, {"u3", "u0"}, id="held on the unhealthy card, then free"),
        pytest.param({"u0": HEALTHY, "u3": SICK}, {"u3", "u1"}, id="not what a healthy card holds"),
        pytest.param({"u0": SICK | HEALTHY}, {"u1", "u2"}, id="not what both hold"),
        pytest.param({"u0": frozenset()}, {"u1", "u2"}, id="not what somebody holds whose card is not known"),
        pytest.param(dict.fromkeys(IDS[:3], HEALTHY), {"u3"}, id="fewer where there are not enough"),
        pytest.param(dict.fromkeys(IDS, HEALTHY), set[str](), id="none where every id is in use elsewhere"),
        pytest.param(dict.fromkeys(IDS, SICK), {"u0", "u1"}, id="no more than the card has"),
        pytest.param({"gone": SICK}, {"u0", "u1"}, id="an id that is not listed any more does not count"),
    ],
)
def test_the_units_of_an_unhealthy_card(holders: dict[str, frozenset[str]], unhealthy: set[str]) -> None:
    assert device_ids.unhealthy(IDS, {"A": 2}, holders) == unhealthy


def test_no_card_is_unhealthy_and_no_id_unhealthy() -> None:
    assert device_ids.unhealthy(IDS, {}, {"u0": SICK}, frozenset({"u1"})) == frozenset()


def test_the_units_of_two_unhealthy_cards_add_up() -> None:
    holders = {"u0": frozenset({"C"}), "u2": frozenset({"A", "B"})}
    assert device_ids.unhealthy(IDS, {"A": 1, "B": 1}, holders) == {"u2", "u1"}


def test_free_ids_that_were_unhealthy_stay_so() -> None:
    assert device_ids.unhealthy(IDS, {"A": 2}, {}, frozenset({"u2", "u3"})) == {"u2", "u3"}


def test_an_id_that_a_container_of_the_unhealthy_card_lets_go_stays_unhealthy() -> None:
    before = device_ids.unhealthy(IDS, {"A": 2}, {"u2": SICK, "u3": SICK})
    assert device_ids.unhealthy(IDS, {"A": 2}, {"u2": SICK}, before) == before == {"u2", "u3"}


def test_an_id_that_was_unhealthy_is_healthy_again_once_a_healthy_card_holds_it() -> None:
    assert device_ids.unhealthy(IDS, {"A": 1}, {"u0": HEALTHY}, frozenset({"u0"})) == {"u1"}


NODE_IDS = tuple(f"u{number}" for number in range(12))
SOME_IDS = st.sets(st.sampled_from(NODE_IDS)).map(frozenset)
HOLDERS = st.dictionaries(st.sampled_from(NODE_IDS), st.sets(st.sampled_from(CARDS)).map(frozenset))
SICK_UNITS = st.dictionaries(st.sampled_from(CARDS), st.integers(0, 6))


@given(SICK_UNITS, HOLDERS, SOME_IDS)
def test_nobody_on_a_healthy_card_ever_holds_an_unhealthy_id(
    unhealthy: dict[str, int], holders: dict[str, frozenset[str]], before: frozenset[str]
) -> None:
    held = [holders[name] for name in device_ids.unhealthy(NODE_IDS, unhealthy, holders, before) if name in holders]
    assert all(uuids and uuids <= unhealthy.keys() for uuids in held)


@given(SICK_UNITS, HOLDERS, SOME_IDS)
def test_as_many_ids_are_unhealthy_as_units_unless_that_would_harm_a_pod(
    unhealthy: dict[str, int], holders: dict[str, frozenset[str]], before: frozenset[str]
) -> None:
    harmless = [
        name for name in NODE_IDS if name not in holders or (holders[name] and holders[name] <= unhealthy.keys())
    ]
    answer = device_ids.unhealthy(NODE_IDS, unhealthy, holders, before)
    assert len(answer) == min(sum(unhealthy.values()), len(harmless))


@given(SICK_UNITS, HOLDERS, SOME_IDS)
def test_free_ids_turn_unhealthy_last(
    unhealthy: dict[str, int], holders: dict[str, frozenset[str]], before: frozenset[str]
) -> None:
    answer = device_ids.unhealthy(NODE_IDS, unhealthy, holders, before)
    if any(name not in holders for name in answer):
        assert {name for name in holders if holders[name] and holders[name] <= unhealthy.keys()} <= answer
    if any(name not in holders and name not in before for name in answer):
        assert before - holders.keys() <= answer


@given(SICK_UNITS, HOLDERS, SOME_IDS)
def test_the_same_situation_keeps_the_same_answer(
    unhealthy: dict[str, int], holders: dict[str, frozenset[str]], before: frozenset[str]
) -> None:
    answer = device_ids.unhealthy(NODE_IDS, unhealthy, holders, before)
    assert device_ids.unhealthy(NODE_IDS, unhealthy, holders, answer) == answer


def test_the_list_says_of_every_id_whether_it_is_healthy() -> None:
    assert device_ids.listed(("u0", "u1"), frozenset({"u1", "gone"})) == (("u0", True), ("u1", False))
