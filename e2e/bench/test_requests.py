"""The benchmark of a bind request measures both clients, and what it says of a ratio is so."""

import pytest

from e2e.bench import requests
from e2e.bench.requests import RequestFigures


def test_both_clients_are_measured_each_round() -> None:
    figures = requests.measure(requests=64, rounds=2)

    assert [len(rounds) for rounds in figures] == [2, 2]
    assert min(figures.aiohttp_us + figures.bare_us) > 0


@pytest.mark.parametrize(("bare_us", "said"), [(30.0, "≤ 0.3, reached"), (31.0, "≤ 0.3, **missed**")])
def test_the_ratio_is_of_the_medians(bare_us: float, said: str) -> None:
    figures = RequestFigures([100.0, 100.0, 900.0], [1.0, bare_us, 90.0])

    assert requests.rows(figures)[-1][1:] == (f"{bare_us / 100:.2f}", said)
