"""The names on the wire and the allocation annotations: what is written is read, and no text does more than raise."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from config.protocol import allocation, names
from config.protocol.allocation import Allocation, AllocationError, LegacyFields

CONSTANTS = {key: value for key, value in vars(names).items() if key.isupper() and isinstance(value, str)}
QUALIFIED = re.compile(r"([a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?/)?[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?")
KEYS = {key: value for key, value in CONSTANTS.items() if key != "UNHEALTHY_PREFIX"}


@pytest.mark.parametrize("constant", sorted(KEYS))
def test_a_name_is_a_qualified_name_of_kubernetes(constant: str) -> None:
    assert QUALIFIED.fullmatch(KEYS[constant])


def test_no_two_things_have_the_same_name() -> None:
    assert sorted(set(CONSTANTS.values())) == sorted(CONSTANTS.values())


indexes = st.integers(0, 2**31 - 1)
shares = st.dictionaries(indexes, st.dictionaries(indexes, indexes, min_size=1, max_size=4), max_size=4)
legacy = st.builds(LegacyFields, *[st.integers(0, 2**62)] * 3)
uuids = st.text(min_size=1, max_size=40)


@given(
    st.builds(
        Allocation, shares.filter(bool), shares, st.dictionaries(indexes, uuids, max_size=4), st.integers(1, 2**30)
    ),
    legacy,
)
def test_what_is_written_is_what_is_read(given_: Allocation, fields: LegacyFields) -> None:
    annotations = allocation.encode(given_, fields)

    assert allocation.decode(annotations) == given_
    assert set(annotations) == set(names.ALLOCATION_KEYS)
    assert allocation.legacy_index(annotations) == given_.card_indexes()[0]


def test_a_binding_carries_the_annotations_of_the_legacy_tools() -> None:
    one = Allocation({0: {1: 3}}, {}, {1: "GPU-b"}, 1024)

    assert allocation.encode(
        one, LegacyFields(pod_units=3, device_units=16, assume_time_ns=1_700_000_000_000_000_000)
    ) == {
        "scheduler.framework.gpushare.allocation": '{"0":{"1":3}}',
        "gpushare/init-allocation": "{}",
        "gpushare/cards": '{"1":"GPU-b"}',
        "gpushare/unit-mib": "1024",
        "ALIYUN_COM_GPU_MEM_IDX": "1",
        "ALIYUN_COM_GPU_MEM_POD": "3",
        "ALIYUN_COM_GPU_MEM_DEV": "16",
        "ALIYUN_COM_GPU_MEM_ASSIGNED": "false",
        "ALIYUN_COM_GPU_MEM_ASSUME_TIME": "1700000000000000000",
    }


def test_a_pod_without_the_annotation_has_no_allocation() -> None:
    assert allocation.decode({names.CARDS: '{"0":"GPU-a"}'}) is None


def test_indexes_alone_are_an_allocation_without_uuids() -> None:
    assert allocation.decode({names.ALLOCATION: '{"0":{"0":4,"1":4}}'}) == Allocation({0: {0: 4, 1: 4}}, {}, {})


@pytest.mark.parametrize(
    ("key", "text", "complaint"),
    [
        pytest.param(names.ALLOCATION, "{", "truncated", id="broken"),
        pytest.param(names.ALLOCATION, "[]", "got `array`", id="a list"),
        pytest.param(names.ALLOCATION, '{"0":[1]}', "got `array`", id="a list of cards"),
        pytest.param(names.ALLOCATION, '{"a":{"0":1}}', "got `str`", id="a container by name"),
        pytest.param(names.ALLOCATION, '{"0":{"0":-1}}', ">= 0", id="negative units"),
        pytest.param(names.ALLOCATION, '{"0":{"0":1.5}}', "got `float`", id="half a unit"),
        pytest.param(names.ALLOCATION, '{"0":{"0":true}}', "got `bool`", id="a flag"),
        pytest.param(names.ALLOCATION, '{"0":{"0":2147483648}}', "<= 2147483647", id="absurd units"),
        pytest.param(names.ALLOCATION, '{"0":{"²":1}}', "got `str`", id="a superscript"),
        pytest.param(names.ALLOCATION, "[" * 60_000, "cannot be read", id="too deep"),
        pytest.param(names.ALLOCATION, "9" * 60_000, "cannot be read", id="too many digits"),
        pytest.param(names.ALLOCATION, " " * 1_048_576, "has 1048576 characters", id="1 MiB"),
        pytest.param(names.INIT_ALLOCATION, "null", "got `null`", id="null for init containers"),
        pytest.param(names.CARDS, '{"0":""}', "length >= 1", id="an empty UUID"),
        pytest.param(names.CARDS, '{"0":7}', "got `int`", id="a UUID that is a number"),
    ],
)
def test_an_annotation_that_breaks_a_rule_is_refused_by_name(key: str, text: str, complaint: str) -> None:
    with pytest.raises(AllocationError, match=complaint) as caught:
        allocation.decode({names.ALLOCATION: "{}", key: text})
    assert key in str(caught.value)


@pytest.mark.parametrize(
    ("text", "index"),
    [
        ("0", 0),
        ("12", 12),
        ("2147483647", 2**31 - 1),
        pytest.param("2147483648", None, id="more than a card index can be"),
        pytest.param("9999999999", None, id="ten digits"),
        pytest.param("", None, id="empty"),
        pytest.param("-1", None, id="what the legacy plugin writes on failure"),
        pytest.param("no-gpu", None, id="a word"),
        pytest.param("٣", None, id="Arabic three"),
    ],
)
def test_the_legacy_index_is_a_card_index_or_nothing(text: str, index: int | None) -> None:
    assert allocation.legacy_index({names.MEM_IDX: text}) == index
    assert allocation.legacy_index({}) is None


@pytest.mark.parametrize(
    ("text", "unit_mib"),
    [
        ("1", 1),
        ("1073741824", 2**30),
        pytest.param("1073741825", 0, id="more than a unit can be"),
        pytest.param("0", 0, id="no unit"),
        pytest.param("1Gi", 0, id="a quantity"),
        pytest.param("", 0, id="empty"),
    ],
)
def test_the_unit_is_mib_in_plain_digits_or_not_said(text: str, unit_mib: int) -> None:
    assert allocation.unit_mib({names.UNIT_MIB: text}) == unit_mib
    assert allocation.unit_mib({}) == 0
