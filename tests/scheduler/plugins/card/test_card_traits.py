"""GpuShare: cards on which memory is enforced, and MIG instances."""

from dataclasses import replace
from typing import Any

import pytest

from config.protocol import names
from config.protocol.inventory import Card
from scheduler.core.engine import Engine
from scheduler.core.scheduling_cycle import NoFit
from scheduler.plugins.card.card_reasons import verdicts
from scheduler.plugins.fragmentation.card_layouts import CardLayouts
from scheduler.pods.gpu_request import Selection
from tests.support.builders import bound, card, engine, pod, wire_node
from tests.support.placing import decided, on_card, place, settle, where, why
from tests.support.preempting import runs, sought

REQUIRED = {names.ISOLATION: names.ISOLATION_REQUIRED}
PARENT = "GPU-parent"
WITHOUT = "node(s) had too few cards on which memory is enforced (gpushare/isolation: required)"


def on(node: str, *kinds: str, units: int = 16, parent: str = "") -> list[Card]:
    """One card for each kind of isolation."""
    return [replace(card(i, units, node=node), isolation=kind, parent=parent) for i, kind in enumerate(kinds)]


def with_nodes(**nodes: list[Card]) -> Engine:
    built = engine()
    for name, cards in nodes.items():
        built.node_changed(wire_node(name, cards))
    return built


@pytest.mark.parametrize("kind", ["driver", "mps", "hami-core", "own", "of-a-later-version"])
def test_a_pod_that_requires_isolation_gets_the_card_that_has_it(kind: str) -> None:
    built = with_nodes(a=on("a", "", ""), b=on("b", "", kind))
    assert where(place(built, annotations=REQUIRED)) == [("b", 1)]


def test_a_pod_that_does_not_care_takes_either() -> None:
    built = with_nodes(a=on("a", "", "driver"))
    assert where(place(built, "p", 16)) == [("a", 0)]
    assert where(place(built, "q", 16)) == [("a", 1)]


def test_without_such_cards_the_message_says_what_is_missing_and_on_how_many_nodes() -> None:
    built = with_nodes(a=on("a", ""), b=on("b", "", ""))
    built.node_changed(wire_node("old", gpu_mem=16, more={names.GPU_MEM: "16", names.GPU_COUNT: "1"}))
    assert why(place(built, annotations=REQUIRED)) == f"0/3 nodes are available: 3 {WITHOUT}."


def test_two_cards_need_it_on_both() -> None:
    built = with_nodes(a=on("a", "driver", ""), b=on("b", "driver", "mps"))
    asked = {"labels": {names.GPU_COUNT: "2"}, "annotations": REQUIRED}
    assert where(place(built, "p", 4, **asked)) == [("b", 0), ("b", 1)]


def test_free_memory_is_counted_on_enforced_cards_only() -> None:
    built = with_nodes(a=on("a", "", "driver"))
    built.pod_assigned(bound(pod("f", 14), "a", on_card(1, 14)))
    assert "1 Insufficient GPU memory on one card: wants 3, most free 2 (of 16)" in why(
        place(built, annotations=REQUIRED)
    )


def test_the_pod_wakes_when_the_inventory_says_that_memory_is_enforced() -> None:
    built = with_nodes(a=on("a", ""), b=on("b", "", ""))
    assert isinstance(place(built, annotations=REQUIRED), NoFit)
    built.node_changed(wire_node("b", on("b", "", "driver")))
    assert settle(built) == ["p"]


def test_memory_that_becomes_free_on_advisory_cards_is_no_question() -> None:
    built = with_nodes(a=on("a", "", "driver"))
    for slot in range(2):
        built.pod_assigned(bound(pod(f"f{slot}", 16), "a", on_card(slot, 16)))
    assert isinstance(place(built, annotations=REQUIRED), NoFit)
    built.pod_gone("uid-default-f0")
    assert not built.run_hint(1.0)
    built.pod_gone("uid-default-f1")
    assert settle(built) == ["p"]


def test_nobody_is_evicted_from_an_advisory_card_for_it() -> None:
    built = with_nodes(a=on("a", ""), b=on("b", "", "mps"))
    runs(built, "cheap", "a", units=16, priority=0)
    runs(built, "cheaper", "b", units=16, priority=0)
    runs(built, "dear", "b", card=1, units=16, priority=3)
    found = sought(built, pod("p", 8, priority=5, annotations=REQUIRED)).preemption
    assert found is not None
    assert (found.node, [victim.key.name for victim in found.victims]) == ("b", ["dear"])


def test_preemption_is_not_tried_where_no_card_is_enforced() -> None:
    built = with_nodes(a=on("a", ""))
    runs(built, "cheap", "a", units=16, priority=0)
    assert not built.queries.evaluate(pod("p", 8, priority=5, annotations=REQUIRED)).resolvable.size
    assert built.queries.evaluate(pod("p", 8, priority=5)).resolvable.size == 1


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        pytest.param({}, ["", "", ""], id="one card"),
        pytest.param({"annotations": REQUIRED}, ["memory is not enforced", "", ""], id="enforced"),
        pytest.param({"labels": {names.GPU_COUNT: "2"}}, ["", "", "one MIG instance, not a card"], id="several cards"),
        pytest.param(
            {"labels": {names.GPU_COUNT: "2"}, "annotations": REQUIRED | {names.CARD_UUIDS: "GPU-a-1"}},
            ["not a requested UUID", "", "not a requested UUID"],
            id="the pod's own selection comes first",
        ),
    ],
)
def test_each_card_says_what_it_lacks(options: dict[str, Any], expected: list[str]) -> None:
    built = with_nodes(a=[*on("a", "", "driver"), replace(card(2, 16), isolation="driver", parent=PARENT)])
    asked = pod("p", 4, **options)
    judged = built.queries.evaluate(asked)
    assert [verdict.why for verdict in verdicts(asked, built.tables, judged.state, 0)] == expected


def test_a_pod_with_several_cards_gets_no_mig_instances() -> None:
    built = with_nodes(a=on("a", "", "", parent=PARENT), b=[*on("b", ""), replace(card(1, 8, node="b"), parent=PARENT)])
    assert why(place(built, "p", 4, labels={names.GPU_COUNT: "2"})) == (
        "0/2 nodes are available: 2 node(s) had too few whole cards (CUDA uses one MIG instance per process)."
    )
    built.node_changed(wire_node("b", on("b", "", "")))
    assert settle(built) == ["p"]


def test_an_instance_is_a_card_like_any_other_for_one_card() -> None:
    built = with_nodes(a=on("a", "driver", parent=PARENT))
    assert where(place(built, "p", 4, annotations={**REQUIRED, names.EXCLUSIVE: "true"})) == [("a", 0)]
    assert isinstance(decided_for(built, "q", 4), NoFit)


def decided_for(built: Engine, name: str, units: int) -> object:
    built.pod_waiting(pod(name, units), 0.0)
    return decided(built)


def test_a_request_for_several_cards_that_only_instances_could_hold_is_never_usual() -> None:
    built = with_nodes(a=on("a", "", "", units=8, parent=PARENT), b=on("b", "", units=16))
    layouts = CardLayouts(built.tables)
    anything = Selection()
    assert [layouts.hold(cards, 8, anything) for cards in (1, 2)] == [True, False]


def test_the_uuid_of_the_parent_selects_no_instance() -> None:
    built = with_nodes(a=on("a", "", "", parent=PARENT))
    assert "too few of the requested cards" in why(place(built, annotations={names.CARD_UUIDS: "GPU-parent"}))


def test_a_pod_gets_a_card_of_its_compute_mode() -> None:
    built = with_nodes(a=[card(0, 16), replace(card(1, 16), compute="mps")])
    assert where(place(built, "p", 4, annotations={names.COMPUTE_MODE: "mps"})) == [("a", 1)]
    assert where(place(built, "q", 4, annotations={names.COMPUTE_MODE: "time-slicing"})) == [("a", 0)]


@pytest.mark.parametrize(
    ("mode", "compute", "why_not", "of_card"),
    [
        pytest.param("mps", "", "cards with MPS (gpushare/compute-mode: mps)", "without MPS", id="with MPS"),
        pytest.param(
            "time-slicing", "mps", "cards without MPS (gpushare/compute-mode: time-slicing)", "with MPS", id="without"
        ),
    ],
)
def test_without_cards_of_its_compute_mode_the_pod_waits_for_one(
    mode: str, compute: str, why_not: str, of_card: str
) -> None:
    asked = {"annotations": {names.COMPUTE_MODE: mode}}
    built = with_nodes(a=[replace(card(0, 16), compute=compute)])
    waiting = pod("p", 4, **asked)
    judged = built.queries.evaluate(waiting)
    assert [verdict.why for verdict in verdicts(waiting, built.tables, judged.state, 0)] == [of_card]
    assert why(place(built, "p", 4, **asked)) == f"0/1 nodes are available: 1 node(s) had too few {why_not}."
    built.node_changed(wire_node("a", [replace(card(0, 16), compute="" if compute else "mps")]))
    assert settle(built) == ["p"]


@pytest.mark.parametrize("cordon", [PARENT, "0", "GPU-a-1"])
def test_a_cordon_of_a_split_card_holds_for_its_instances(cordon: str) -> None:
    split = replace(card(0, 0, node="a"), uuid=PARENT, reason="mig")
    instance = replace(card(1, 16, node="a"), uuid="GPU-a-1", parent=PARENT)
    built = engine()
    built.node_changed(wire_node("a", [split, instance], annotations={names.CORDON: cordon}))
    assert "1 node(s) had 1 cordoned card" in why(place(built))
