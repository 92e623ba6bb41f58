"""`explain` on a cluster in memory: what each card and node says, which come first, and what would help."""

import json
from dataclasses import replace

import msgspec
import pytest

from config.protocol import names
from config.protocol.inventory import Health
from scheduler.kube.objects import Taint
from scheduler.testing.cluster.world import World
from scheduler.tools.cli.manifests import Unanswerable
from scheduler.tools.explain.answers import ExplainedNode, Explanation, Preempting, WhatIfAnswer, as_json
from scheduler.tools.kubectl.explaining import text
from tests.support.builders import card, wire_node, wire_pod
from tests.support.explaining import asked, explained, explained_new, lines, preempts, prose, there, waits, world
from tests.support.repository import ROOT


def crowded() -> World:
    """One node of eight cards: an unhealthy one, a cordoned one, one held exclusively, two pods on each."""
    of = world()
    sick = replace(card(3, 80, health=Health.UNHEALTHY), reason="xid-79")
    of.nodes.add(
        wire_node("a", [sick if index == 3 else card(index, 80) for index in range(8)], annotations={names.CORDON: "5"})
    )
    for index in range(8):
        alone = {names.EXCLUSIVE: "true"} if index == 6 else {}
        there(of, f"web-{index}", 30 + index, "a", index, annotations=alone)
        if index != 6:
            there(of, f"db-{index}", 20, "a", index)
    return of


# One node


def test_whom_preemption_would_remove_is_said() -> None:
    of = world(a=[16, 16], b=[16])
    there(of, "small", 6, "a", 0)
    there(of, "large", 12, "a", 1)
    there(of, "same", 12, "b", 0, priority=9)
    answer = explained_new(of, "urgent", 12, priority=9)
    assert answer.preemption == Preempting(node="a", cards={0: 12}, victims=("default/small",))
    assert answer.message == (
        "0/2 nodes are available: 2 Insufficient GPU memory on one card: wants 12, most free 10 (of 16)."
    )
    assert lines(answer)[-1] == "Preemption would evict default/small from node a and give it card 0 (12)."


def test_a_reason_that_the_table_has_no_room_for_stands_below_it_in_full() -> None:
    of = world(a=[16, 16, 16])
    there(of, "other", 3, "a", 1)
    shown = lines(explained_new(of, "asks", 3, annotations={names.CARD_AFFINITY: "app=web"}))
    (cell,) = (line for line in shown if line.startswith("2 "))
    assert "node(s) had too few cards with a pod th…" in cell
    below = " ".join(shown).partition("Cards 0, 1, 2: ")[2]
    assert below.startswith("node(s) had too few cards with a pod that gpushare/card-affinity matches.")


@pytest.mark.parametrize(
    ("asked", "words"),
    [
        ({names.CARD_MODELS: "H200"}, "not a requested model"),
        ({names.CARD_UUIDS: "GPU-x"}, "not a requested UUID"),
        ({names.CARD_MODELS: "M", names.CARD_UUIDS: "GPU-x"}, "not a requested model or UUID"),
    ],
)
def test_a_card_that_was_not_asked_for_is_called_so(asked: dict[str, str], words: str) -> None:
    of = world(a=[16])
    ((one,),) = (node.cards for node in explained_new(of, "asks", 3, annotations=asked).nearest)
    assert one.why == words


def test_the_guide_shows_what_is_printed() -> None:
    of = crowded()
    answer = explained_new(of, "big", 40)
    guide = (ROOT / "docs/explain.md").read_text(encoding="utf-8")
    assert guide.partition("```text\n")[2].partition("```")[0] == text(answer, 80)
    assert max(map(len, lines(answer))) <= 80
    assert [(one.pod, one.units) for one in answer.nearest[0].cards[0].pods] == [
        ("default/web-0", 30),
        ("default/db-0", 20),
    ]
    assert (answer.state, answer.preemption) == ("waits", None)
    preemption = "preemption: 0/1 nodes are available: 1 No preemption victims found for incoming pod."
    assert answer.message == f"0/1 nodes are available: 1 {answer.nearest[0].rules[0].reason}. {preemption}"


def test_what_would_make_room_was_tried_with_the_same_rules() -> None:
    of = world(a=[80, 80])
    for index in range(2):
        for number in range(4):
            there(of, f"p{index}{number}", 20, "a", index, priority=number)
    (node,) = explained_new(of, "two", 120, labels={names.GPU_COUNT: "2"}).nearest
    assert node.leaving == tuple(f"default/p{index}{number}" for index in range(2) for number in range(3))

    for name in node.leaving:
        of.pods.remove("default", name.partition("/")[2])
    assert explained(of, "two").state == "fits"
    (node,) = explained_new(of, "never", 120).nearest
    assert (node.leaving, node.remedy) == ((), "no pod could make room by ending")


@pytest.mark.parametrize(("name", "typed"), [("a", "a"), ("a; reboot", "'a; reboot'")])
def test_what_an_operator_has_to_do_is_said(name: str, typed: str) -> None:
    """Names in a dump of a cluster are not those that an API server has checked."""
    of = world(wire_node(name, [card(0, 16)], annotations={names.CORDON: "0"}, unschedulable=True))
    (node,) = explained_new(of, "p", 3).nearest
    cordon = f"lift the cordon of its cards: kubectl annotate node {typed} gpushare/cordon-"
    assert node.remedy == f"kubectl uncordon {typed}; {cordon}"
    assert [one.rule for one in node.rules] == ["NodeUnschedulable", "GpuShare"]


@pytest.mark.parametrize(
    ("units", "remedy"),
    [
        pytest.param(
            80, "its cards have to recover: see docs/nodes-and-cards.md and kubectl describe node a", id="fits"
        ),
        pytest.param(100, "no pod could make room by ending", id="larger than the card"),
    ],
)
def test_an_unhealthy_card_helps_only_a_pod_that_it_could_hold(units: int, remedy: str) -> None:
    of = world(wire_node("a", [replace(card(0, 80, health=Health.UNHEALTHY), reason="xid-79"), card(1, 16)]))
    (node,) = explained_new(of, "big", units).nearest
    assert node.remedy == remedy


# Many nodes


@pytest.mark.parametrize(
    ("units", "options", "words"),
    [
        (90, {}, "It is larger than every card (largest 80): request at most 80, or `gpu-count` 2."),
        (170, {}, "It is larger than every card (largest 80): request at most 80."),
        (91, {}, "It is larger than every card (largest 80): request at most 80."),
        (
            20,
            {"annotations": {names.CARD_MODELS: "B"}},
            "It is larger than every card of the models that it accepts (largest 16): request at most 16.",
        ),
        (
            162,
            {"labels": {names.GPU_COUNT: "2"}},
            "It is larger than every card (largest 80): request at most 80 on each card.",
        ),
    ],
)
def test_a_pod_that_no_card_can_ever_hold_is_told_what_to_ask(
    units: int, options: dict[str, object], words: str
) -> None:
    of = world(wire_node("b", [replace(card(0, 16, node="b"), model="B")]), a=[80, 80])
    assert words in explained_new(of, "asks", units, **options).words


def test_of_a_pod_that_a_card_could_hold_no_size_is_said() -> None:
    of = world(a=[80, 80])
    waits(of, "fits", 80)
    waits(of, "none", 0)
    assert not any("larger" in word for name in ("fits", "none") for word in explained(of, name).words)


def test_many_nodes_are_grouped_by_reason_and_the_ten_nearest_are_shown() -> None:
    of = world()
    for number in range(40):
        of.nodes.add(wire_node(f"n{number:02}", [16], unschedulable=number % 4 == 0))
        there(of, f"p{number}", 1 + number % 16, f"n{number:02}", 0)
    answer = explained_new(of, "big", 16)
    assert [(group.nodes, group.rule) for group in answer.reasons] == [(30, "GpuShare"), (10, "NodeUnschedulable")]
    assert [(node.name, node.short_units) for node in answer.nearest[:3]] == [("n01", 2), ("n17", 2), ("n33", 2)]
    assert len(answer.nearest) == 10
    shown = lines(answer)
    assert "30  GpuShare: Insufficient GPU memory on one card: wants 16, most free 14 (of" in shown
    assert "n01       2  GpuShare  fits once default/p1 has ended" in shown
    assert max(map(len, shown)) <= 80


def test_one_node_can_be_named() -> None:
    of = world(a=[16], b=[8])
    waits(of, "p", 9)
    (node,) = explained(of, "p", "b").nearest
    assert (node.name, [one.rule for one in node.rules]) == ("b", ["GpuShare"])
    waits(of, "big", 20)
    assert lines(explained(of, "big"))[0] == "Pod default/big fits on none of 2 nodes."
    shown = lines(explained(of, "big", "b"))
    assert shown[0] == "Pod default/big does not fit on node b."
    assert not [line for line in shown if "node(s)" in line or line.startswith("2  ")]
    (fitting,) = explained(of, "p", "a").nearest
    assert (fitting.rules, fitting.cards[0].why) == ((), "")
    with pytest.raises(Unanswerable, match="there is no node aa; did you mean a"):
        explained(of, "p", "aa")


def test_that_nothing_would_help_is_said_once() -> None:
    shown = lines(explained_new(world(a=[16], b=[8]), "big", 20))
    nothing = "Nothing on these nodes would help: no pod could make room by ending."
    assert [line for line in shown if "help" in line.lower()] == [nothing]


# JSON


def test_the_json_is_the_whole_answer_in_camel_case() -> None:
    of = crowded()
    answer = explained_new(of, "big", 40)
    document = json.loads(as_json(answer))
    assert document["nearest"][0]["shortUnits"] == 10
    assert document["nearest"][0]["cards"][3]["why"] == "unhealthy (xid-79)"
    assert msgspec.json.decode(as_json(answer), type=Explanation) == answer
    what_if = asked(of).what_if(wire_pod("serve", 7), 3)
    assert msgspec.json.decode(as_json(what_if), type=WhatIfAnswer) == what_if


def test_the_document_names_every_field() -> None:
    guide = (ROOT / "docs/develop/json.md").read_text(encoding="utf-8")
    for kind in (Explanation, ExplainedNode, WhatIfAnswer):
        for field in msgspec.structs.fields(kind):
            assert f"`{field.encode_name}`" in guide, field.encode_name


def order(answer: Explanation) -> list[str]:
    return [node.name for node in answer.nearest]


def test_nodes_with_large_cards_come_before_small_ones_and_nodes_without_cards_come_last() -> None:
    of = world(wire_node("cpu"), small=[15], useful=[16, 16])
    for index in range(2):
        there(of, f"full-{index}", 16, "useful", index)
    there(of, "some", 8, "small", 0)
    answer = explained_new(of, "train", 16)
    assert order(answer) == ["useful", "small", "cpu"]
    assert "Node useful: GpuShare" in prose(answer)
    (of_cpu,) = [line for line in lines(answer, 120) if line.startswith("cpu ")]
    assert of_cpu.split()[1] == "-"


def test_nodes_that_its_selector_excludes_come_after_those_that_it_allows() -> None:
    of = world(wire_node("a-empty", [16], labels={"gpu": "old"}), wire_node("b-full", [16], labels={"gpu": "new"}))
    there(of, "full", 16, "b-full", 0)
    assert order(explained_new(of, "train", 16, nodeSelector={"gpu": "new"})) == ["b-full", "a-empty"]


def test_nodes_without_the_models_that_it_asks_for_come_after_those_with_them() -> None:
    of = world(wire_node("a-other", [card(0, 32, model="L4")]), wire_node("b-full", [card(0, 16, model="H100")]))
    there(of, "full", 16, "b-full", 0)
    assert order(explained_new(of, "train", 16, annotations={names.CARD_MODELS: "H100"})) == ["b-full", "a-other"]


def test_a_node_from_which_pods_can_leave_comes_before_one_that_is_closed() -> None:
    of = world(wire_node("a-tainted", [16], taints=(Taint("team", "NoSchedule", "other"),)), wire_node("b-full", [16]))
    there(of, "full", 16, "b-full", 0)
    assert order(explained_new(of, "train", 16)) == ["b-full", "a-tainted"]


def test_the_node_that_it_is_nominated_to_comes_before_all_others() -> None:
    of = world(near=[16], kept=[16])
    there(of, "some", 2, "near", 0)
    there(of, "going", 16, "kept", 0)
    preempts(of, "train", 16, "kept", "going", priority=9)
    assert order(explained(of, "train")) == ["kept", "near"]


def test_of_a_pod_without_gpu_memory_nodes_without_cards_are_as_good_as_others() -> None:
    of = world(wire_node("b-gpu", [16], cpu="1"), wire_node("a-cpu", cpu="1"))
    assert order(explained_new(of, "web", requests={"cpu": "8"})) == ["a-cpu", "b-gpu"]
