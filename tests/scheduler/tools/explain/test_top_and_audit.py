"""Requested and free memory of the cluster, its nodes and its cards, and the findings of `kubectl gpushare audit`."""

from collections.abc import Callable, Iterator
from dataclasses import replace

import pytest

from config.protocol import names
from config.protocol.inventory import Health
from scheduler.kube import objects
from scheduler.testing.cluster.world import World
from scheduler.tools.explain.findings import ClusterFinding, Findings, audited
from scheduler.tools.explain.tones import Line, Tone, as_text
from scheduler.tools.explain.top import Top, sorted_by, top
from scheduler.tools.explain.top_lines import card_lines, cluster_lines, node_lines
from tests.support.builders import card, wire_node
from tests.support.explaining import asked, there, waits, world


def busy() -> World:
    """Node a: a card in use, an unhealthy, a cordoned and an exclusive one; b: free; away: nothing allocatable."""
    of = world(b=[16])
    failed = replace(card(1, 80, health=Health.UNHEALTHY), reason="xid-79")
    cards = [card(0, 80), failed, card(2, 80), card(3, 80)]
    of.nodes.add(wire_node("a", cards, annotations={names.CORDON: "GPU-a-2"}))
    of.nodes.add(wire_node("away", [16], gpu_mem=0))
    there(of, "web", 30, "a", 0)
    there(of, "old", 20, "a", 1)
    there(of, "alone", 40, "a", 3, annotations={names.EXCLUSIVE: "true"})
    waits(of, "next", 81)
    return of


def counted(of: World) -> Top:
    return top(asked(of).reading.engine)


def test_a_node_is_the_sum_of_its_cards() -> None:
    a, away, b = counted(busy()).nodes
    assert (a.cards, a.units, a.requested, a.free, a.most_free, a.out, a.held, a.pods) == (4, 320, 90, 50, 50, 2, 1, 3)
    assert (away.problem, away.free) == ("nothing is allocatable: its device plugin is not running", 0)
    assert (b.free, b.problem) == (16, "")


SICK = replace(card(1, 80, health=Health.UNHEALTHY), reason="xid-79")
MIG = replace(card(0, 0), reason="mig")


@pytest.mark.parametrize(
    ("node", "problem", "out"),
    [
        pytest.param(
            wire_node("a", [card(0, 80), SICK], annotations={names.CORDON: "GPU-a-0"}, gpu_mem=0),
            "no card takes new pods: cordoned, unhealthy (xid-79)",
            2,
            id="all out",
        ),
        pytest.param(
            wire_node("a", [MIG], gpu_mem=0), "no card takes new pods: no units to share (mig)", 0, id="split"
        ),
        pytest.param(
            wire_node("a", [MIG, SICK], gpu_mem=0),
            "no card takes new pods: no units to share (mig), unhealthy (xid-79)",
            1,
            id="one is split, the other is unhealthy",
        ),
        pytest.param(wire_node("a", [16], unschedulable=True), "the node is cordoned", 0, id="a cordoned node"),
    ],
)
def test_a_node_on_which_nothing_is_free_says_why_and_blames_no_plugin(
    node: objects.Node, problem: str, out: int
) -> None:
    of = world(node)
    (found,) = counted(of).nodes
    assert (found.free, found.problem, found.out) == (0, problem, out)


@pytest.mark.parametrize(
    ("sizes", "words"),
    [
        ((90,), "1 waiting pod is larger than every card (largest 80)."),
        ((90, 81, 80), "2 waiting pods are larger than every card (largest 80)."),
    ],
)
def test_pods_that_no_card_can_ever_hold_are_counted_and_fragment_nothing(sizes: tuple[int, ...], words: str) -> None:
    of = world(a=[80, 80])
    for units in sizes:
        waits(of, f"asks-{units}", units)
    shown = as_text(cluster_lines(counted(of).cluster), colour=False)
    assert words in shown
    assert "Fragmented (free units that typical pods cannot use): 0 (0%)." in shown


def test_free_memory_that_the_pods_there_are_could_not_use_is_fragmented() -> None:
    of = world(a=[8], b=[8], c=[8])
    there(of, "odd", 3, "a", 0)
    for number in range(7):
        waits(of, f"usual-{number}", 8)
    found = counted(of)

    assert [(node.node, node.free, node.fragmented) for node in found.nodes] == [("a", 5, 4), ("b", 8, 0), ("c", 8, 0)]
    assert (found.cluster.free, found.cluster.fragmented) == (21, 4)
    assert "Fragmented (free units that typical pods cannot use): 4 (19%)." in as_text(
        cluster_lines(found.cluster), colour=False
    )


def test_a_node_without_cards_is_listed_only_where_pods_hold_some() -> None:
    of = world(wire_node("plain"), wire_node("broken", annotations={names.INVENTORY: "{"}))
    there(of, "lost", 3, "broken", 0)
    assert [(node.node, node.pods) for node in counted(of).nodes] == [("broken", 1)]


def test_units_on_a_card_that_is_gone_are_told() -> None:
    of = world(a=[16])
    waits(of, "lost", 3)
    written = {names.ALLOCATION: '{"0":{"1":3}}', names.CARDS: '{"1":"GPU-gone"}', names.UNIT_MIB: "1024"}
    of.pods.bind("default", "lost", "a", written)
    (node,) = counted(of).nodes
    assert node.unknown == 3
    assert "3 units are on unknown cards" in as_text(node_lines(counted(of)), colour=False)


@pytest.mark.parametrize(
    ("key", "order"),
    [
        ("name", ["a", "away", "b"]),
        ("free", ["a", "b", "away"]),
        ("requested", ["a", "away", "b"]),
        ("most-free", ["a", "b", "away"]),
        ("pods", ["a", "away", "b"]),
        ("fragmented", ["b", "a", "away"]),
    ],
)
def test_nodes_are_sorted_by_what_was_asked_and_then_by_name(key: str, order: list[str]) -> None:
    assert [node.node for node in sorted_by(counted(busy()), key).nodes] == order


def test_wide_says_models_and_who_holds_each_card() -> None:
    found = counted(busy())
    wide = as_text(card_lines(found, wide=True), colour=False).splitlines()
    assert wide[0].split()[-2:] == ["STATE", "HELD-BY"]
    assert wide[1].endswith("  default/web (30)")
    assert as_text(node_lines(found, wide=True), colour=False).splitlines()[0].split()[-2:] == ["MODELS", "PROBLEM"]


@pytest.mark.parametrize(
    "lines",
    [
        pytest.param(lambda found: cluster_lines(found.cluster), id="cluster"),
        pytest.param(node_lines, id="nodes"),
        pytest.param(card_lines, id="cards"),
    ],
)
def test_text_is_coloured_where_that_is_wanted_and_says_the_same(lines: Callable[[Top], Iterator[Line]]) -> None:
    found = list(lines(counted(busy())))
    plain, coloured = as_text(found, colour=False), as_text(found, colour=True)
    assert Tone.BAD in {line.tone for line in found}
    assert "\x1b" not in plain
    assert "\x1b[31m" in coloured
    for code in ("1", "31", "33", "0"):
        coloured = coloured.replace(f"\x1b[{code}m", "")
    assert coloured == plain


def found(of: World) -> Findings:
    read = asked(of)
    return audited(read.reading.engine, read.unread)


def only(of: World) -> ClusterFinding:
    (one,) = found(of).findings
    return one


def test_a_pod_without_a_card_is_found() -> None:
    of = world(a=[16])
    waits(of, "stranger", 3)
    of.pods.bind("default", "stranger", "a", {})
    one = only(of)
    assert (one.check, one.about) == ("without-card", ("pod/default/stranger", "node/a"))
    assert "its card is unknown, so it counts against every card" in one.message


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
    assert (one.check, one.message) == ("no-node", "pod default/p is on node a, which does not exist")


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
