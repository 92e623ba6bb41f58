"""What each namespace requests, through all that happens to pods and nodes."""

from scheduler.state.audit import audit_node
from scheduler.state.cards.booking import CardShare
from scheduler.state.facts.namespace_memory import NamespaceMemory
from scheduler.state.nominations import Nominations
from tests.support.builders import bound, cluster, pod, wire_node
from tests.support.placing import on_card

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


def test_a_pod_that_requests_no_memory_does_not_count() -> None:
    tables = cluster(a=[16])
    fact = tables.fact(NamespaceMemory)
    tables.add(bound(pod("p", namespace="team"), "a"))
    assert fact.requested == {}


def test_whoever_asks_later_is_told_of_what_is_there() -> None:
    tables = cluster(a=[16])
    tables.add(bound(pod("p", 4), "a", on_card(0, 4)))
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
