"""What-if queries to an engine in use leave nothing behind and wake no pod, whatever a rule does."""

import random
from typing import Any

import pytest

from config.protocol import names
from scheduler.core.engine import Engine
from scheduler.core.scheduling_cycle import Placement, SchedulingCycle
from scheduler.core.what_if_queries import WhatIfQueries
from scheduler.framework.plugin import PermitPlugin, PermitResult, Rejected
from scheduler.framework.profile import Profile
from scheduler.framework.runtime import Runtime
from scheduler.framework.what_if import RowMemo, Trial
from scheduler.pods.pod import Pod
from scheduler.state.amounts import AvailableOnRows
from scheduler.state.cards.booking import CardShare
from scheduler.state.changes import Change
from scheduler.state.ledger import of_tables
from scheduler.state.nominations import Nominations
from scheduler.tools.explain.pod_summary import explain, what_if
from scheduler.tools.explain.reading import ClusterSnapshot
from tests.support.builders import UNIT_MIB, away_from, bound, cluster, engine, pod
from tests.support.placing import decided, on_card
from tests.support.preempting import sought


def crowded(seed: int) -> Engine:
    """Three nodes of two cards, some twenty pods on them, some with affinity; a few wait."""
    rng = random.Random(seed)  # noqa: S311 - no secret
    built = engine(a=[16, 16], b=[16, 16], c=[24, 8])
    built.budgets_listed()
    for number in range(20):
        options: dict[str, Any] = {"labels": {"app": rng.choice("xyz")}, "priority": rng.randrange(3)}
        if rng.random() < 0.2:
            options["affinity"] = away_from("x")
        node, index, units = rng.choice("abc"), rng.randrange(2), rng.randrange(0, 5)
        built.pod_assigned(bound(pod(f"p{number}", units, **options), node, on_card(index, units) if units else None))
    for number in range(4):
        units = rng.choice((6, 12, 16, 24))
        built.pod_waiting(pod(f"w{number}", units, priority=rng.randrange(4), labels={"app": "x"}), float(number))
    while built.decide(10.0, 0) is not None:
        pass
    return built


def waiting(built: Engine) -> list[Pod]:
    return [entry.pod for entry in built.queue]


@pytest.mark.parametrize("seed", range(30))
def test_nothing_stays_of_what_was_asked_and_nobody_is_woken(seed: int) -> None:
    built = crowded(seed)
    before, reading = of_tables(built.tables), ClusterSnapshot(built, UNIT_MIB)
    events = built.tables.cluster_events
    noted = (dict(events.rows), events.everywhere, dict(events.claims))
    first = [explain(reading, one) for one in waiting(built)]
    what_if(reading, pod("more", 4), 20)
    after = built.tables.cluster_events
    assert of_tables(built.tables) == before
    assert (dict(after.rows), after.everywhere, dict(after.claims)) == noted
    assert [explain(reading, one) for one in waiting(built)] == first
    assert built.decide(20.0, 0) is None
    audits = [built.audit_node(node) for node in "abc"]
    assert [one.difference for one in audits if one is not None] == ["", "", ""]


def packed(seed: int, asked_after: int) -> list[tuple[str, str, str]]:
    """Nodes of 60 pods of policy `fragmentation`. asked_after: number of pods before a what-if query; 0: never."""
    rng = random.Random(seed)  # noqa: S311 - no secret
    built = engine(**{f"n{number}": [16, 16, 24] for number in range(20)})
    policy = {names.NODE_POLICY: "fragmentation", names.CARD_POLICY: "fragmentation"}
    found = []
    for number in range(60):
        cpu = {"cpu": rng.choice(("1", "8"))}
        asks = pod(f"p{number}", rng.choice((3, 5, 7, 11, 16)), annotations=policy, requests=cpu)
        built.pod_seen(asks, float(number))
        built.pod_waiting(asks, float(number))
        decision = built.decide(float(number), 0)
        if decision is not None and isinstance(place := decision.outcome, Placement):
            found.append((asks.key.name, place.node, str(place.cards)))
        if number + 1 == asked_after:
            what_if(ClusterSnapshot(built, UNIT_MIB), pod("more", 5, annotations=policy), 16)
    return found


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("asked_after", [10, 23])
def test_no_pod_goes_elsewhere_since_somebody_has_asked(seed: int, asked_after: int) -> None:
    assert packed(seed, asked_after) == packed(seed, 0)


def test_an_opening_that_was_noted_before_is_still_there() -> None:
    built = engine(a=[16])
    built.pod_assigned(bound(pod("p", 16), "a", on_card(0, 16)))
    built.pod_waiting(pod("w", 16), 0.0)
    built.decide(0.0, 0)
    built.pod_gone("uid-default-p")
    with built.queries.placing() as placing:
        assert isinstance(placing.attempt(pod("what-if", 16)), Placement)
    assert isinstance(decided(built, 1.0), Placement)


@pytest.mark.parametrize(
    ("there", "again"),
    [
        pytest.param([], True, id="nobody"),
        pytest.param([pod("other", 6)], False, id="a pod on the same card"),
        pytest.param([pod("other", 6, requests={"cpu": "60"}), pod("more", requests={"cpu": "4"})], False, id="no CPU"),
    ],
)
def test_a_placement_is_repeated_where_the_same_card_is_still_free(there: list[Pod], again: bool) -> None:  # noqa: FBT001 - a case
    built = engine(a=[16, 12])
    asks = pod("p", 11, requests={"cpu": "4"})
    with built.queries.placing() as placing:
        place = placing.place(asks)
        assert place is not None
        placing.undo()
        assert [placing.place(one) is not None for one in there] == [True] * len(there)
        assert placing.repeat(place) is again
        record = built.tables.record(asks.key.uid)
        assert (None if record is None else record.written.per_card) == ({1: 11} if again else None)


class Counting(PermitPlugin):
    """Counts the pods that it is asked about, as a rule about groups would."""

    name = "Counting"

    def __init__(self) -> None:
        super().__init__()
        self.asked: list[str] = []

    def permit(self, pod: Pod, node: str) -> Rejected | PermitResult:  # noqa: ARG002 - as asked
        self.asked.append(pod.key.name)
        return Rejected("never")


def test_a_rule_that_counts_who_has_a_place_is_not_asked() -> None:
    tables, rule = cluster(a=[16]), Counting()
    nominations = Nominations(tables)
    cycle = SchedulingCycle(Runtime(Profile(permit=(rule,)), tables))
    questions = WhatIfQueries(tables, {"gpushare-scheduler": cycle}, nominations)
    with questions.placing() as placing:
        assert isinstance(placing.attempt(pod("p")), Placement)
    assert (rule.asked, tables.record("uid-default-p")) == ([], None)


# A node without some of its pods


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
