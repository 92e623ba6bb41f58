"""Amounts: quantities against Decimal arithmetic, and the container formula against a plain reading of it."""

from decimal import ROUND_UP, Context, Decimal

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from config.protocol import quantity
from config.protocol.container_formula import ContainerKind, init_kind, peak_amounts

SUFFIXES = {
    "": Decimal(1),
    "n": Decimal("1e-9"),
    "u": Decimal("1e-6"),
    "m": Decimal("1e-3"),
    "k": Decimal("1e3"),
    "M": Decimal("1e6"),
    "G": Decimal("1e9"),
    "T": Decimal("1e12"),
    "P": Decimal("1e15"),
    "E": Decimal("1e18"),
    "Ki": Decimal(1024),
    "Mi": Decimal(1024) ** 2,
    "Gi": Decimal(1024) ** 3,
    "Ti": Decimal(1024) ** 4,
    "Pi": Decimal(1024) ** 5,
    "Ei": Decimal(1024) ** 6,
} | {f"{e}{n}": Decimal(f"1e{n}") for e in "eE" for n in range(-12, 13)}

EXACT = Context(prec=200)
numbers = st.from_regex(r"[+-]?([0-9]{1,12}(\.[0-9]{0,9})?|\.[0-9]{1,9})", fullmatch=True, alphabet="0123456789+-.")


def expected(number: str, suffix: str, scale: int) -> int:
    """Rounded away from zero, and no further from it than an int64 goes."""
    exact = EXACT.multiply(EXACT.multiply(Decimal(number), SUFFIXES[suffix]), Decimal(scale))
    rounded = int(exact.to_integral_value(ROUND_UP, EXACT))
    return max(-quantity.MAX_INT64, min(quantity.MAX_INT64, rounded))


@given(numbers, st.sampled_from(sorted(SUFFIXES)))
@example("-0.5", "")
@example("9223372036854775807", "")
@example("1", "Ei")
@example("8", "Ei")
@example("-1", "n")
def test_a_quantity_is_its_number_times_its_suffix_rounded_away_from_zero(number: str, suffix: str) -> None:
    assert quantity.whole(number + suffix) == expected(number, suffix, 1)
    assert quantity.milli(number + suffix) == expected(number, suffix, 1000)


@pytest.mark.parametrize(
    ("text", "whole", "milli"),
    [
        pytest.param("1k", 1000, 1_000_000, id="the form in which the API server prints 1000"),
        pytest.param("2Gi", 2**31, 2**31 * 1000, id="binary"),
        pytest.param("500m", 1, 500, id="a part counts as one"),
        pytest.param("1e3", 1000, 1_000_000, id="exponent"),
        pytest.param("1E3", 1000, 1_000_000, id="capital exponent"),
        pytest.param("1E", 10**18, 2**63 - 1, id="exa, clamped in thousandths"),
        pytest.param("0", 0, 0, id="zero"),
        pytest.param("-0", 0, 0, id="negative zero"),
        pytest.param("1.", 1, 1000, id="a point at the end, which Kubernetes takes"),
        pytest.param(".5Gi", 2**29, 2**29 * 1000, id="a point at the start"),
        pytest.param("1e+16", 10**16, 2**63 - 1, id="as Python prints a float"),
    ],
)
def test_known_quantities(text: str, whole: int, milli: int) -> None:
    assert (quantity.whole(text), quantity.milli(text)) == (whole, milli)


@pytest.mark.parametrize(
    "text",
    [
        *("", " 1", "1 ", "1 Gi", "1\n", ".", "+", "-", "1e", "e3", "1Ki5", "1gi", "1KI", "0x10", "1_000", "1,5"),
        *("nan", "inf", "1e99999", "9" * 65),
        pytest.param("٣", id="Arabic three"),
        pytest.param("1٣Gi", id="Arabic three in a number"),
    ],
)
def test_what_kubernetes_would_not_parse_is_not_a_quantity(text: str) -> None:
    with pytest.raises(quantity.QuantityError, match="is not a quantity"):
        quantity.whole(text)


@given(st.text(max_size=80))
def test_any_text_is_a_quantity_or_a_quantity_error(text: str) -> None:
    try:
        amount = quantity.whole(text)
    except quantity.QuantityError:
        return
    assert abs(amount) <= quantity.MAX_INT64


INIT, SIDECAR, APP = ContainerKind.INIT, ContainerKind.SIDECAR, ContainerKind.APP


@pytest.mark.parametrize(
    ("containers", "peak"),
    [
        pytest.param([], {}, id="no container"),
        pytest.param([({}, APP)], {}, id="nothing asked"),
        pytest.param([({"a": 0}, INIT), ({"a": 0}, APP)], {}, id="nothing is left out"),
        pytest.param([({"a": 1}, APP), ({"a": 2}, APP)], {"a": 3}, id="apps add up"),
        pytest.param([({"a": 3}, INIT), ({"a": 1}, APP)], {"a": 3}, id="a larger init container"),
        pytest.param([({"a": 3}, INIT), ({"a": 2}, APP), ({"a": 2}, APP)], {"a": 4}, id="a smaller init container"),
        pytest.param([({"a": 3}, INIT), ({"a": 2}, INIT), ({"a": 1}, APP)], {"a": 3}, id="inits one after the other"),
        pytest.param([({"a": 2}, SIDECAR), ({"a": 1}, APP)], {"a": 3}, id="a sidecar runs beside the apps"),
        pytest.param([({"a": 2}, SIDECAR), ({"a": 4}, INIT), ({"a": 1}, APP)], {"a": 6}, id="beside later inits"),
        pytest.param([({"a": 4}, INIT), ({"a": 2}, SIDECAR), ({"a": 1}, APP)], {"a": 4}, id="not beside earlier ones"),
        pytest.param([({"a": 2}, INIT), ({"b": 2}, APP)], {"a": 2, "b": 2}, id="each key alone"),
        pytest.param([({0: 1}, SIDECAR), ({1: 5}, INIT), ({0: 1}, APP)], {0: 2, 1: 5}, id="cards as keys"),
    ],
)
def test_the_peak_of_a_pods_life(containers: list[tuple[dict[str, int], ContainerKind]], peak: dict[str, int]) -> None:
    assert peak_amounts(containers) == peak


def test_an_init_container_that_always_restarts_is_a_sidecar() -> None:
    assert [init_kind(policy) for policy in ("Always", "", "OnFailure")] == [SIDECAR, INIT, INIT]


amounts = st.dictionaries(st.sampled_from("ab"), st.integers(0, 9))


@given(st.lists(st.tuples(amounts, st.sampled_from([INIT, SIDECAR]))), st.lists(amounts))
def test_it_is_the_larger_of_the_end_and_each_start(
    init: list[tuple[dict[str, int], ContainerKind]], apps: list[dict[str, int]]
) -> None:
    for key in "ab":
        lasting = [(own.get(key, 0), kind is SIDECAR) for own, kind in init]
        starts = [sum(own for own, stays in lasting[:i] if stays) + lasting[i][0] for i in range(len(lasting))]
        end = sum(own for own, stays in lasting if stays) + sum(own.get(key, 0) for own in apps)
        found = peak_amounts([*init, *((own, APP) for own in apps)])
        assert found.get(key, 0) == max([end, *starts])
