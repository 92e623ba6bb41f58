"""What the scrape says of namespaces."""

import pytest

from scheduler.state.cards.booking import CardShare
from scheduler.state.nominations import Nominations
from scheduler.state.tables import Tables
from scheduler.telemetry import series
from scheduler.telemetry.cluster_series import copied
from tests.support.builders import bound, cluster, pod, wire_node
from tests.support.placing import on_card

GIB = 2**30


def requested(tables: Tables) -> dict[str, int]:
    text = b"".join(copied(tables, {}, per_card=False).text()).decode()
    head = f'{series.NAMESPACE_REQUESTED.name}{{namespace="'
    lines = [line.removeprefix(head).split('"} ') for line in text.splitlines() if line.startswith(head)]
    return {namespace: int(value) for namespace, value in lines}


def test_a_namespace_has_what_its_pods_request() -> None:
    tables = cluster(a=[16, 16])
    for number, namespace in enumerate(("one", "two", "two")):
        tables.add(bound(pod(f"p{number}", 3, namespace=namespace), "a", on_card(0, 3)))
    assert requested(tables) == {"one": 3 * GIB, "two": 6 * GIB}


def test_a_place_that_is_kept_for_a_preemptor_is_no_request() -> None:
    tables = cluster(a=[16])
    tables.add(bound(pod("victim", 16, namespace="small"), "a", on_card(0, 16)))
    kept = Nominations(tables)
    kept.nominate(pod("urgent", 16, namespace="big", priority=5), "a", (CardShare(0, "GPU-a-0", 16),), ["uid-small-victim"])
    assert requested(tables) == {"small": 16 * GIB}


def test_the_namespaces_with_least_are_one_series(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(series, "MOST_NAMESPACES", 2)
    tables = cluster(a=[16])
    for namespace, units in (("a", 1), ("b", 4), ("c", 2), ("d", 3)):
        tables.add(bound(pod("p", units, namespace=namespace), "a", on_card(0, units)))
    assert requested(tables) == {"b": 4 * GIB, "d": 3 * GIB, "_other": 3 * GIB}


def test_the_units_of_a_node_are_its_own() -> None:
    tables = cluster()
    tables.upsert_node(wire_node("a", [16]))
    text = b"".join(copied(tables, {}, per_card=True).text()).decode()
    assert f'{series.NODE_MEMORY.name}{{node="a"}} {16 * GIB}' in text.splitlines()
    assert f'{series.CARD_MEMORY.name}{{card="0",node="a",uuid="GPU-a-0"}} {16 * GIB}' in text.splitlines()
