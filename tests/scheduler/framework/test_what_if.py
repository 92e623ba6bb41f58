"""What is asked about a node without some of its pods leaves the tables as they are, whatever a rule does."""

import pytest

from scheduler.framework.what_if import RowMemo, Trial
from scheduler.state.amounts import AvailableOnRows
from scheduler.state.cards.booking import CardShare
from scheduler.state.changes import Change
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
    kept, left = Nominations(tables), AvailableOnRows(tables)
    kept.nominate(pod("p", 12, priority=5), "a", (CardShare(0, "GPU-a-0", 12),))
    before = of_tables(tables)

    def fails(_: AvailableOnRows, row: int) -> None:
        raise KeyError(of_tables(tables)["a"].free, row)

    monkeypatch.setattr(AvailableOnRows, "_cards", fails)
    with pytest.raises(KeyError, match="'GPU-a-0': 16"):
        left.cards(0)

    assert of_tables(tables) == before
    assert before["a"].free == {"GPU-a-0": 4}


def test_kept_places_of_lower_priority_that_a_search_looks_behind_are_kept_after_it() -> None:
    built = engine(a=[], b=[])
    # None of them is taken out for the pod as a whole, where it lacks something even without them.
    built.nominations.most_moved = 0
    built.pod_assigned(bound(pod("low", requests={"cpu": "30"}, priority=2), "a"))
    built.pod_assigned(bound(pod("lower", requests={"cpu": "60"}, priority=1), "b"))
    built.nominations.nominate(pod("middle", requests={"cpu": "30"}, priority=5), "a", None)
    lowest = pod("lowest", requests={"cpu": "1"})
    with built.nominations.seen_by(lowest):
        before = built.tables.resources.requested[:, 0].tolist()

    found = sought(built, pod("urgent", requests={"cpu": "60"}, priority=10))

    assert found.preemption is not None
    assert found.preemption.node == "b"
    with built.nominations.seen_by(lowest):
        assert built.tables.resources.requested[:, 0].tolist() == before


def test_what_was_worked_out_of_rows_is_forgotten_as_they_change() -> None:
    tables = cluster(a=[16], b=[16], c=[16])
    memo = RowMemo(tables)
    memo.of("p").update({0: "a", 1: "b", 2: "c"})
    assert memo.of("q") == {}

    for changes in (1, 3000, 4096):
        for _ in range(changes):
            tables.changes.note(1, int(Change.PODS))
        assert memo.of("p") == {0: "a", 2: "c"}
        memo.of("p")[1] = "b"
    for _ in range(4097):
        tables.changes.note(1, int(Change.PODS))
    assert memo.of("p") == {}


def test_what_is_kept_of_rows_has_a_limit() -> None:
    memo = RowMemo(cluster(a=[16]))
    for number in range(8):
        memo.of(number).update(dict.fromkeys(range(1024)))

    assert [len(memo.of(number)) for number in reversed(range(8))] == [1024, 1024, 1024, 1024, 0, 0, 0, 0]
