"""Fake devices: how many, how large, which of them are unhealthy, and that a kubelet follows their list."""

import asyncio
import itertools
from collections import Counter
from collections.abc import Collection, Mapping, Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from config.protocol.inventory import Card
from deviceplugin.kubelet import device_ids
from deviceplugin.kubelet.device_ids import LARGEST_MESSAGE, TooManyDevices
from deviceplugin.kubelet.session import FakeDevices
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


def size_of(ids: Sequence[str]) -> int:
    return device_ids.message_bytes(Counter(len(name.encode()) for name in ids))


@given(st.lists(st.text(st.characters(codec="utf-8"), min_size=1, max_size=150), max_size=20))
def test_the_size_is_that_of_the_encoded_message(ids: list[str]) -> None:
    assert size_of(ids) == encoded_bytes(ids)


def test_mib_units_of_large_cards_are_refused_with_the_unit_that_fits() -> None:
    with pytest.raises(TooManyDevices) as refused:
        device_ids.check([80 * GIB] * 8, 1, old_style=False)
    assert str(refused.value) == (
        "8 cards of 81920 MiB at memoryUnitMiB 1 make 655360 devices, a message of 13.6 MiB; "
        "the kubelet accepts 4 MiB; memoryUnitMiB 4 would fit, "
        "but use 128 to 1024 (each device is an entry in pod status)"
    )


def test_each_kind_of_card_is_named() -> None:
    with pytest.raises(TooManyDevices, match=r"^1 card of 196608 MiB and 2 cards of 40960 MiB at memoryUnitMiB 1 make"):
        device_ids.check([40_960, 196_608, 40_960], 1, old_style=False)


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
    with pytest.raises(TooManyDevices, match=rf"memoryUnitMiB {fits} would fit"):
        device_ids.check([80 * GIB] * 8, fits // 2, old_style=old_style)


IDS = ("u0", "u1", "u2", "u3")


def listed(
    holders: Mapping[str, frozenset[str]],
    *,
    usable: int = 2,
    well: Collection[str] = "BC",
    before: frozenset[str] = frozenset(),
    ids: Sequence[str] = IDS,
) -> dict[str, bool]:
    """Four units, of which two are those of the unhealthy card A, where nothing else is said."""
    spare = (f"u{number}" for number in itertools.count(len(ids)))
    answer = device_ids.listed(ids, spare, usable, holders, well, before)
    assert len(dict(answer)) == len(answer)
    return dict(answer)


def unhealthy(answer: Mapping[str, bool]) -> set[str]:
    return {name for name, healthy in answer.items() if not healthy}


@pytest.mark.parametrize(
    ("holders", "expected"),
    [
        pytest.param({}, {"u2", "u3"}, id="all free: the last"),
        pytest.param({"u0": SICK}, {"u0", "u3"}, id="held on the unhealthy card, then free"),
        pytest.param({"u3": HEALTHY, "u0": SICK}, {"u0", "u2"}, id="not what a healthy card holds"),
        pytest.param({"u3": SICK | HEALTHY}, {"u1", "u2"}, id="not what both hold"),
        pytest.param({"u3": frozenset()}, {"u1", "u2"}, id="not what somebody holds whose card is not known"),
        pytest.param(dict.fromkeys(IDS[:3], HEALTHY), {"u3"}, id="fewer where there are not enough"),
        pytest.param(dict.fromkeys(IDS, HEALTHY), set[str](), id="none where every id is in use elsewhere"),
    ],
)
def test_the_units_of_an_unhealthy_card(holders: dict[str, frozenset[str]], expected: set[str]) -> None:
    answer = listed(holders)
    assert (unhealthy(answer), set(answer)) == (expected, set(IDS))


@pytest.mark.parametrize(
    ("holders", "expected"),
    [
        pytest.param({}, ["u0", "u1"], id="nobody holds one: as many as there are units"),
        pytest.param({"u9": HEALTHY}, ["u9", "u0"], id="a held one stays, a free one goes"),
        pytest.param({"u8": HEALTHY, "u9": HEALTHY, "u0": SICK}, ["u0", "u8", "u9"], id="more held than units: these"),
    ],
)
def test_only_free_ids_ever_vanish(holders: dict[str, frozenset[str]], expected: list[str]) -> None:
    assert listed(holders, usable=2, well="ABC", ids=("u0", "u1")) == dict.fromkeys(expected, True)


@pytest.mark.parametrize(("old_style", "expected"), [(False, ["u15", "u16"]), (True, [f"{UUID}1-_-3", f"{UUID}1-_-4"])])
def test_spare_ids_go_on_where_those_of_the_units_end(old_style: bool, expected: list[str]) -> None:  # noqa: FBT001
    spare = device_ids.spare_ids(cards(12, 3), old_style=old_style)
    assert list(itertools.islice(spare, 2)) == expected
    assert not set(expected) & set(device_ids.device_ids(cards(12, 3), old_style=old_style))


def test_there_are_no_spare_ids_without_cards() -> None:
    assert list(device_ids.spare_ids([], old_style=False)) == []


def test_free_ids_that_were_unhealthy_stay_so() -> None:
    assert unhealthy(listed({}, before=frozenset({"u0", "u1"}))) == {"u0", "u1"}


def test_an_id_that_a_container_of_the_unhealthy_card_lets_go_stays_unhealthy() -> None:
    before = unhealthy(listed({"u0": SICK, "u1": SICK}))
    assert unhealthy(listed({"u1": SICK}, before=frozenset(before))) == before == {"u0", "u1"}


NODE_IDS = tuple(f"u{number}" for number in range(12))
SOME_IDS = st.sets(st.sampled_from(NODE_IDS)).map(frozenset)
# Some are no longer among the ids of the units.
HELD_IDS = st.sampled_from([f"u{number}" for number in range(16)])
HOLDERS = st.dictionaries(HELD_IDS, st.sets(st.sampled_from(CARDS)).map(frozenset))
USABLE = st.integers(0, len(NODE_IDS))


def on_unhealthy(holders: Mapping[str, frozenset[str]]) -> set[str]:
    return {name for name, uuids in holders.items() if uuids == SICK}


@given(HOLDERS, USABLE, SOME_IDS)
def test_everything_held_is_listed_and_what_a_healthy_card_holds_is_healthy(
    holders: dict[str, frozenset[str]], usable: int, before: frozenset[str]
) -> None:
    answer = listed(holders, usable=usable, before=before, ids=NODE_IDS)
    assert {name for name in holders if not answer[name]} == on_unhealthy(holders)


@given(HOLDERS, USABLE, SOME_IDS)
def test_as_many_healthy_ids_are_free_as_units_are_left(
    holders: dict[str, frozenset[str]], usable: int, before: frozenset[str]
) -> None:
    answer = listed(holders, usable=usable, before=before, ids=NODE_IDS)
    free = [name for name, healthy in answer.items() if healthy and name not in holders]
    assert len(free) == max(0, usable - len(holders.keys() - on_unhealthy(holders)))
    assert len(answer) >= len(NODE_IDS)


@given(HOLDERS, USABLE, SOME_IDS)
def test_the_same_situation_keeps_the_same_answer(
    holders: dict[str, frozenset[str]], usable: int, before: frozenset[str]
) -> None:
    answer = listed(holders, usable=usable, before=before, ids=NODE_IDS)
    assert listed(holders, usable=usable, before=frozenset(unhealthy(answer)), ids=NODE_IDS) == answer


async def test_a_follower_gets_the_list_and_then_each_change() -> None:
    devices = FakeDevices()
    following = devices.follow()
    first = asyncio.ensure_future(anext(following))
    await asyncio.sleep(0)
    assert not first.done()
    devices.show((("u0", True),))
    assert await asyncio.wait_for(first, 5) == (("u0", True),)
    devices.show((("u0", False),))
    assert await asyncio.wait_for(anext(following), 5) == (("u0", False),)
    assert devices.now == (("u0", False),)


async def test_the_same_list_again_is_no_news() -> None:
    devices = FakeDevices()
    devices.show((("u0", True),))
    following = devices.follow()
    await anext(following)
    again = asyncio.ensure_future(anext(following))
    devices.show((("u0", True),))
    await asyncio.sleep(0)
    assert not again.done()
    devices.show(())
    assert await asyncio.wait_for(again, 5) == ()


async def test_the_list_is_sent_again_when_asked_for() -> None:
    devices = FakeDevices()
    devices.show((("u0", True),))
    following = devices.follow()
    await anext(following)
    devices.again()
    assert await asyncio.wait_for(anext(following), 5) == (("u0", True),)


async def test_a_follower_that_is_slow_gets_the_newest() -> None:
    devices = FakeDevices()
    devices.show((("u0", True),))
    following = devices.follow()
    await anext(following)
    devices.show((("u1", True),))
    devices.show((("u2", True),))
    assert await asyncio.wait_for(anext(following), 5) == (("u2", True),)
