"""What pods usually ask: the newer counts more, and what is rare is forgotten first."""

import pytest

from config.protocol import names
from scheduler.pods.gpu_request import Selection
from scheduler.state.packing.requests_seen import MOST_MODELS, MOST_SHAPES, RequestsSeen, Shape, is_learned
from tests.support.builders import pod

HOUR_S = 3_600.0
SMALL, LARGE = Shape(1_000, 1, 2), Shape(4_000, 1, 8)


def seen(*came: tuple[Shape, float]) -> RequestsSeen:
    requests = RequestsSeen(HOUR_S)
    for shape, came_s in came:
        requests.note(shape, came_s)
    return requests


def test_a_shape_is_what_decides_where_a_pod_can_go() -> None:
    models = Selection(frozenset({"T4"}))
    asks = pod("p", 6, labels={"aliyun.com/gpu-count": "2"}, annotations={"gpushare/card-models": "T4"})

    assert Shape.of(asks) == Shape(0, 2, 3, models)
    assert Shape.of(pod("p", requests={"cpu": "1500m"})) == Shape(1_500)


@pytest.mark.parametrize(
    ("models", "expected"),
    [
        pytest.param("", True, id="any model"),
        pytest.param(",".join(f"m{number}" for number in range(MOST_MODELS)), True, id="as many as are kept"),
        pytest.param(",".join(f"m{number}" for number in range(MOST_MODELS + 1)), False, id="one more"),
        pytest.param(",".join(f"!m{number}" for number in range(MOST_MODELS + 1)), False, id="that are excluded"),
        pytest.param("m" * 1_025, False, id="a name that is no name"),
    ],
)
def test_whoever_names_many_models_is_not_learned(models: str, *, expected: bool) -> None:
    """A thousand of them are sorted by names, on the event loop."""
    assert is_learned(pod("p", 4, annotations={names.CARD_MODELS: models})) == expected


def test_who_asks_no_memory_is_not_learned() -> None:
    assert not is_learned(pod("p", 0))


def test_shares_are_of_those_that_came() -> None:
    assert seen((SMALL, 0.0), (LARGE, 0.0), (SMALL, 0.0)).shares(9) == [(SMALL, 2 / 3), (LARGE, 1 / 3)]


def test_a_request_counts_half_after_its_half_life() -> None:
    assert seen((SMALL, 0.0), (LARGE, HOUR_S)).shares(9) == [(LARGE, 2 / 3), (SMALL, 1 / 3)]


def test_what_was_there_before_the_first_counts_less_too() -> None:
    assert seen((LARGE, HOUR_S), (SMALL, 0.0)).shares(9) == [(LARGE, 2 / 3), (SMALL, 1 / 3)]


@pytest.mark.parametrize("years", [1, 100])
def test_years_later_nothing_has_grown_too_large(years: int) -> None:
    later_s = years * 365 * 24 * HOUR_S
    requests = seen((SMALL, 0.0), (LARGE, later_s), (LARGE, later_s), (SMALL, later_s))

    assert requests.shares(9) == [(LARGE, 2 / 3), (SMALL, 1 / 3)]


def test_nothing_is_known_before_somebody_came() -> None:
    assert seen().shares(9) == []


def test_those_that_count_least_are_forgotten() -> None:
    requests = seen(*((Shape(cpu, 1, 1), float(cpu)) for cpu in range(3 * MOST_SHAPES)))
    for _ in range(9):
        requests.note(SMALL, 3.0 * MOST_SHAPES)

    kept = requests.heaviest(2 * MOST_SHAPES)
    assert kept[0][0] == SMALL
    assert len(kept) <= MOST_SHAPES
    assert Shape(0, 1, 1) not in dict(kept)
