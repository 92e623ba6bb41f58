"""What is asked about a node without some of its pods leaves the tables as they are, whatever a rule does."""

import pytest

from scheduler.framework.what_if import Trial
from scheduler.state.amounts import RowsLeft
from scheduler.state.cards.booking import CardShare
from scheduler.state.ledger import of_tables
from scheduler.state.nominations import Nominations
from tests.support.builders import bound, cluster, engine, pod
from tests.support.placing import on_card
from tests.support.preempting import sought


def test_an_error_of_a_rule_in_a_trial_leaves_everybody_booked(monkeypatch: pytest.MonkeyPatch) -> None:
    built = engine(a=[16, 16])
    for card in (0, 1):
        built.pod_assigned(bound(pod(f"low-{card}", 16, priority=1), "a", on_card(card, 16)))
    before = of_tables(built.tables)
    asked = []

    def fails(trial: Trial) -> bool:
        asked.append(sorted(trial.lifted))
        raise ZeroDivisionError

    monkeypatch.setattr(Trial, "fits", fails)
    with pytest.raises(ZeroDivisionError):
        sought(built, pod("p", 16, priority=10))

    assert asked != []
    assert of_tables(built.tables) == before


def test_an_error_while_cards_are_looked_at_without_kept_places_leaves_them_kept(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    tables = cluster(a=[16])
    kept, left = Nominations(tables), RowsLeft(tables)
    kept.nominate(pod("p", 12, priority=5), "a", (CardShare(0, "GPU-a-0", 12),))
    before = of_tables(tables)

    def fails(_: RowsLeft, row: int) -> None:
        raise KeyError(of_tables(tables)["a"].free, row)

    monkeypatch.setattr(RowsLeft, "_cards", fails)
    with pytest.raises(KeyError, match="'GPU-a-0': 16"):
        left.cards(0)

    assert of_tables(tables) == before
    assert before["a"].free == {"GPU-a-0": 4}
