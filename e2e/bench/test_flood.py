"""What the benchmark beside a flood says is so."""

from e2e.bench import flood
from e2e.bench.flood import FloodRun


def test_rates_are_compared_and_the_longest_renewal_is_told() -> None:
    shielded = FloodRun(pods_per_s=300.0, renewal_s=2.3, lost=0, lists=4.0, refused=0)
    bare = FloodRun(pods_per_s=100.0, renewal_s=9.0, lost=1, lists=5.0, refused=12)

    rows = {label: cells for label, *cells in flood.rows(shielded, bare)}

    assert rows["with ÷ without"] == ["3.00", ""]
    assert rows["longest time between two renewals of the Lease, s"] == ["2.3", "9.0"]
    assert rows["Lease lost"] == ["0", "1"]


def test_the_longest_pause_is_between_two_different_times() -> None:
    renewed = ["2026-01-01T00:00:00.000000Z", "2026-01-01T00:00:02.000000Z", "2026-01-01T00:00:02.000000Z"]

    assert flood.longest_pause_s([*renewed, "2026-01-01T00:00:05.500000Z"]) == 3.5
    assert flood.longest_pause_s(renewed[:1]) == 0.0
