"""What `kubectl gpushare audit` finds, and that it finds nothing where all is well."""

import pytest

from config.protocol import names
from scheduler.testing.cluster.world import World
from scheduler.tools.explain.findings import ClusterFinding, Findings, Severity, audited, lines
from scheduler.tools.explain.tones import as_text
from tests.support.builders import card, wire_node
from tests.support.explaining import asked, there, waits, world


def found(of: World) -> Findings:
    read = asked(of)
    return audited(read.reading.engine, read.unread)


def only(of: World) -> ClusterFinding:
    (one,) = found(of).findings
    return one


def test_nothing_is_found_where_all_is_well() -> None:
    of = world(a=[16], b=[16])
    there(of, "p", 16, "a", 0)
    waits(of, "next", 16)
    clean = found(of)
    assert (clean.findings, clean.clean) == ((), True)
    assert as_text(lines(clean), colour=False) == "Nodes: 2, pods with GPU memory: 1. Nothing was found.\n"


def test_an_over_committed_card_is_found_with_its_pods() -> None:
    of = world(a=[16])
    there(of, "one", 10, "a", 0)
    there(of, "two", 8, "a", 0)
    one = only(of)
    assert (one.check, one.severity, one.about) == ("overcommitted", Severity.FAILED, ("node/a",))
    assert "card GPU-a-0 has 16 units, and 18 are booked: default/one (10), default/two (8)" in one.message
    assert not found(of).clean


def test_a_pod_without_a_card_is_found() -> None:
    of = world(a=[16])
    waits(of, "stranger", 3)
    of.pods.bind("default", "stranger", "a", {})
    one = only(of)
    assert (one.check, one.about) == ("without-card", ("pod/default/stranger", "node/a"))
    assert "nobody knows its card, so it counts on each of them" in one.message


def test_a_pod_on_a_card_that_its_node_does_not_announce_is_found() -> None:
    of = world(a=[16])
    waits(of, "lost", 3)
    written = {names.ALLOCATION: '{"0":{"1":3}}', names.CARDS: '{"1":"GPU-gone"}', names.UNIT_MIB: "1024"}
    of.pods.bind("default", "lost", "a", written)
    one = only(of)
    assert one.check == "unknown-card"
    assert "holds 3 units of card GPU-gone, which node a does not announce" in one.message


def test_a_pod_on_a_node_that_is_gone_is_found() -> None:
    of = world(a=[16])
    there(of, "p", 3, "a", 0)
    of.nodes.delete("a")
    one = only(of)
    assert (one.check, one.message) == ("no-node", "pod default/p is on node a, which is not there")


def test_a_card_that_two_nodes_announce_is_found_on_both() -> None:
    of = world()
    for name in ("a", "b"):
        of.nodes.add(wire_node(name, [card(0, 16, node="same")]))
    assert [(one.check, one.about) for one in found(of).findings if one.check == "announced-twice"] == [
        ("announced-twice", ("node/a",)),
        ("announced-twice", ("node/b",)),
    ]


@pytest.mark.parametrize(
    ("node", "words"),
    [
        (wire_node("a", annotations={names.INVENTORY: "{"}), "inventory cannot be read"),
        (wire_node("a", [16], unit_mib=1), "units of 1 MiB"),
    ],
)
def test_an_inventory_that_the_scheduler_leaves_out_is_found(node: object, words: str) -> None:
    of = world()
    of.nodes.add(node)  # type: ignore[arg-type]
    assert [words in one.message for one in found(of).findings if one.check == "inventory"] == [True]


def test_what_is_named_in_the_sentence_is_not_repeated_below() -> None:
    of = world(a=[16])
    there(of, "p", 17, "a", 0)
    text = as_text(lines(found(of)), colour=False)
    assert "          node/a\n" not in text
    assert "         do: " in text
