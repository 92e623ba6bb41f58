"""Metrics in a scrape: of the replica, and, from the leader alone, of nodes, cards, namespaces and waiting pods."""

from collections.abc import Iterable
from dataclasses import replace

import pytest
from prometheus_client.parser import text_string_to_metric_families

from config.protocol import names
from scheduler.core.scheduling_cycle import NoFit
from scheduler.dispatch.status import WaitingStatus
from scheduler.dispatch.waiting_series import waiting_text
from scheduler.framework.diagnosis import Diagnosis, ReasonCount
from scheduler.kube import objects
from scheduler.metrics import series
from scheduler.metrics.cluster_series import copied
from scheduler.metrics.metrics import Metrics
from scheduler.plugins.fragmentation.target_workload import TargetWorkload
from scheduler.state.cards.booking import CardShare
from scheduler.state.nominations import Nominations
from scheduler.state.tables import Tables
from tests.support.builders import bound, card, cluster, engine, pod, wire_node
from tests.support.placing import on_card

GIB = 2**30
NOW_S = 1767225600.0  # 2026-01-01T00:00:00Z


def samples(text: Iterable[bytes]) -> dict[tuple[str, str], float]:
    """(name, label values) -> value."""
    return {
        (sample.name, ",".join(sample.labels.values())): sample.value
        for family in text_string_to_metric_families(b"".join(text).decode())
        for sample in family.samples
    }


def shown(tables: Tables, *, per_card: bool = False) -> dict[tuple[str, str], float]:
    return samples(copied(tables, {}, per_card=per_card).text())


def requested(tables: Tables) -> dict[str, float]:
    return {labels: value for (name, labels), value in shown(tables).items() if name == series.NAMESPACE_REQUESTED.name}


# The replica


@pytest.mark.parametrize("leads", [True, False])
def test_only_the_replica_that_schedules_shows_the_cluster(*, leads: bool) -> None:
    metrics = Metrics(cluster(a=[16]), lambda: {"active": 0}, per_card=True)
    metrics.replica.follow("lease", lambda: leads)
    found = samples(metrics.scrape())
    assert found["gpushare_scheduler_leads", ""] == found["leader_election_master_status", "lease"] == leads
    of_cluster = ("gpushare_scheduler_node_", "gpushare_scheduler_card_", "gpushare_scheduler_namespace_")
    assert any(name.startswith((*of_cluster, "scheduler_pend")) for name, _ in found) is leads


def test_a_replica_that_is_alone_leads_and_has_no_lease() -> None:
    found = samples(Metrics(cluster(), dict, per_card=False).scrape())
    assert found["gpushare_scheduler_leads", ""] == 1
    assert not [name for name, _ in found if "leader_election" in name]


def test_readiness_is_that_of_the_moment() -> None:
    metrics, missing = Metrics(cluster(), dict, per_card=False), ["pods"]
    metrics.replica.ready = lambda: not missing
    assert samples(metrics.scrape())["gpushare_scheduler_ready", ""] == 0
    missing.clear()
    assert samples(metrics.scrape())["gpushare_scheduler_ready", ""] == 1


# Nodes and cards


def test_nodes_have_sums_and_cards_a_histogram() -> None:
    tables = cluster(a=[16, 8])
    metrics = Metrics(tables, lambda: {"active": 2, "unschedulable": 5}, per_card=False)
    tables.upsert_node(wire_node("plain"))
    tables.add(bound(pod("p", 4), "a", on_card(1, 4)))
    found = samples(metrics.scrape())
    assert found["gpushare_scheduler_node_memory_bytes", "a"] == 24 * GIB
    assert found["gpushare_scheduler_node_memory_booked_bytes", "a"] == 4 * GIB
    assert ("gpushare_scheduler_node_memory_bytes", "plain") not in found
    assert found["gpushare_scheduler_card_free_ratio_bucket", "0.5"] == 1
    assert found["gpushare_scheduler_card_free_ratio_count", ""] == 2
    assert found["scheduler_pending_pods", "unschedulable"] == 5
    assert not [name for name, _ in found if name.startswith("gpushare_scheduler_card_memory")]


def test_cards_are_counted_by_what_enforces_their_memory_whatever_a_node_announces() -> None:
    tables = cluster(a=[16])
    kinds = ("driver", "driver", "mps", "hami-core", "own", "", "invented", 'x"y')
    cards = [replace(card(number, 16, node="b"), isolation=kind) for number, kind in enumerate(kinds)]
    tables.upsert_node(wire_node("b", cards))
    found = {labels: value for (name, labels), value in shown(tables).items() if name == series.ISOLATION.name}
    assert found == {"driver": 2, "mps": 1, "hami-core": 1, "own": 1, "advisory": 2, "other": 2}
    tables.remove_node("b")
    assert shown(tables)[series.ISOLATION.name, "driver"] == 0


def test_a_namespace_shows_its_limits_beside_its_requests() -> None:
    tables = cluster(a=[16, 16])
    limit = {names.GPU_MEM_LIMIT: "8"}
    tables.add(bound(pod("p", 3, namespace="ml", annotations=limit), "a", on_card(0, 3)))
    tables.add(bound(pod("q", 2, namespace="ml"), "a", on_card(1, 2)))
    found = shown(tables)
    assert (found[series.NAMESPACE_REQUESTED.name, "ml"], found[series.NAMESPACE_LIMIT.name, "ml"]) == (
        5 * GIB,
        10 * GIB,
    )
    tables.remove("uid-ml-p")
    assert shown(tables)[series.NAMESPACE_LIMIT.name, "ml"] == 2 * GIB


def test_memory_is_counted_in_the_unit_of_its_node() -> None:
    tables = cluster(a=[16])
    tables.upsert_node(wire_node("b", [16], unit_mib=512))
    found = shown(tables, per_card=True)
    assert (found[series.NODE_MEMORY.name, "a"], found[series.NODE_MEMORY.name, "b"]) == (16 * GIB, 8 * GIB)
    assert found[series.CARD_MEMORY.name, "0,b,GPU-b-0"] == 8 * GIB


def test_a_place_that_is_kept_for_a_preemptor_counts_nowhere_beside_its_victim() -> None:
    tables = cluster(a=[16])
    tables.add(bound(pod("victim", 16, namespace="small"), "a", on_card(0, 16)))
    kept, preemptor = Nominations(tables), pod("urgent", 16, namespace="big", priority=5)
    kept.nominate(preemptor, "a", (CardShare(0, "GPU-a-0", 16),), ["uid-small-victim"])

    while_shown = shown(tables, per_card=True)
    with kept.seen_by(preemptor):
        while_hidden = shown(tables, per_card=True)

    for found in (while_shown, while_hidden):
        assert found[series.NODE_BOOKED.name, "a"] == 16 * GIB
        assert found[series.CARD_BOOKED.name, "0,a,GPU-a-0"] == 16 * GIB
    assert requested(tables) == {"small": 16 * GIB}


def test_a_name_that_holds_anything_stays_one_label() -> None:
    tables = cluster(a=[16])
    slot = tables.cards.slots[0][0]
    tables.cards.slots[0][0] = replace(slot, card=replace(slot.card, uuid='GPU"\\\n# TYPE x gauge'))

    assert shown(tables, per_card=True)[series.CARD_MEMORY.name, '0,a,GPU"\\\n# TYPE x gauge'] == 16 * GIB


def two_nodes() -> Tables:
    """The usual pod has 8 units; a pod of 3 units leaves 5 units of a card."""
    tables = cluster(a=[8, 8], b=[8])
    tables.fact(TargetWorkload)
    tables.upsert_node(wire_node("no-cards"))
    for _ in range(99):
        tables.pod_seen(pod("usual", 8), 0.0)
    tables.add(bound(pod("odd", 3), "a", on_card(0, 3)))
    return tables


def test_free_memory_that_no_usual_pod_fits_into_is_fragmented() -> None:
    found = shown(two_nodes())

    assert found[series.MEMORY_FREE.name, ""] == 21 * GIB
    assert found[series.MEMORY_FRAGMENTED.name, ""] == 5 * GIB
    assert not any(name == series.NODE_FREE.name for name, _ in found)


def test_a_node_has_its_part_where_cards_have_series() -> None:
    found = shown(two_nodes(), per_card=True)
    parts = {labels: value for (name, labels), value in found.items() if name == series.NODE_FRAGMENTED.name}

    assert list(parts) == ["a", "b"]
    assert sum(parts.values()) == pytest.approx(found[series.MEMORY_FRAGMENTED.name, ""], abs=2)
    assert found[series.NODE_FREE.name, "b"] == 8 * GIB


def test_a_scrape_shows_the_moment_in_which_it_was_asked_for() -> None:
    tables = two_nodes()
    copy = copied(tables, {}, per_card=False)
    tables.remove_node("b")

    assert samples(copy.text())[series.MEMORY_FREE.name, ""] == 21 * GIB
    assert shown(tables)[series.MEMORY_FREE.name, ""] == 13 * GIB


# Namespaces


def test_a_namespace_has_what_its_pods_request() -> None:
    tables = cluster(a=[16, 16])
    for number, namespace in enumerate(("one", "two", "two")):
        tables.add(bound(pod(f"p{number}", 3, namespace=namespace), "a", on_card(0, 3)))
    assert requested(tables) == {"one": 3 * GIB, "two": 6 * GIB}


def test_the_namespaces_with_least_are_one_series() -> None:
    tables = cluster(a=[4096])
    for number in range(series.MOST_NAMESPACES + 2):
        units = 2 if number < series.MOST_NAMESPACES else 1
        tables.add(bound(pod("p", units, namespace=f"n{number}"), "a", on_card(0, units)))
    found = requested(tables)
    assert len(found) == series.MOST_NAMESPACES + 1
    assert (found["n0"], found["_other"]) == (2 * GIB, 2 * GIB)
    assert sum(found.values()) == (2 * series.MOST_NAMESPACES + 2) * GIB


# Waiting pods


def waiting(*pods: tuple[str, str, tuple[str, ...]], gone: str = "") -> dict[tuple[str, str], float]:
    """Samples of pods, each with its name, its time of creation and the rules that object."""
    latest = objects.PodCondition("PodScheduled", "False")
    states = [
        WaitingStatus(pod=pod(name, 3).key, created=created, latest=latest, shown=None, rules=rules)
        for name, created, rules in pods
    ]
    return samples(waiting_text(states, {state.pod.uid for state in states} - {gone}, NOW_S))


def test_a_pod_counts_under_each_rule_that_objects_since_it_was_created() -> None:
    first, second = ("p", "2025-12-31T23:59:00Z", ("cpu", "memory")), ("q", "2025-12-31T23:00:00Z", ("cpu",))
    assert waiting(first, second) == {
        (series.WAITING.name, "cpu"): 2,
        (series.WAITING.name, "memory"): 1,
        (series.LONGEST_WAIT.name, "cpu"): 3600,
        (series.LONGEST_WAIT.name, "memory"): 60,
    }


def test_a_pod_that_waits_no_more_does_not_count() -> None:
    assert waiting(("p", "2025-12-31T23:59:00Z", ("cpu",)), gone="uid-default-p") == {}


def test_a_pod_whose_age_is_not_known_waits_for_no_time() -> None:
    assert waiting(("p", "", ("cpu",)))[series.LONGEST_WAIT.name, "cpu"] == 0


def test_what_is_counted_of_a_diagnosis_are_names_of_rules() -> None:
    counts = (
        ReasonCount("Insufficient example.com/secret", 2, rule="NodeResourcesFit"),
        ReasonCount("Insufficient cpu", 2, rule="NodeResourcesFit"),
        ReasonCount("cards are full", 1, rule="GpuShare"),
    )
    found = Diagnosis(3, counts, reserved="kept for default/other", tail="no victims")
    assert found.rules == ("GpuShare", "NodeResourcesFit")
    assert Diagnosis(3, rejected="the pod asks 'secret'").rules == ("EveryNode",)
    assert Diagnosis(0).rules == ("NoNodes",)


def test_an_attempt_that_finds_no_node_says_whose_reasons_it_has() -> None:
    built = engine(a=[16])
    with built.queries.placing() as placing:
        outcome = placing.attempt(pod("p", 17))
    assert isinstance(outcome, NoFit)
    assert outcome.diagnosis.rules == ("GpuShare",)
