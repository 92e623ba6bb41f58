"""Isolation and limits in the answers of commands and of the page."""

import json
from collections.abc import Iterable
from dataclasses import replace

import msgspec

from config.protocol import names
from config.protocol.inventory import Card
from scheduler.testing.cluster.world import World
from scheduler.tools.explain.held import HoldingPods, holding_pods, pod_lines, reported
from scheduler.tools.explain.tones import Line, Tone, as_text
from scheduler.tools.explain.top import top
from scheduler.tools.explain.top_lines import card_lines, cluster_lines, node_lines
from scheduler.tools.page.rows import node_detail
from tests.support.builders import card, wire_node
from tests.support.explaining import asked, explained, explained_new, lines, prose, there, waits, world

REQUIRED = {names.ISOLATION: names.ISOLATION_REQUIRED}
WITHOUT = "too few cards on which memory is enforced (gpushare/isolation: required)"


def kinds(node: str, *isolation: str) -> list[Card]:
    return [replace(card(index, 16, node=node), isolation=kind) for index, kind in enumerate(isolation)]


def mixed() -> World:
    """Node a enforces on its second card, node b on both, node c on none; a pod on each card of a."""
    nodes = {"a": ("", "driver"), "b": ("mps", "hami-core"), "c": ("",)}
    of = world(*(wire_node(name, kinds(name, *isolation)) for name, isolation in nodes.items()))
    there(of, "on-advisory", 3, "a", 0, annotations={names.GPU_MEM_LIMIT: "8"})
    there(of, "on-driver", 3, "a", 1, annotations={names.GPU_MEM_LIMIT: "8"})
    return of


def cells(found: Iterable[Line], column: str) -> list[str]:
    """The texts of a column, by its place below the header."""
    head, *rows = as_text(list(found), colour=False).splitlines()
    at = head.index(column)
    return [row[at:].split()[0] for row in rows]


def test_top_says_it_of_each_card_and_node_and_counts_the_cards() -> None:
    found = top(asked(mixed()).reading.engine)
    assert cells(card_lines(found), "ISOLATION") == ["advisory", "driver", "mps", "hami-core", "advisory"]
    assert cells(node_lines(found), "ISOLATION") == ["advisory,driver", "mps,hami-core", "advisory"]
    assert "Cards on which memory is enforced: 3, advisory: 2." in [line.text for line in cluster_lines(found.cluster)]


def held(of: World) -> HoldingPods:
    return holding_pods(asked(of).reading, lambda pod, node: True)  # noqa: ARG005 - all of them


def test_pods_show_their_limit_and_what_enforces_it() -> None:
    found = held(mixed())
    assert cells(pod_lines(found), "ISOLATION") == ["unknown", "driver"]
    assert cells(pod_lines(found), "LIMIT") == ["8", "8"]
    by_report = reported(found, {"a": "none"}, {})
    assert cells(pod_lines(by_report), "ISOLATION") == ["advisory", "driver"]


def test_a_pod_on_an_advisory_and_an_enforced_card_shows_both() -> None:
    of = mixed()
    written = {names.ALLOCATION: '{"0":{"0":2,"1":2}}', names.UNIT_MIB: "1024"}
    waits(of, "both", 4, annotations={names.GPU_COUNT: "2"})
    of.pods.bind("default", "both", "a", written)
    assert cells(pod_lines(held(of)), "ISOLATION")[0] == "driver,advisory"


def test_a_pod_that_uses_more_than_its_request_but_not_its_limit_is_no_warning() -> None:
    for used_mib, tone in ((8 * 1024, Tone.PLAIN), (8 * 1024 + 1, Tone.WARNING)):
        _, first, _ = pod_lines(reported(held(mixed()), {}, {("default", "on-advisory"): used_mib}))
        assert first.tone is tone


def test_explain_says_it_of_the_card_that_a_pod_has() -> None:
    of = mixed()
    assert lines(explained(of, "on-driver"))[1] == "It is on node a, with 3 GiB of card 1 (enforced by driver)."
    assert lines(explained(of, "on-advisory"))[1] == "It is on node a, with 3 GiB of card 0 (advisory)."


def test_explain_says_what_the_pod_asks_for_and_what_each_card_lacks() -> None:
    annotations = {**REQUIRED, names.GPU_MEM_LIMIT: "14"}
    answer = explained_new(mixed(), "p", 14, annotations=annotations)
    sentence = "It requests 14 GiB on one card where memory is enforced, and may use up to 14 while they are free."
    assert sentence in prose(answer)
    of = world(wire_node("a", kinds("a", "", "driver")))
    there(of, "other", 5, "a", 1)
    stopped = explained_new(of, "p", 14, annotations=REQUIRED)
    (node,) = stopped.nearest
    assert [(one.why, one.isolation) for one in node.cards] == [("memory is not enforced", ""), ("3 short", "driver")]
    why = "the driver cannot limit memory on the card"
    cards = [replace(card, unenforced=why) for card in kinds("a", "")]
    (node,) = explained_new(world(wire_node("a", cards)), "p", 14, annotations=REQUIRED).nearest
    assert [one.why for one in node.cards] == [f"memory is not enforced: {why}"]
    nowhere = explained_new(world(a=[16], b=[16]), "p", 14, annotations=REQUIRED)
    assert [(group.nodes, WITHOUT in group.reason) for group in nowhere.reasons] == [(2, True)]


def test_the_documents_have_the_kind() -> None:
    document = json.loads(msgspec.json.encode(top(asked(mixed()).reading.engine)))
    assert [one["isolation"] for one in document["cards"]] == ["", "driver", "mps", "hami-core", ""]
    assert [one["isolation"] for one in document["nodes"]] == [["", "driver"], ["mps", "hami-core"], [""]]
    pods = json.loads(msgspec.json.encode(held(mixed())))["pods"]
    assert [(one["isolation"], one["limitUnits"]) for one in pods] == [("", 8), ("driver", 8)]


def test_the_page_says_it_of_each_card() -> None:
    detail = node_detail(asked(mixed()).reading.engine.tables, "a")
    assert detail is not None
    assert [one.isolation for one in detail.cards] == ["advisory", "enforced by driver"]
