"""Who is counted where."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from config.protocol import inventory, names
from scheduler.tools.inspect import wire
from scheduler.tools.inspect.lists import as_json
from scheduler.tools.inspect.tables import details, summary
from scheduler.tools.inspect.view import Holder, InspectedNode
from tests.scheduler.tools.inspect.listed import Json, cards, node, pod, raws, viewed
from tests.support.repository import ROOT

A = node("gpu-node-a", "30", "2")


def on_a(*pods: Json, announced: str | None = None) -> InspectedNode:
    (shown,) = viewed([node("gpu-node-a", "30", "2", inventory=announced)], pods)
    return shown


def held(holder: Holder) -> tuple[dict[int, int], int]:
    return dict(holder.units), holder.pending


def test_pods_that_are_finished_or_have_no_node_or_no_request_do_not_count() -> None:
    others = [pod("done", "5", phase="Succeeded"), pod("failed", "5", phase="Failed"), pod("none", "0")]
    waiting = pod("waiting", "5", on="")
    assert [holder.name for holder in on_a(*others, waiting, pod("p", "3", idx="0")).holders] == ["p"]


@pytest.mark.parametrize("phase", ["Pending", "Running", "Unknown", ""])
def test_a_pod_in_any_other_phase_counts_and_a_terminating_one_does(phase: str) -> None:
    ending = pod("p", "3", idx="0", phase=phase)
    ending["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    assert on_a(ending).allocated == 3


@pytest.mark.parametrize(
    ("written", "units", "pending"),
    [
        pytest.param({"idx": "1"}, {1: 8}, 0, id="index"),
        pytest.param({"allocation": '{"0":{"0":4,"1":4}}'}, {0: 4, 1: 4}, 0, id="allocation"),
        pytest.param({"allocation": '{"0":{"1":3},"1":{"1":5}}', "idx": "0"}, {1: 8}, 0, id="allocation before index"),
        pytest.param({"allocation": "{", "idx": "1"}, {1: 8}, 0, id="index when the allocation is no JSON"),
        pytest.param({"allocation": '{"x":{"0":8}}', "idx": "1"}, {1: 8}, 0, id="index when a key is no number"),
        pytest.param({"allocation": "{}", "idx": "1"}, {1: 8}, 0, id="index when the allocation is empty"),
        pytest.param({"allocation": '{"0":{"1":8}}', "cards": "["}, {1: 8}, 0, id="allocation without its cards"),
        pytest.param({}, {}, 8, id="nothing"),
        pytest.param({"idx": "-1"}, {}, 8, id="no index"),
        pytest.param({"idx": "one"}, {}, 8, id="an index that is no number"),
        pytest.param({"idx": "2"}, {}, 8, id="a card that the node does not have"),
        pytest.param({"allocation": '{"0":{"0":3,"7":5}}'}, {0: 3}, 5, id="one card of two is there"),
    ],
)
def test_where_a_pod_is(written: dict[str, str], units: dict[int, int], pending: int) -> None:
    (holder,) = on_a(pod("p", "8", **written)).holders
    assert held(holder) == (units, pending)


def test_a_pod_requests_what_its_containers_request_together() -> None:
    two = pod("p", "3", idx="0")
    two["spec"]["containers"] += [{"name": "d", "resources": {"limits": {names.GPU_MEM: 4}}}, {"name": "e"}]
    assert on_a(two).allocated == 7


def test_an_unhealthy_card_keeps_its_total_and_the_node_shows_allocatable() -> None:
    (shown,) = viewed([node("n", "15", "2", inventory=cards(15, 15, unhealthy=frozenset({1})))], [])
    assert shown.total == 15
    assert [(card.total, card.health) for card in shown.cards] == [(15, "healthy"), (15, "unhealthy")]


@pytest.mark.parametrize(
    "unusable",
    [
        pytest.param("{", id="no JSON"),
        pytest.param(cards(15, 15).replace('"version":1', '"version":2'), id="another version"),
        pytest.param(cards(15, 15).replace('"index":1', '"index":60000'), id="an absurd index"),
    ],
)
def test_an_inventory_that_cannot_be_used_leaves_equal_cards(unusable: str) -> None:
    assert [(card.total, card.uuid) for card in on_a(announced=unusable).cards] == [(15, ""), (15, "")]


def test_nodes_without_gpu_memory_are_left_out() -> None:
    plain: Json = {"metadata": {"name": "plain"}, "status": {"addresses": None}}
    away, broken = node("away", "0", "2"), node("broken", "much", "2")
    assert [shown.name for shown in viewed([plain, away, broken, A], [])] == ["gpu-node-a"]


def test_nodes_are_in_the_order_of_their_names_and_pending_pods_come_first() -> None:
    pods = [pod(name, "1", idx=index) for name, index in (("d", "0"), ("c", "1"), ("b", "0"), ("z", "9"))]
    first, second = viewed([node("n", "1", "1"), A], pods)
    assert (first.name, second.name) == ("gpu-node-a", "n")
    assert [holder.name for holder in first.holders] == ["z", "b", "d", "c"]


def test_a_pod_that_two_pages_show_counts_once() -> None:
    assert on_a(pod("p", "3", idx="0"), pod("p", "3", idx="0")).allocated == 3


def test_an_object_that_cannot_be_read_costs_one_object_and_is_named() -> None:
    broken = pod("broken", "3") | {"spec": {"nodeName": 7}}
    read, problems = wire.read(raws([broken, {}, pod("p", "3")]), wire.ListedPod)
    assert [found.metadata.name for found in read] == ["p"]
    assert problems[0].startswith("pod default/broken is left out: Expected `str`, got `int`")
    assert problems[1].startswith("pod without a name is left out: ")


def test_the_document_shows_what_programs_read() -> None:
    _, _, rest = (ROOT / "docs/inspect.md").read_text(encoding="utf-8").partition("```json\n")
    one_card = node("gpu-node-a", "15", "1", "192.168.0.71", inventory=cards(15))
    assert rest.partition("```")[0] == as_json(viewed([one_card], [pod("binpack-0", "7", idx="0")]))


def test_json_shows_where_pods_are_on_a_node_without_an_inventory() -> None:
    (shown,) = json.loads(as_json(viewed([A], [pod("lost", "2"), pod("p", "8", allocation='{"0":{"0":3,"1":5}}')])))[
        "nodes"
    ]
    assert (shown["unitMiB"], shown["allocatedUnits"], shown["pendingUnits"]) == (None, 10, 2)
    assert [(one["name"], one["cards"], one["pendingUnits"]) for one in shown["pods"]] == [
        ("lost", {}, 2),
        ("p", {"0": 3, "1": 5}, 0),
    ]
    assert {(card["uuid"], card["health"]) for card in shown["cards"]} == {("", "")}


# Text, and JSON that is nearly what is expected: shapes, numbers and names that come close.
_SCALARS = st.none() | st.booleans() | st.integers(-2, 2**70) | st.floats() | st.sampled_from(["0", "1", "GPU-0", "é"])
_KEYS = st.sampled_from(["0", "1", "7", "-1", "x", "version", "unitMiB", "cards", "index", "uuid", "units"])
_NEARLY = st.recursive(_SCALARS, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(_KEYS, inner, max_size=3))
_TEXTS = st.text() | _NEARLY.map(json.dumps) | st.just("[" * 3000) | st.just(cards(15, 15))


@given(pods=st.dictionaries(st.sampled_from([names.ALLOCATION, names.CARDS, names.MEM_IDX]), _TEXTS), nodes=_TEXTS)
def test_no_annotation_breaks_it_or_hides_a_unit(pods: dict[str, str], nodes: str) -> None:
    asking = pod("p", "5")
    asking["metadata"]["annotations"] = pods
    shown = on_a(asking, announced=nodes)
    (holder,) = shown.holders
    assert shown.allocated == sum(holder.units.values()) + holder.pending
    assert all(card.index < inventory.MAX_CARDS for card in shown.cards)
    assert "p " in details([shown])
    assert f"{shown.allocated}/30" in summary([shown])
    assert json.loads(as_json([shown]))


@given(_NEARLY)
def test_objects_of_another_kind_do_not_break_reading(document: object) -> None:
    items = raws([{"metadata": {"name": "n"}, "status": document, "spec": document}])
    for objects, problems in (wire.read(items, wire.ListedNode), wire.read(items, wire.ListedPod)):
        assert len(objects) + len(problems) == 1
