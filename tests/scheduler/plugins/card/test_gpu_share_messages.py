"""GpuShare: the words in which a pod that fits nowhere reads why."""

from dataclasses import replace

import msgspec
import pytest

from config.protocol import inventory, names
from config.protocol.inventory import Card, Health
from scheduler.core.engine import Engine
from scheduler.kube import objects
from tests.support.builders import bound, card, engine, pod, wire_node
from tests.support.placing import on_card, place, refit, why


@pytest.mark.parametrize(
    ("options", "words"),
    [
        pytest.param(
            {"gpu_mem": 12}, "3 Insufficient GPU memory on one card: wants 12, most free 8 (of 16)", id="short"
        ),
        pytest.param(
            {"gpu_mem": 20, "labels": {names.GPU_COUNT: "2"}},
            "3 Insufficient GPU memory on 2 cards: wants 10, most free 8 (of 16)",
            id="the second freest card counts",
        ),
        pytest.param(
            {"gpu_mem": 3, "labels": {names.GPU_COUNT: "2"}},
            "aliyun.com/gpu-mem: container c0 requests 3, which is not divisible by aliyun.com/gpu-count 2",
            id="is not divisible",
        ),
        pytest.param(
            {"gpu_mem": 3, "annotations": {names.CARD_MODELS: "H200"}},
            "3 node(s) had too few of the requested cards",
            id="unknown model",
        ),
        pytest.param(
            {"gpu_mem": 3, "annotations": {names.CARD_UUIDS: "GPU-x"}},
            "3 node(s) had too few of the requested cards",
            id="unknown UUID",
        ),
    ],
)
def test_words_say_what_is_wanted_and_what_there_is(options: dict[str, object], words: str) -> None:
    built = engine(a=[16, 16], b=[16, 16], c=[16, 16])
    for node in "abc":
        for index in range(2):
            filler = pod(f"{node}{index}", 8, annotations={names.MEM_IDX: str(index), names.UNIT_MIB: "1024"})
            built.tables.add(bound(filler, node))
    assert words in why(place(built, "p", **options))  # type: ignore[arg-type]


def test_an_absurd_ask_is_refused_in_words() -> None:
    assert "write 1024" in why(place(engine(a=[16]), gpu_mem=2**40))


WITHHELD = inventory.encode(inventory.Inventory(1024, "", (card(0, 16),), inventory.NO_INJECTION))
ONE = (card(0, 16),)


def sick(index: int, units: int, reason: str = "xid-79") -> Card:
    return replace(card(index, units, health=Health.UNHEALTHY), reason=reason)


@pytest.mark.parametrize(
    ("cards", "options", "words"),
    [
        pytest.param(
            (sick(0, 15), sick(1, 15)), {"gpu_mem": 0}, "1 node(s) had 2 unhealthy cards (xid-79).", id="both dead"
        ),
        pytest.param(
            (sick(0, 15), sick(1, 15)), {"gpu_mem": 15}, "1 node(s) had 2 unhealthy cards (xid-79).", id="yet"
        ),
        pytest.param((card(0, 16, health=Health.SUSPECT),), {}, "1 node(s) had 1 suspect card.", id="suspect"),
        pytest.param(
            (card(0, 16), card(1, 16)),
            {"annotations": {names.CORDON: "0,GPU-a-1"}},
            "1 node(s) had 2 cordoned cards.",
            id="cordoned",
        ),
        pytest.param(
            (sick(0, 16), sick(1, 16, "mig"), card(2, 16)),
            {"annotations": {names.CORDON: "2"}},
            "1 node(s) had 2 unhealthy cards (xid-79, mig) and 1 cordoned card.",
            id="all kinds",
        ),
        pytest.param(
            (sick(0, 16), card(1, 2)),
            {},
            "wants 3, most free 2 (of 2), not counting 16 on an unhealthy card (xid-79).",
            id="another in use is too small",
        ),
        pytest.param((sick(0, 2), sick(1, 2)), {"gpu_mem": 9}, "wants 3, most free 0 (of 2).", id="too small anyway"),
        pytest.param(ONE, {"gpu_mem": 0}, "1 node(s) had no allocatable gpu-mem (device plugin not running)", id="0"),
        pytest.param(ONE, {"unit_mib": 128}, "1 node(s) announced GPU memory in another unit", id="another unit"),
        pytest.param(
            ONE, {"annotations": {names.INVENTORY: "{"}}, "1 node(s) had an unreadable inventory", id="broken"
        ),
        pytest.param(
            ONE,
            {"annotations": {names.INVENTORY: WITHHELD}},
            "1 node(s) could not inject cards into containers, node a: the node's Event GPUNotReady names the cause.",
            id="no way into containers",
        ),
        pytest.param(
            ONE, {"gpu_mem": 2}, "1 Insufficient aliyun.com/gpu-mem: wants 3, most free 2 (of 2)", id="node total"
        ),
    ],
)
def test_a_node_whose_cards_take_no_pod_says_why(
    cards: tuple[Card, ...], options: dict[str, object], words: str
) -> None:
    built = engine()
    refit(built.tables, *cards, **{"gpu_mem": 40, **options})
    assert words in why(place(built))


def test_the_cards_out_of_all_nodes_are_counted_together() -> None:
    built = engine()
    for node, count in (("a", 2), ("b", 8)):
        built.tables.upsert_node(wire_node(node, [sick(index, 16) for index in range(count)], gpu_mem=99))
    assert why(place(built)) == "0/2 nodes are available: 2 node(s) had 10 unhealthy cards (xid-79)."


def test_a_card_listed_by_the_originals_config_map_is_called_so() -> None:
    built = engine(a=[16])
    built.tables.mark_unhealthy("a", frozenset({0}))
    assert "1 node(s) had 1 card listed in ConfigMap unhealthy-gpu-<node>." in why(place(built))


def test_memory_on_a_card_held_exclusively_is_called_so() -> None:
    built = engine(a=[16, 16])
    place(built, "whole", 10, annotations={names.EXCLUSIVE: "true"})
    place(built, "others", 15)
    assert "wants 3, most free 1 (of 16), not counting 6 on a card held exclusively." in why(place(built))
    assert "wants 7, most free 1 (of 16)." in why(place(built, "larger", 7))


def test_an_exclusive_pod_reads_which_card_others_are_on() -> None:
    built = engine(a=[16])
    place(built, "other", 3)
    assert "without other pods: wants 3, most free 0 (of 16), not counting 13 on a card with other pods." in why(
        place(built, "whole", 3, annotations={names.EXCLUSIVE: "true"})
    )


def on_a(built: Engine, name: str, gpu_mem: int, slot: int, *, going: bool = False, **options: object) -> None:
    """A pod on a card of node a. going: it is being deleted."""
    found = bound(pod(name, gpu_mem, **options), "a", on_card(slot, gpu_mem))
    built.tables.add(found)
    if going:
        built.tables.add(msgspec.structs.replace(found, terminating=True))


EXCLUSIVE = {"annotations": {names.EXCLUSIVE: "true"}}


@pytest.mark.parametrize(
    ("gpu_mem", "options", "words"),
    [
        pytest.param(16, {}, "wants 16, most free 4 (of 16), 16 held by 1 terminating pod.", id="a card"),
        pytest.param(
            8,
            {"labels": {names.GPU_COUNT: "2"}},
            "wants 4, most free 0 (of 16), 16 held by 1 terminating pod",
            id="the second of two cards",
        ),
        pytest.param(3, EXCLUSIVE, "wants 3, most free 2 (of 2), 16 held by 1 terminating pod.", id="no pods besides"),
        pytest.param(
            8, {"labels": {names.GPU_COUNT: "2"}, **EXCLUSIVE}, "most free 0 (of 16), 1 node(s)", id="not enough then"
        ),
        pytest.param(17, {}, "wants 17, most free 4 (of 16).", id="never enough"),
    ],
)
def test_memory_that_terminating_pods_hold_is_called_so(gpu_mem: int, options: dict[str, object], words: str) -> None:
    built = engine(a=[16, 16], b=[2])
    on_a(built, "going", 16, 0, going=True)
    on_a(built, "stays", 12, 1)
    assert words in why(place(built, "p", gpu_mem, **options))


def test_terminating_pods_are_counted_on_the_card_that_needs_fewest_units() -> None:
    built = engine(a=[16, 16])
    for number in range(2):
        on_a(built, f"large-{number}", 8, 0, going=True)
        on_a(built, f"small-{number}", 6, 1, going=True)
    assert "wants 16, most free 4 (of 16), 12 held by 2 terminating pods." in why(place(built, "p", 16))


def test_a_card_that_a_terminating_pod_holds_exclusively_is_called_so() -> None:
    built = engine(a=[16])
    on_a(built, "whole", 3, 0, going=True, **EXCLUSIVE)
    assert "wants 5, most free 0 (of 16), 3 held by 1 terminating pod." in why(place(built, "p", 5))


def test_terminating_pods_that_are_gone_hold_nothing() -> None:
    built = engine(a=[16])
    on_a(built, "going", 3, 0, going=True)
    on_a(built, "stays", 12, 0)
    assert "wants 4, most free 1 (of 16), 3 held by 1 terminating pod." in why(place(built, "p", 4))
    built.tables.remove("uid-default-going")
    on_a(built, "next", 3, 0)
    assert "wants 4, most free 1 (of 16)." in why(place(built, "q", 4))


def test_the_reasons_for_a_health_are_bounded() -> None:
    built = engine()
    refit(built.tables, *[sick(index, 16, f"{index}{'x' * 5000}") for index in range(40)], gpu_mem=99)
    assert len(why(place(built))) < 300


def test_a_model_that_no_node_has_is_answered_by_those_there_are() -> None:
    built = engine()
    for number in range(8):
        cards = [replace(card(index, 16, node=f"n{number}"), model=f"M{number}") for index in range(8 - number)]
        built.tables.upsert_node(wire_node(f"n{number}", cards))
    assert why(place(built, annotations={names.CARD_MODELS: "H200"})) == (
        "0/8 nodes are available: 8 node(s) had too few of the requested cards: "
        "there are M0, M1, M2, M3, M4 and 3 more models."
    )


def test_models_that_there_are_too_few_of_are_counted_and_not_listed_as_the_others_are() -> None:
    built = engine()
    cards = [replace(card(index, 16), model="A10" if index else "A100") for index in range(3)]
    built.tables.upsert_node(wire_node("a", cards))
    asked = {"labels": {names.GPU_COUNT: "3"}, "annotations": {names.CARD_MODELS: "A10"}}
    assert why(place(built, "p", 3, **asked)).endswith(
        "too few of the requested cards: wants 3, most on one node 2, others are A100."
    )


def test_the_total_of_a_node_is_never_negative() -> None:
    built = engine(a=[16, 16, 16])
    for slot in range(2):
        filler = pod(f"p{slot}", 16, annotations={names.MEM_IDX: str(slot), names.UNIT_MIB: "1024"})
        built.tables.add(bound(filler, "a"))
    refit(built.tables, card(0, 16), card(1, 16), card(2, 16), gpu_mem=16)
    assert "1 Insufficient aliyun.com/gpu-mem: wants 3, most free 0 (of 16)." in why(place(built))


def reported(node: objects.Node, at: str) -> objects.Node:
    """The kubelet's last report."""
    ready = objects.NodeCondition("Ready", at)
    return msgspec.structs.replace(node, status=msgspec.structs.replace(node.status, conditions=(ready,)))


def test_a_node_without_allocatable_memory_says_since_when_and_what_to_look_at() -> None:
    built = engine()
    for at, gpu_mem in (("T1", 16), ("T2", 0), ("T3", 0)):
        for name in "ab":
            labels = {"seen": at}
            node = wire_node(name, [16], gpu_mem=gpu_mem, labels=labels)
            built.node_changed(reported(node, f"2026-11-22T08:0{name == 'a':d}:0{at[1]}Z"))
    assert why(place(built)) == (
        "0/2 nodes are available: 2 node(s) had no allocatable gpu-mem (device plugin not running), "
        "node b at least since 2026-11-22T08:00:02Z: check the log of the device plugin's pod there."
    )
    built.node_changed(wire_node("b", [16]))
    built.node_changed(wire_node("b", [16], gpu_mem=0))
    built.node_gone("a")
    assert "not running), node b: check the log" in why(place(built, "q"))
