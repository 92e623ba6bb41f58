"""Tables of single benchmarks: the figures are of what was measured, and each goal is judged at its bound."""

import pytest

from config.protocol import names
from e2e.bench import flood, full_start, long_backlog, requests, workload
from e2e.bench.flood import FloodRun
from e2e.bench.full_start import Start
from e2e.bench.long_backlog import LongBacklogFigures, Mark
from e2e.bench.probed import Holds
from e2e.bench.race import ledger
from e2e.bench.requests import RequestFigures
from e2e.bench.workload import Size

HOLDS = Holds(number=1000, longest=20.0, p99_9=2.0)


def long_backlog_of(last_fifth_s: float) -> LongBacklogFigures:
    """1,000 pods: the first four fifths in 1 s and 0.2 s of CPU each."""
    marks = [Mark(1, 0.0, 5.0), *(Mark(200 * n, float(n), 5.0 + 0.2 * n) for n in range(1, 5))]
    marks.append(Mark(1000, 4.0 + last_fifth_s, 6.0))
    return LongBacklogFigures(pods=1000, empty_mib=100.0, told_mib=105.0, peak_mib=150.0, marks=marks, holds=HOLDS)


@pytest.mark.parametrize(("last_fifth_s", "said"), [(1.0, "≥ 0.9, reached"), (1.2, "≥ 0.9, **missed**")])
def test_the_last_fifth_is_compared_with_the_first(last_fifth_s: float, said: str) -> None:
    rows = {label: (measured, goal) for label, measured, goal in long_backlog.rows(long_backlog_of(last_fifth_s))}

    assert rows["rate in the last fifth ÷ in the first"] == (f"{200 / last_fifth_s / 199:.2f}", said)


def test_memory_is_per_pod_that_waits() -> None:
    assert long_backlog_of(1.0).kib_per_pod == pytest.approx(5.12)


def test_cpu_is_of_the_fifth_alone() -> None:
    assert long_backlog_of(1.0).fifth(3) == pytest.approx((200.0, 1.0))


def test_a_start_is_judged_by_its_time_and_its_memory() -> None:
    rows = full_start.rows(Start(6.5, 7.0, 80.0), Start(0.0, 14.0, 100.0), Holds(1000, 51.0, 2.0))

    judged = [row[1:] for row in rows if row[2]]
    assert judged[:2] == [("6.5 s", "≤ 6 s, **missed**"), ("0.80", "≤ 0.8, reached")]
    assert judged[2:] == [("51.0 / 2.0", "≤ 50 / ≤ 20, **missed**")]
    assert rows[3][1] == "0.50"


def test_no_card_of_the_big_cluster_has_more_than_it_holds() -> None:
    size = Size(nodes=5, pods=50, templates=50)
    on_cards: dict[tuple[str, str], int] = {}
    for pod in full_start.running(size):
        marks = pod["metadata"]["annotations"]
        card = pod["spec"]["nodeName"], marks[names.MEM_IDX]
        on_cards[card] = on_cards.get(card, 0) + ledger.asked(pod)
        assert int(marks[names.MEM_POD]) == ledger.asked(pod)

    assert max(on_cards.values()) <= workload.UNITS_PER_CARD


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


def test_both_clients_are_measured_each_round() -> None:
    figures = requests.measure(requests=64, rounds=2)

    assert [len(rounds) for rounds in figures] == [2, 2]
    assert min(figures.aiohttp_us + figures.bare_us) > 0


@pytest.mark.parametrize(("bare_us", "said"), [(30.0, "≤ 0.3, reached"), (31.0, "≤ 0.3, **missed**")])
def test_the_ratio_is_of_the_medians(bare_us: float, said: str) -> None:
    figures = RequestFigures([100.0, 100.0, 900.0], [1.0, bare_us, 90.0])

    assert requests.rows(figures)[-1][1:] == (f"{bare_us / 100:.2f}", said)
