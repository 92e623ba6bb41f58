"""GpuShare: which nodes and cards a pod fits, and which are preferred."""

import json
from dataclasses import replace

import numpy as np
import pytest

from config.protocol import names
from config.protocol.inventory import Health
from scheduler.core.engine import Engine
from scheduler.core.scheduling_cycle import NoFit, Placement
from scheduler.framework.plugin import MAX_SCORE
from scheduler.plugins.card.gpu_share import GpuShare, GpuShareArgs, PlacementPolicyName
from tests.support.builders import bound, card, engine, pod, wire_node
from tests.support.judging import scored, tables_of
from tests.support.placing import NOW_NS, decided, on_card, refit, where, why


def place(built: Engine, name: str = "p", gpu_mem: int | list[int] = 3, **options: object) -> Placement | NoFit:
    """Queue one pod and decide for it; nothing is bound."""
    built.pod_waiting(pod(name, gpu_mem, **options), 0.0)
    return decided(built)


@pytest.mark.parametrize(
    ("nodes", "policy", "asks", "expected"),
    [
        pytest.param({"a": [16, 16], "b": [16, 16]}, {}, [3, 3, 3], [("a", 0)] * 3, id="replicas share one card"),
        pytest.param({"a": [16, 8, 12]}, {}, [7], [("a", 1)], id="the tightest card"),
        pytest.param({"a": [16, 8, 12]}, {names.CARD_POLICY: "spread"}, [3], [("a", 0)], id="the emptiest card"),
        pytest.param(
            {"a": [16], "b": [16]}, {names.NODE_POLICY: "spread"}, [3, 3], [("a", 0), ("b", 0)], id="the emptiest node"
        ),
    ],
)
def test_the_policies_say_which_card_is_taken(
    nodes: dict[str, list[int]], policy: dict[str, str], asks: list[int], expected: list[tuple[str, int]]
) -> None:
    built = engine(**nodes)
    assert [where(place(built, f"p{n}", units, annotations=policy))[0] for n, units in enumerate(asks)] == expected


def test_gpu_count_takes_its_share_of_different_cards_and_writes_it_down() -> None:
    built = engine(a=[16, 16, 16])
    outcome = place(built, gpu_mem=[8, 4], labels={names.GPU_COUNT: "2"}, init_gpu_mem=[2])
    assert isinstance(outcome, Placement)
    assert [share.units for share in outcome.cards] == [6, 6]
    assert json.loads(outcome.annotations[names.ALLOCATION]) == {"0": {"0": 4, "1": 4}, "1": {"0": 2, "1": 2}}
    assert json.loads(outcome.annotations[names.INIT_ALLOCATION]) == {"0": {"0": 1, "1": 1}}
    assert json.loads(outcome.annotations[names.CARDS]) == {"0": "GPU-a-0", "1": "GPU-a-1"}


def test_the_binding_writes_every_allocation_key() -> None:
    outcome = place(engine(a=[16]), gpu_mem=3)
    assert isinstance(outcome, Placement)
    assert set(outcome.annotations) == set(names.ALLOCATION_KEYS)
    assert outcome.annotations[names.MEM_IDX] == "0"
    assert outcome.annotations[names.MEM_POD] == "3"
    assert outcome.annotations[names.MEM_DEV] == "16"
    assert outcome.annotations[names.MEM_ASSIGNED] == "false"
    assert outcome.annotations[names.MEM_ASSUME_TIME] == str(NOW_NS)


def test_the_watch_confirms_exactly_what_was_assumed() -> None:
    built = engine(a=[16, 16])
    outcome = place(built, gpu_mem=[4, 2], labels={names.GPU_COUNT: "2"})
    assert isinstance(outcome, Placement)
    before = built.tables.cards.free.copy()
    built.tables.add(bound(outcome.pod, outcome.node, outcome.annotations))
    assert np.array_equal(before, built.tables.cards.free)


def test_an_exclusive_pod_takes_an_empty_card_and_keeps_others_off() -> None:
    built = engine(a=[16, 16])
    assert where(place(built, "first", 3)) == [("a", 0)]
    assert where(place(built, "whole", 3, annotations={names.EXCLUSIVE: "true"})) == [("a", 1)]
    assert where(place(built, "next", 3)) == [("a", 0)]
    assert why(place(built, "second-whole", 3, labels={names.PLACEMENT_LABEL: names.PLACEMENT_WHOLE_DEVICE})) == (
        "0/1 nodes are available: "
        "1 Insufficient GPU memory on one card without other pods: "
        "wants 3, most free 0 (of 16), not counting 13 on a card held exclusively."
    )


@pytest.mark.parametrize(
    ("health", "slot"), [(Health.UNHEALTHY, 1), (Health.SUSPECT, 1), (Health.CORDONED, 0), (Health.HEALTHY, 0)]
)
def test_a_card_that_is_not_healthy_takes_no_pod_and_an_announced_cordon_alone_keeps_none_off(
    health: Health, slot: int
) -> None:
    built = engine()
    refit(built.tables, card(0, 16, health=health), card(1, 16))
    assert where(place(built)) == [("a", slot)]


def test_the_originals_config_map_takes_a_card_out_of_use_and_gives_it_back() -> None:
    built = engine(a=[16, 16])
    built.tables.mark_unhealthy("a", frozenset({0}))
    assert where(place(built, "p", 3)) == [("a", 1)]
    built.tables.mark_unhealthy("a", frozenset())
    assert where(place(built, "q", 15)) == [("a", 0)]


def test_a_pod_on_an_unhealthy_card_does_not_count_against_the_rest_of_the_node() -> None:
    built = engine(a=[16, 16])
    built.tables.add(bound(pod("old", 10, annotations={names.MEM_IDX: "0", names.UNIT_MIB: "1024"}), "a"))
    refit(built.tables, card(0, 16, health=Health.UNHEALTHY), card(1, 16))
    assert where(place(built, "p", 16)) == [("a", 1)]


def test_old_totals_count_as_equal_cards() -> None:
    built = engine()
    built.tables.upsert_node(wire_node("a", more={names.GPU_MEM: "30", names.GPU_COUNT: "2"}))
    outcome = place(built, gpu_mem=15)
    assert where(outcome) == [("a", 0)]
    assert isinstance(outcome, Placement)
    assert outcome.annotations[names.CARDS] == "{}"
    assert where(place(built, "q", 15)) == [("a", 1)]
    assert "wants 1, most free 0 (of 15)" in why(place(built, "r", 1))


def test_a_pod_without_gpu_memory_goes_anywhere() -> None:
    built = engine()
    built.tables.upsert_node(wire_node("plain"))
    outcome = place(built, gpu_mem=0)
    assert isinstance(outcome, Placement)
    assert outcome.annotations == {}


def test_a_pod_without_gpu_memory_keeps_off_idle_cards() -> None:
    built = engine(full=[8], part=[8, 8])
    assert [where(place(built, f"p{units}", units)) for units in (8, 4)] == [[("full", 0)], [("part", 0)]]
    for node in (wire_node("idle", [8, 8]), wire_node("none")):
        built.tables.upsert_node(node)
    found = scored(GpuShare(), pod("p"), built.tables)
    assert found == {"idle": 0, "part": 25_000, "full": MAX_SCORE, "none": MAX_SCORE}
    assert not GpuShare(GpuShareArgs(node_policy="spread")).scores(pod("p"))


def test_the_fuller_node_is_taken_however_busy_its_cpu_is() -> None:
    built = engine(a=[8] * 16, b=[8] * 16)
    for number, (node, cpu) in enumerate((("a", "20"), ("a", "20"), ("b", "1"))):
        there = pod(f"there-{number}", 8, requests={"cpu": cpu})
        built.pod_assigned(bound(there, node, on_card(number, 8)))
    assert where(place(built, gpu_mem=8, requests={"cpu": "1"})) == [("a", 2)]


@pytest.mark.parametrize(("policy", "best"), [("binpack", "small"), ("spread", "large")])
def test_of_nodes_as_full_the_one_with_less_cpu_is_taken(policy: PlacementPolicyName, best: str) -> None:
    rule = GpuShare(GpuShareArgs(node_policy=policy, card_policy=policy))
    tables = tables_of(wire_node("large", [8] * 8, cpu="128"), wire_node("small", [8] * 8, cpu="96"))
    both = scored(rule, pod("p", 3), tables)
    assert [node for node, score in both.items() if score == max(both.values())] == [best]

    tables.add(bound(pod("there", 8), "large", on_card(0, 8)))
    now = scored(rule, pod("p", 3), tables)
    assert [node for node, score in now.items() if score == max(now.values())] != [best]


def test_models_restrict_the_cards() -> None:
    built = engine()
    refit(built.tables, replace(card(0, 16), model="T4"), replace(card(1, 80), model="A100"))
    assert where(place(built, "p", 3, annotations={names.CARD_MODELS: "A100"})) == [("a", 1)]
    assert where(place(built, "q", 3, annotations={names.CARD_MODELS: "!A100"})) == [("a", 0)]
