import pytest

from scheduler.queue.backoff import backoff_s


@pytest.mark.parametrize(
    ("attempts", "expected_s"),
    [
        pytest.param(0, 0.0, id="no failure, no wait"),
        pytest.param(1, 1.0, id="the first wait is the initial one"),
        pytest.param(2, 2.0, id="then it doubles"),
        pytest.param(4, 8.0, id="and doubles again"),
        pytest.param(5, 10.0, id="up to the maximum"),
        pytest.param(100_000, 10.0, id="however many fail"),
    ],
)
def test_the_back_off_doubles_up_to_its_maximum(attempts: int, expected_s: float) -> None:
    assert backoff_s(attempts, initial_s=1.0, max_s=10.0) == expected_s


def test_an_initial_back_off_above_the_maximum_is_the_maximum() -> None:
    assert backoff_s(1, initial_s=20.0, max_s=10.0) == 10.0
