"""Tables of single benchmarks: the figures are of what was measured, and each goal is judged at its bound."""

import pytest

from config.protocol import names
from e2e.bench import full_start, long_backlog, workload
from e2e.bench.full_start import Start
from e2e.bench.long_backlog import LongBacklogFigures, Mark
from e2e.bench.probed import Holds
from e2e.bench.race import ledger
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
