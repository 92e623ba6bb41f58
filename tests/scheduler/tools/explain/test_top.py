"""What is requested and free of the cluster, its nodes and its cards."""

import json
from dataclasses import replace

import pytest

from config.protocol import names
from config.protocol.inventory import Health
from scheduler.state.packing.fragmentation import measured
from scheduler.testing.cluster.world import World
from scheduler.tools.explain.answers import as_json
from scheduler.tools.explain.tones import Tone, as_text
from scheduler.tools.explain.top import SORTS, Top, lines, sorted_by, top
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


def test_each_card_says_what_is_requested_and_free_and_why_it_takes_nobody() -> None:
    found = [(one.node, one.index, one.requested, one.free, one.out, one.held) for one in counted(busy()).cards]
    assert found == [
        ("a", 0, 30, 50, "", False),
        ("a", 1, 20, 0, "unhealthy (xid-79)", False),
        ("a", 2, 0, 0, "cordoned", False),
        ("a", 3, 40, 0, "", True),
        ("away", 0, 0, 0, "", False),
        ("b", 0, 0, 16, "", False),
    ]


def test_a_node_is_the_sum_of_its_cards() -> None:
    a, away, b = counted(busy()).nodes
    assert (a.cards, a.units, a.requested, a.free, a.most_free, a.out, a.held, a.pods) == (4, 320, 90, 50, 50, 2, 1, 3)
    assert (away.problem, away.free) == ("nothing is allocatable: its device plugin is away", 0)
    assert (b.free, b.problem) == (16, "")


def test_a_node_whose_cards_are_all_out_says_why_and_blames_no_plugin() -> None:
    of = world()
    sick = replace(card(0, 80, health=Health.UNHEALTHY), reason="xid-79")
    of.nodes.add(wire_node("sick", [sick, card(1, 80)], annotations={names.CORDON: "GPU-a-1"}, gpu_mem=0))
    (node,) = counted(of).nodes
    assert node.problem == "no card is in use for new pods: unhealthy (xid-79), cordoned"


def test_a_node_whose_cards_are_in_mig_mode_has_nothing_to_share_and_blames_no_plugin() -> None:
    of = world()
    mig = replace(card(0, 0), reason="mig")
    sick = replace(card(1, 80, health=Health.UNHEALTHY), reason="xid-79")
    of.nodes.add(wire_node("split", [mig], gpu_mem=0))
    of.nodes.add(wire_node("with-sick", [replace(mig, uuid="GPU-b-0"), sick], gpu_mem=0))
    split, with_sick = counted(of).nodes
    assert split.problem == "no card is in use for new pods: no units to share (mig)"
    assert with_sick.problem == "no card is in use for new pods: no units to share (mig), unhealthy (xid-79)"
    assert (split.out, with_sick.out) == (0, 1)


def test_the_cluster_names_the_card_that_is_free_most_and_who_waits() -> None:
    found = counted(busy()).cluster
    assert (found.nodes, found.cards, found.units, found.requested, found.free) == (3, 6, 352, 90, 66)
    assert (found.most_free, found.most_free_node, found.waiting, found.problems) == (50, "a", 1, 1)


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
    shown = as_text(lines(counted(of), "cluster"), colour=False)
    assert words in shown
    assert "Fragmented, free units that usual pods cannot use: 0 (0%)." in shown


def test_free_memory_that_the_pods_there_are_could_not_use_is_fragmented() -> None:
    of = world(a=[8], b=[8], c=[8])
    there(of, "odd", 3, "a", 0)
    for number in range(7):
        waits(of, f"usual-{number}", 8)
    found = counted(of)

    assert [(node.node, node.free, node.fragmented) for node in found.nodes] == [("a", 5, 4), ("b", 8, 0), ("c", 8, 0)]
    assert (found.cluster.free, found.cluster.fragmented) == (21, 4)
    assert "Fragmented, free units that usual pods cannot use: 4 (19%)." in as_text(
        lines(found, "cluster"), colour=False
    )


def test_nothing_is_fragmented_where_nothing_is_free() -> None:
    found = counted(busy())
    measure = measured(asked(busy()).reading.engine.tables, asked(busy()).reading.engine.tables.target.usual())

    assert sum(node.free for node in found.nodes) == measure.total().free
    assert all(node.fragmented <= node.free for node in found.nodes)


def test_on_a_cordoned_node_nothing_is_free() -> None:
    of = world()
    of.nodes.add(wire_node("a", [16], unschedulable=True))
    (node,) = counted(of).nodes
    assert (node.free, node.problem) == (0, "the node is cordoned")


def test_a_node_without_cards_is_listed_only_where_pods_hold_some() -> None:
    of = world()
    of.nodes.add(wire_node("plain"))
    of.nodes.add(wire_node("broken", annotations={names.INVENTORY: "{"}))
    there(of, "lost", 3, "broken", 0)
    assert [(node.node, node.pods) for node in counted(of).nodes] == [("broken", 1)]


def test_units_on_a_card_that_is_gone_are_told() -> None:
    of = world(a=[16])
    waits(of, "lost", 3)
    written = {names.ALLOCATION: '{"0":{"1":3}}', names.CARDS: '{"1":"GPU-gone"}', names.UNIT_MIB: "1024"}
    of.pods.bind("default", "lost", "a", written)
    (node,) = counted(of).nodes
    assert node.unknown == 3
    assert "3 units are on unknown cards" in as_text(lines(counted(of), "nodes"), colour=False)


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


def test_every_sort_is_tried_here() -> None:
    assert SORTS == ("name", "free", "requested", "most-free", "pods", "fragmented")


@pytest.mark.parametrize("what", ["cluster", "nodes", "cards"])
def test_text_is_coloured_where_that_is_wanted_and_says_the_same(what: str) -> None:
    found = list(lines(counted(busy()), what))
    plain, coloured = as_text(found, colour=False), as_text(found, colour=True)
    assert Tone.BAD in {line.tone for line in found}
    assert "\x1b" not in plain
    assert "\x1b[31m" in coloured
    for code in ("1", "31", "33", "0"):
        coloured = coloured.replace(f"\x1b[{code}m", "")
    assert coloured == plain


def test_a_terminal_obeys_nothing_of_a_model() -> None:
    of = world()
    of.nodes.add(wire_node("a", [replace(card(0, 16), model="\x1b]0;x\x07\nfake")]))
    text = as_text(lines(counted(of), "cards"), colour=True)
    assert "?]0;x??fake" in text


def test_json_has_all_three_sizes() -> None:
    document = json.loads(as_json(counted(busy())))
    assert document["cluster"]["mostFreeNode"] == "a"
    assert [len(document["nodes"]), len(document["cards"])] == [3, 6]
