"""The audit finds what the columns have wrong, and what is booked beyond what there is."""

from config.protocol import names
from config.protocol.allocation import Allocation, LegacyFields, encode
from scheduler.state.audit import audit_node
from scheduler.state.ledger import of_tables
from scheduler.state.tables import Tables
from tests.support.builders import bound, cluster, pod, wire_node


def shown(tables: Tables, name: str, units: int, *, uuid: str = "GPU-a-0") -> None:
    written = encode(Allocation({0: {0: units}}, {}, {0: uuid}, 1024), LegacyFields(units, 16, 1))
    tables.add(bound(pod(name, units), "a", written))


def test_nothing_is_found_where_all_is_well() -> None:
    tables = cluster(a=[16], b=[16])
    shown(tables, "p", 16)
    before = tables.changes.version
    found = audit_node(tables, "a")
    assert found is not None
    assert (found.difference, found.overcommitted, found.shared) == ("", (), {})
    assert tables.changes.version == before
    assert audit_node(tables, "gone") is None


def test_columns_that_have_gone_wrong_are_repaired_and_shown() -> None:
    tables = cluster(a=[16, 16])
    shown(tables, "p", 5)
    right = of_tables(tables)
    row = tables.row_of["a"]
    tables.cards.stored.free[0, row] += 5
    tables.resources.requested[0, row] += 7
    found = audit_node(tables, "a")
    assert found is not None
    assert "'GPU-a-0': 16" in found.difference
    assert of_tables(tables) == right
    assert audit_node(tables, "a") == type(found)(node="a", uid="node-a", shared={})


def test_a_card_with_more_booked_than_it_has_is_named_with_the_largest_pods_on_it() -> None:
    tables = cluster(a=[16])
    for name, units in (("one", 8), ("two", 12), ("three", 1), ("four", 2)):
        shown(tables, name, units)
    found = audit_node(tables, "a")
    assert found is not None
    assert [str(card) for card in found.overcommitted] == [
        "card GPU-a-0 has 16 units, and 23 are booked: default/two (12), default/one (8), default/four (2), and 1 more"
    ]
    assert found.difference == ""


def test_a_pod_whose_card_is_unknown_overcommits_nothing() -> None:
    tables = cluster(a=[16])
    shown(tables, "one", 12)
    tables.add(bound(pod("somewhere", 8), "a"))
    tables.add(bound(pod("no-unit", 8), "a", {names.MEM_IDX: "0"}))
    found = audit_node(tables, "a")
    assert found is not None
    assert found.overcommitted == ()


def test_a_uuid_of_two_nodes_is_found_on_both() -> None:
    tables = cluster(a=[16])
    tables.upsert_node(wire_node("b", annotations=dict(wire_node("a", [16]).metadata.annotations or {})))
    found = [audit_node(tables, name) for name in ("a", "b")]
    assert [one.shared for one in found if one] == [{"GPU-a-0": "b"}, {"GPU-a-0": "a"}]
