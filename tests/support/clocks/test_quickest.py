import pytest

from tests.support.clocks.quickest import quickest


@pytest.mark.parametrize(
    ("turns_s", "least_s", "taken"),
    [
        pytest.param([0.5], 0.5, 1, id="in time at once"),
        pytest.param([3.0, 0.5], 0.5, 2, id="one turn stalled"),
        pytest.param([3.0, 2.5, 2.8], 2.5, 3, id="too slow in each"),
    ],
)
async def test_the_first_turn_in_time_is_the_last_of_three(turns_s: list[float], least_s: float, taken: int) -> None:
    asked: list[int] = []

    async def took_s(turn: int) -> float:
        asked.append(turn)
        return turns_s[turn]

    assert await quickest(took_s, 1.0) == least_s
    assert asked == list(range(taken))
