import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from config.settings import duration


@pytest.mark.parametrize(
    ("value", "seconds"),
    [
        ("4s", 4.0),
        ("500ms", 0.5),
        ("1m30s", 90.0),
        ("1h0m0.5s", 3600.5),
        ("250us", 0.00025),
        ("1.5h", 5400.0),
        (".5s", 0.5),
        pytest.param(4, 4.0, id="a number"),
        pytest.param(0.25, 0.25, id="part of a second"),
        pytest.param("4", 4.0, id="a number in the environment"),
        pytest.param("0", 0.0, id="nothing"),
    ],
)
def test_a_duration_is_gos_or_a_number_of_seconds(value: object, seconds: float) -> None:
    assert duration.seconds(value) == pytest.approx(seconds)


@pytest.mark.parametrize(
    "value",
    ["", "4 s", "s", "4y", "1m30", "-4s", "4s ", "٤s", "1e3s", "inf", -1, math.inf, math.nan, True, None, [4], 10**400],
)
def test_anything_else_is_refused_with_the_expected_form(value: object) -> None:
    with pytest.raises(ValueError, match="expected a duration such as 500ms"):
        duration.seconds(value)


@given(st.integers(0, 10**9))
def test_what_is_printed_is_read_back(millis: int) -> None:
    assert duration.seconds(duration.text(millis / 1000)) == pytest.approx(millis / 1000)


def test_the_largest_units_are_printed() -> None:
    assert [duration.text(s) for s in (0, 0.5, 4, 90, 3600)] == ["0s", "500ms", "4s", "1m30s", "1h"]
