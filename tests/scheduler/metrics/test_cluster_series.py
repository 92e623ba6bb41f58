"""Metrics of namespaces in a scrape."""

import pytest

from scheduler.metrics import series
from scheduler.metrics.cluster_series import copied
from scheduler.state.cards.booking import CardShare
from scheduler.state.nominations import Nominations
from scheduler.state.tables import Tables
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
    kept.nominate(
        pod("urgent", 16, namespace="big", priority=5), "a", (CardShare(0, "GPU-a-0", 16),), ["uid-small-victim"]
    )
    assert requested(tables) == {"small": 16 * GIB}


def test_the_namespaces_with_least_are_one_series() -> None:
    tables = cluster(a=[4096])
    for number in range(series.MOST_NAMESPACES + 2):
        units = 2 if number < series.MOST_NAMESPACES else 1
        tables.add(bound(pod("p", units, namespace=f"n{number}"), "a", on_card(0, units)))
    shown = requested(tables)
    assert len(shown) == series.MOST_NAMESPACES + 1
    assert (shown["n0"], shown["_other"]) == (2 * GIB, 2 * GIB)
    assert sum(shown.values()) == (2 * series.MOST_NAMESPACES + 2) * GIB


def test_memory_is_counted_in_the_unit_of_its_node() -> None:
    tables = cluster(a=[16])
    tables.upsert_node(wire_node("b", [16], unit_mib=512))
    lines = b"".join(copied(tables, {}, per_card=True).text()).decode().splitlines()
    assert f'{series.NODE_MEMORY.name}{{node="a"}} {16 * GIB}' in lines
    assert f'{series.NODE_MEMORY.name}{{node="b"}} {8 * GIB}' in lines
    assert f'{series.CARD_MEMORY.name}{{card="0",node="b",uuid="GPU-b-0"}} {8 * GIB}' in lines


def shown(tables: Tables, *, per_card: bool) -> dict[str, float]:
    """Samples by metric."""
    text = b"".join(copied(tables, {}, per_card=per_card).text()).decode()
    lines = (line.rsplit(" ", 1) for line in text.splitlines() if not line.startswith("#"))
    return {name: float(value) for name, value in lines}


def two_nodes() -> Tables:
    """The usual pod has 8 units; a pod of 3 units leaves 5 units of a card."""
    tables = cluster(a=[8, 8], b=[8])
    tables.upsert_node(wire_node("no-cards"))
    for _ in range(99):
        tables.target.note(pod("usual", 8), 0.0)
    tables.add(bound(pod("odd", 3), "a", on_card(0, 3)))
    return tables


def test_free_memory_that_no_usual_pod_fits_into_is_fragmented() -> None:
    found = shown(two_nodes(), per_card=False)

    assert found[series.MEMORY_FREE.name] == 21 * GIB
    assert found[series.MEMORY_FRAGMENTED.name] == 5 * GIB
    assert not any(name.startswith(series.NODE_FREE.name) for name in found)


def test_a_node_has_its_part_where_cards_have_series() -> None:
    found = shown(two_nodes(), per_card=True)
    parts = {name: value for name, value in found.items() if name.startswith(series.NODE_FRAGMENTED.name)}

    assert list(parts) == [f'{series.NODE_FRAGMENTED.name}{{node="{name}"}}' for name in "ab"]
    assert sum(parts.values()) == pytest.approx(found[series.MEMORY_FRAGMENTED.name], abs=2)
    assert found[f'{series.NODE_FREE.name}{{node="b"}}'] == 8 * GIB


def test_a_scrape_shows_the_moment_in_which_it_was_asked_for() -> None:
    tables = two_nodes()
    copy = copied(tables, {}, per_card=False)
    tables.remove_node("b")

    assert f"{series.MEMORY_FREE.name} {21 * GIB}\n".encode() in b"".join(copy.text())
