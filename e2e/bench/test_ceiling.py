"""What the benchmarks of a start and beside bare Binding POSTs say is so."""

import pytest

from config.protocol import names
from e2e.bench import ceiling, full_start, ledger, workload
from e2e.bench.full_start import Start
from e2e.bench.probed import Holds
from e2e.bench.workload import Size


@pytest.mark.parametrize(("ours", "said"), [(85.0, "≥ 0.85, reached"), (84.0, "≥ 0.85, **missed**")])
def test_the_rate_is_compared_with_that_of_bare_bindings(ours: float, said: str) -> None:
    rows = ceiling.rows(Size(1, 1, 1), [1.0, ours, 900.0], [100.0, 100.0, 100.0])

    assert rows[-1][1:] == (f"{ours / 100:.2f}", said)


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
