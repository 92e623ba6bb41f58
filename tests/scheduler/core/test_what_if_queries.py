"""What-if queries to an engine in use: they leave nothing behind and wake no pod."""

import random
from collections.abc import Generator
from typing import Any

import pytest

from config.protocol import names
from scheduler.core.engine import Engine
from scheduler.core.scheduling_cycle import Placement, SchedulingCycle
from scheduler.core.what_if_queries import WhatIfQueries
from scheduler.framework.plugin import PermitPlugin, PermitResult, Rejected
from scheduler.framework.profile import Profile
from scheduler.framework.runtime import Runtime
from scheduler.pods.pod import Pod
from scheduler.state.ledger import of_tables
from scheduler.state.nominations import Nominations
from scheduler.tools.explain.pod_summary import explain, what_if
from scheduler.tools.explain.reading import ClusterSnapshot, answer_of
from scheduler.tools.explain.remedies import leaving_pods
from tests.support.builders import UNIT_MIB, bound, cluster, engine, pod
from tests.support.placing import on_card

ZONE = {"matchLabels": {"app": "x"}}
APART = {
    "podAntiAffinity": {
        "requiredDuringSchedulingIgnoredDuringExecution": [
            {"labelSelector": ZONE, "topologyKey": "kubernetes.io/hostname"}
        ]
    }
}


def crowded(seed: int) -> Engine:
    """Three nodes of two cards, some twenty pods on them, some with affinity; a few wait."""
    rng = random.Random(seed)  # noqa: S311 - no secret
    built = engine(a=[16, 16], b=[16, 16], c=[24, 8])
    built.budgets_listed()
    for number in range(20):
        options: dict[str, Any] = {"labels": {"app": rng.choice("xyz")}, "priority": rng.randrange(3)}
        if rng.random() < 0.2:
            options["affinity"] = APART
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
    first = [answer_of(explain(reading, one)) for one in waiting(built)]
    answer_of(what_if(reading, pod("more", 4), 20))
    after = built.tables.cluster_events
    assert of_tables(built.tables) == before
    assert (dict(after.rows), after.everywhere, dict(after.claims)) == noted
    assert [answer_of(explain(reading, one)) for one in waiting(built)] == first
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
            answer_of(what_if(ClusterSnapshot(built, UNIT_MIB), pod("more", 5, annotations=policy), 16))
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
    decision = built.decide(1.0, 0)
    assert decision is not None
    assert isinstance(decision.outcome, Placement)


def stepped(steps: Generator[None, None, Any], number: int) -> Any:  # noqa: ANN401 - whatever is asked
    """Run this many steps; returns the result if that was all."""
    for _ in range(number):
        try:
            next(steps)
        except StopIteration as ended:
            return ended.value
    return None


def test_pods_and_nodes_may_go_between_two_steps() -> None:
    for steps_before in range(1, 8):
        built = engine(a=[16])
        for number in range(16):
            built.pod_assigned(bound(pod(f"p{number:02}", 1), "a", on_card(0, 1)))
        steps = leaving_pods(built, pod("w", 12), "a")
        found = stepped(steps, steps_before)
        built.pod_gone("uid-default-p00")
        built.pod_assigned(bound(pod("late", 1), "a", on_card(0, 1)))
        found = answer_of(steps) if found is None else found
        audit = built.audit_node("a")
        assert audit is not None
        assert audit.difference == ""
        assert len(found) >= 11
        steps = leaving_pods(built, pod("w", 12), "a")
        stepped(steps, steps_before)
        built.node_gone("a")
        answer_of(steps)


def test_whoever_leaves_in_the_middle_leaves_nothing_behind() -> None:
    built = crowded(1)
    before = of_tables(built.tables)
    steps = explain(ClusterSnapshot(built, UNIT_MIB), pod("w", 24))
    next(steps)
    steps.close()
    assert of_tables(built.tables) == before


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


def test_with_too_many_pods_on_a_node_nobody_tries_who_would_have_to_leave() -> None:
    built = engine(a=[16])
    for number in range(4):
        built.pod_assigned(bound(pod(f"p{number}", 4), "a", on_card(0, 4)))
    few = answer_of(explain(ClusterSnapshot(built, UNIT_MIB, most_leaving=4), pod("w", 16)))
    many = answer_of(explain(ClusterSnapshot(built, UNIT_MIB, most_leaving=3), pod("w", 16)))
    assert few.nearest[0].leaving == ("default/p0", "default/p1", "default/p2", "default/p3")
    assert many.nearest[0].remedy == ("not tried: more than 3 pods are on the node; kubectl gpushare explain tries it")


def test_pods_of_namespaces_that_are_not_shown_have_no_name_in_any_field() -> None:
    built = engine(a=[16])
    built.budgets_listed()
    for namespace, name in (("seen", "p"), ("secret", "q"), ("secret", "r")):
        built.pod_assigned(bound(pod(name, 4, namespace=namespace), "a", on_card(0, 4)))
    reading = ClusterSnapshot(built, UNIT_MIB, sees=lambda namespace: namespace == "seen")
    answer = answer_of(explain(reading, pod("w", 16, namespace="seen", priority=9)))
    assert "secret" not in repr(answer)
    assert answer.nearest[0].remedy == "fits once seen/p and 2 pods of other namespaces are gone"
    assert answer.preemption is not None
    assert sorted(answer.preemption.victims) == ["a pod of another namespace", "a pod of another namespace", "seen/p"]
