"""Counts of matching pods, and of what each namespace requests: held against a plain count, whatever comes and goes."""

from collections import Counter

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule
from msgspec.structs import replace

from scheduler.pods.gpu_request import ResourceNames
from scheduler.pods.pod import Pod
from scheduler.state.audit import audit_node
from scheduler.state.cards.booking import CardShare
from scheduler.state.columns.selectors import Expression, Operator
from scheduler.state.facts import matching_pods
from scheduler.state.facts.matching_pods import MatchingPods, Query
from scheduler.state.facts.namespace_memory import NamespaceMemory
from scheduler.state.facts.pod_terms import TermKey
from scheduler.state.nominations import Nominations
from scheduler.state.tables import Tables
from tests.support.builders import bound, cluster, pod, wire_node
from tests.support.placing import on_card

NODES = st.sampled_from(["n0", "n1", "n2"])
NAMESPACES = st.sampled_from(["default", "prod", "other"])
# Some pods have more labels than one line has room for.
LABELS = st.builds(
    lambda named, more: {**named, **{f"more-{number}": "x" for number in range(more)}},
    st.dictionaries(st.sampled_from("abc"), st.sampled_from("xy"), max_size=3),
    st.sampled_from([0, 0, 15, 40]),
)


def expression(key: str, operator: Operator, *values: str) -> Expression:
    return Expression(key, operator, frozenset(values))


def term(
    *selector: Expression, names: tuple[str, ...] = ("default",), of: tuple[Expression, ...] | None = None
) -> TermKey:
    return TermKey("", frozenset(names), of, selector)


A_IS_X = expression("a", Operator.IN, "x")
QUERIES = (
    Query((term(A_IS_X),)),
    Query((term(A_IS_X),), living=True),
    Query((term(),)),
    Query((term(expression("b", Operator.NOT_IN, "x", "y"), A_IS_X),)),
    Query((term(expression("more-39", Operator.EXISTS)),)),
    Query((term(expression("more-39", Operator.EXISTS), A_IS_X),)),
    Query((term(expression("c", Operator.DOES_NOT_EXIST), names=("default", "prod")),)),
    Query((term(A_IS_X, names=(), of=()),)),
    Query((term(A_IS_X, names=("prod",), of=(expression("team", Operator.IN, "a"),)),)),
    Query((term(A_IS_X, names=(), of=()), term(expression("b", Operator.EXISTS)))),
)


class Histories(RuleBasedStateMachine):
    """Nodes, namespaces and pods come, change and go; queries are asked at any time."""

    def __init__(self) -> None:
        super().__init__()
        self.tables = Tables(ResourceNames())
        self.fact = self.tables.fact(MatchingPods)
        self.pods: dict[str, Pod] = {}
        self.made = 0

    @rule(name=NODES)
    def node_comes(self, name: str) -> None:
        self.tables.upsert_node(wire_node(name))

    @rule(name=NODES)
    def node_goes(self, name: str) -> None:
        self.tables.remove_node(name)

    @rule(node=NODES, namespace=NAMESPACES, labels=LABELS)
    def pod_comes(self, node: str, namespace: str, labels: dict[str, str]) -> None:
        self.made += 1
        self._show(bound(pod(f"p{self.made}", namespace=namespace, labels=labels), node))

    @precondition(lambda self: self.pods)
    @rule(data=st.data(), labels=LABELS, terminating=st.booleans())
    def pod_changes(self, data: st.DataObject, labels: dict[str, str], *, terminating: bool) -> None:
        old = self.pods[data.draw(st.sampled_from(sorted(self.pods)))]
        self._show(replace(old, labels=labels, terminating=terminating))

    @precondition(lambda self: self.pods)
    @rule(data=st.data())
    def pod_goes(self, data: st.DataObject) -> None:
        uid = data.draw(st.sampled_from(sorted(self.pods)))
        del self.pods[uid]
        self.tables.remove(uid)

    @rule(namespace=NAMESPACES, team=st.sampled_from(["", "a", "b"]))
    def namespace_changes(self, namespace: str, team: str) -> None:
        if team or namespace in self.tables.namespaces:
            self.tables.set_namespace(namespace, {"team": team} if team else None)

    @rule(query=st.sampled_from(QUERIES))
    def somebody_asks(self, query: Query) -> None:
        assert self.counted(query) == self.expected(query)

    @invariant()
    def the_last_query_is_true(self) -> None:
        assert self.counted(QUERIES[0]) == self.expected(QUERIES[0])

    def _show(self, shown: Pod) -> None:
        self.pods[shown.key.uid] = shown
        self.tables.add(shown)

    def counted(self, query: Query) -> dict[str, int]:
        counts = self.fact.counts(query)
        assert len(counts) == self.tables.capacity
        return {self.tables.names[row]: int(count) for row, count in enumerate(counts) if count}

    def expected(self, query: Query) -> dict[str, int]:
        there = (
            each.node_name
            for each in self.pods.values()
            if each.node_name in self.tables.row_of
            and not (query.living and each.terminating)
            and query.matches(each.key.namespace, self.tables.namespaces.get(each.key.namespace, {}), each.labels)
        )
        return dict(Counter(there))


TestHistories = Histories.TestCase
TestHistories.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)


def test_counts_grow_with_the_tables() -> None:
    tables = Tables(ResourceNames())
    fact = tables.fact(MatchingPods)
    tables.upsert_node(wire_node("n0"))
    tables.add(bound(pod("p", labels={"a": "x"}), "n0"))
    assert fact.counts(QUERIES[0])[tables.row_of["n0"]] == 1
    for number in range(1, 200):
        tables.upsert_node(wire_node(f"n{number}"))
        tables.add(bound(pod(f"p{number}", labels={"a": "x"}), f"n{number}"))
    assert len(fact.counts(QUERIES[0])) == tables.capacity
    assert fact.counts(QUERIES[0]).sum() == 200


def test_what_comes_and_goes_is_noted_for_the_query_that_it_matches() -> None:
    tables = Tables(ResourceNames())
    fact = tables.fact(MatchingPods)
    tables.upsert_node(wire_node("n0"))
    fact.counts(QUERIES[0])
    tables.take_cluster_events()
    tables.add(bound(pod("other", labels={"a": "y"}), "n0"))
    assert not tables.take_cluster_events().everywhere
    tables.add(bound(pod("one", labels={"a": "x"}), "n0"))
    assert tables.take_cluster_events().everywhere == fact.bit(QUERIES[0], came=True)
    tables.remove("uid-default-one")
    assert tables.take_cluster_events().everywhere == fact.bit(QUERIES[0], came=False)


def test_a_query_that_is_forgotten_wakes_who_waits_for_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(matching_pods, "_MOST_QUERIES", 2)
    fact = Tables(ResourceNames()).fact(MatchingPods)
    oldest, *others = (Query((term(expression("a", Operator.IN, value)),)) for value in "xyz")
    bits = fact.bit(oldest, came=True) | fact.bit(oldest, came=False)
    for query in others:
        fact.counts(query)
    assert fact.moved == bits


def test_a_node_that_comes_with_pods_notes_what_their_coming_notes() -> None:
    tables = Tables(ResourceNames())
    fact, query = tables.fact(MatchingPods), QUERIES[0]
    fact.counts(query)
    tables.add(bound(pod("p", labels={"a": "x"}), "n0"))
    assert not tables.take_cluster_events().everywhere & fact.bit(query, came=True)
    tables.upsert_node(wire_node("n0"))
    assert tables.take_cluster_events().everywhere & fact.bit(query, came=True)


# What each namespace requests

GIB = 2**30


def test_pods_count_from_their_place_until_they_are_gone() -> None:
    tables = cluster(a=[16, 16])
    fact = tables.fact(NamespaceMemory)
    waiting = pod("p", 4, namespace="team")
    tables.assume(waiting, tables.row_of["a"], (CardShare(0, "GPU-a-0", 4),))
    tables.add(bound(pod("q", 2, namespace="other"), "a", on_card(1, 2)))
    assert fact.requested == {"team": 4 * GIB, "other": 2 * GIB}
    tables.forget(waiting.key.uid)
    assert fact.requested == {"other": 2 * GIB}
    tables.remove("uid-other-q")
    assert fact.requested == {}


def test_whoever_asks_later_is_told_of_what_is_there() -> None:
    tables = cluster(a=[16])
    tables.add(bound(pod("p", 4), "a", on_card(0, 4)))
    tables.add(bound(pod("without", namespace="team"), "a"))
    assert tables.fact(NamespaceMemory).requested == {"default": 4 * GIB}


def test_a_node_that_goes_takes_its_pods_and_brings_them_back() -> None:
    tables = cluster(a=[16])
    fact = tables.fact(NamespaceMemory)
    tables.add(bound(pod("p", 4), "a", on_card(0, 4)))
    tables.remove_node("a")
    assert fact.requested == {}
    tables.upsert_node(wire_node("a", [16]))
    assert fact.requested == {"default": 4 * GIB}


def test_a_card_that_goes_and_another_inventory_change_nothing() -> None:
    tables = cluster(a=[16, 16])
    fact = tables.fact(NamespaceMemory)
    tables.add(bound(pod("p", 4), "a", on_card(1, 4)))
    tables.upsert_node(wire_node("a", [16]))
    tables.mark_unhealthy("a", frozenset({0}))
    assert fact.requested == {"default": 4 * GIB}
    tables.remove("uid-default-p")
    assert fact.requested == {}


def test_a_repaired_ledger_counts_once() -> None:
    tables = cluster(a=[16])
    fact = tables.fact(NamespaceMemory)
    tables.add(bound(pod("p", 4), "a", on_card(0, 4)))
    tables.cards.stored.free[0, tables.row_of["a"]] += 5
    found = audit_node(tables, "a")
    assert found is not None
    assert found.difference
    assert fact.requested == {"default": 4 * GIB}


def test_a_place_that_is_kept_counts_while_it_is_booked() -> None:
    tables = cluster(a=[16])
    fact = tables.fact(NamespaceMemory)
    kept = Nominations(tables)
    preemptor = pod("urgent", 16, priority=5)
    kept.nominate(preemptor, "a", (CardShare(0, "GPU-a-0", 16),), [])
    with kept.seen_by(preemptor):
        assert fact.requested == {}
