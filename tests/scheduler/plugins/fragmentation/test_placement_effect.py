"""The policy fragmentation: what is taken first is what pods as they usually come can use least."""

from collections.abc import Mapping

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from config.protocol import names
from config.settings.scheduler import SchedulerConfiguration
from scheduler.core.build import build_engine
from scheduler.core.scheduling_cycle import NoFit, Placement
from scheduler.framework.cycle_state import CycleState
from scheduler.framework.plugin import MAX_SCORE
from scheduler.plugins.card.gpu_share import GpuShare, GpuShareArgs
from scheduler.plugins.fragmentation.placement_effect import on_best_card
from scheduler.plugins.fragmentation.target_workload import TargetWorkload
from scheduler.pods.pod import Pod
from scheduler.state.columns.arrays import ALL_ROWS
from scheduler.state.tables import Tables
from tests.support.builders import bound, card, pod, wire_node
from tests.support.judging import scored, state_of, tables_of
from tests.support.placing import decided, on_card

RULE = GpuShare(GpuShareArgs(node_policy="fragmentation", card_policy="fragmentation"))


def ask(name: str, units: int, cpu: int = 1, cards: int = 1, **annotations: str) -> Pod:
    written = {key.replace("_", "/").replace("0", "-"): value for key, value in annotations.items()}
    return pod(name, units, requests={"cpu": str(cpu)}, labels={names.GPU_COUNT: str(cards)}, annotations=written)


def learned(tables: Tables, usual: Mapping[Pod, int]) -> Tables:
    for asks, times in usual.items():
        for _ in range(times):
            tables.pod_seen(asks, 0.0)
    return tables


def run(tables: Tables, name: str, units: int, node: str, slot: int) -> None:
    """A pod that is there, with one core."""
    tables.add(bound(pod(name, units, requests={"cpu": "1"}), node, on_card(slot, units)))


def slot_of(tables: Tables, asks: Pod, node: str) -> int:
    state = state_of(RULE, asks, tables)
    shares = RULE.reserve(asks, tables, state, tables.row_of[node], 0).cards
    return shares[0].index


def best(tables: Tables, asks: Pod) -> set[str]:
    scores = scored(RULE, asks, tables)
    return {node for node, score in scores.items() if score == max(scores.values())}


@pytest.mark.parametrize(
    ("cards", "usual", "held", "asks", "slot"),
    [
        pytest.param([10] * 3, 6, {0: 7, 1: 4}, ask("p", 3), 0, id="a hole that no usual pod fits into"),
        pytest.param([12] * 2, 6, {0: 4}, ask("p", 2), 0, id="not where a usual pod fits twice"),
        pytest.param([4, 16], 4, {}, ask("p", 2, gpushare_exclusive="true"), 0, id="an exclusive pod takes all of it"),
        pytest.param([10] * 3, 4, {0: 3, 1: 6, 2: 2}, ask("p", 3, gpushare_card0policy="binpack"), 1, id="binpack"),
        pytest.param([10] * 3, 4, {0: 3, 1: 6, 2: 2}, ask("p", 3, gpushare_card0policy="spread"), 2, id="spread"),
        pytest.param([10] * 3, 4, {0: 3, 1: 6, 2: 2}, ask("p", 3, gpushare_card0policy="fragmentation"), 0, id="asked"),
    ],
)
def test_the_policy_of_the_pod_or_else_fragmentation_chooses_the_card(
    cards: list[int], usual: int, held: dict[int, int], asks: Pod, slot: int
) -> None:
    tables = learned(tables_of(wire_node("a", cards)), {ask("usual", usual): 99})
    for on, units in held.items():
        run(tables, f"on-{on}", units, "a", on)

    assert slot_of(tables, asks, "a") == slot


def test_who_runs_anywhere_keeps_off_the_model_that_others_need() -> None:
    tables = tables_of(
        wire_node("a", [card(0, 8, node="a", model="rare")]),
        *(wire_node(name, [card(0, 8, node=name, model="common")]) for name in "bcd"),
    )
    picky = ask("picky", 8, gpushare_card0models="rare")
    learned(tables, {picky: 30, ask("any", 8): 70})

    assert best(tables, ask("p", 8)) == {"b", "c", "d"}


def test_models_are_told_apart_however_many_have_been_announced() -> None:
    """Codes 1 and 4097 are one in twelve bits."""
    tables = tables_of(wire_node("a", [card(0, 8, model="common")]))
    for number in range(16):
        some = [card(slot, 8, node="b", model=f"m{number}-{slot}") for slot in range(256)]
        tables.upsert_node(wire_node("b", some[:-1] if number == 15 else some))
    tables.remove_node("b")
    for number in range(8):
        node = f"n{number}"
        both = [card(0, 8 + number, node=node, model="rare"), card(1, 8 + number, node=node, model="common")]
        tables.upsert_node(wire_node(node, both))
    learned(tables, {ask("picky", 8, gpushare_card0models="rare"): 70, ask("any", 8): 30})
    assert tables.cards.model_code["rare"] - tables.cards.model_code["common"] == 4096

    rows = np.array([tables.row_of[f"n{number}"] for number in range(8)])
    fits = tables.cards.available[:, rows]

    assert on_best_card(ask("p", 8), tables, rows, fits).slots.tolist() == [[1] * 8]


def test_a_model_is_kept_although_nobody_has_asked_for_it_yet() -> None:
    common = [f"n{number}" for number in range(60)]
    tables = tables_of(
        wire_node("a", [card(0, 8, node="a", model="rare")]),
        *(wire_node(name, [card(0, 8, node=name, model="common")]) for name in common),
    )
    learned(tables, {ask("any", 8): 100})

    assert best(tables, ask("p", 8)) == set(common)


def test_how_pods_without_gpu_memory_ask_for_cpu_changes_nothing() -> None:
    usual = {ask("usual", 6): 5}
    tables, besieged = (learned(tables_of(wire_node("a", [10, 10, 10])), usual) for _ in range(2))
    for number in range(1, 201):
        learned(besieged, {pod(f"cpu-{number}", 0, requests={"cpu": f"{number}m"}): 9})

    for seen in (tables, besieged):
        run(seen, "left-3", 7, "a", 0)
        run(seen, "left-6", 4, "a", 1)
        assert slot_of(seen, ask("p", 3), "a") == 0
    assert scored(RULE, ask("p", 3), tables) == scored(RULE, ask("p", 3), besieged)


@pytest.mark.parametrize("nodes", [1, 12])
def test_cards_without_units_are_worth_nothing_to_anybody(nodes: int) -> None:
    made = [wire_node(f"n{number}", [card(0, 0, node=f"n{number}")]) for number in range(nodes)]
    tables = learned(tables_of(*made), {ask("usual", 6): 5})

    assert len(set(scored(RULE, pod("cpu", requests={"cpu": "1"}), tables).values())) == 1


def test_cards_without_units_do_not_change_which_differences_count() -> None:
    alone = tables_of(wire_node("a", [8, 8]))
    tables = tables_of(wire_node("a", [8, 8]), wire_node("b", [card(slot, 0, node="b") for slot in range(2)]))

    steps = [found.fact(TargetWorkload).columns_of(0).workload.step for found in (tables, alone)]
    assert steps[0] == steps[1]


def test_who_asks_no_gpu_memory_leaves_the_cpu_to_idle_cards() -> None:
    tables = learned(tables_of(wire_node("a", [8] * 4, cpu="8"), wire_node("b", [8] * 4, cpu="8")), {ask("u", 8, 2): 9})
    for slot in range(4):
        run(tables, f"on-b-{slot}", 8, "b", slot)

    assert best(tables, pod("p", requests={"cpu": "2"})) == {"b"}


def test_what_leaves_idle_cards_without_cpu_is_avoided() -> None:
    tables = tables_of(wire_node("a", [8] * 4, cpu="8"), wire_node("b", [8] * 4, cpu="64"))
    learned(tables, {ask("usual", 8, 2): 99})

    assert best(tables, ask("p", 8, 6)) == {"b"}


def test_a_whole_node_is_kept_although_nobody_ever_asked_for_one() -> None:
    tables = learned(tables_of(wire_node("a", [8] * 4), wire_node("b", [8] * 4)), {ask("usual", 8, 1): 99})
    run(tables, "p", 8, "b", 0)

    assert best(tables, ask("another", 8)) == {"b"}


def test_scores_stay_within_their_bounds() -> None:
    tables = learned(tables_of(wire_node("a", [8] * 16), wire_node("b", [1])), {ask("usual", 1): 99})

    for asks in (ask("p", 128, 60, 16), ask("p", 1), pod("p", requests={"cpu": "64"})):
        scores = RULE.score(asks, tables, CycleState(), ALL_ROWS)
        assert ((scores >= 0) & (scores <= MAX_SCORE)).all()


def test_several_cards_are_the_tightest() -> None:
    tables = learned(tables_of(wire_node("a", [8, 8, 8])), {ask("usual", 8): 99})
    run(tables, "p", 4, "a", 2)
    state = state_of(RULE, asks := ask("two", 8, cards=2), tables)

    assert {share.index for share in RULE.reserve(asks, tables, state, 0, 0).cards} == {0, 2}


def test_many_small_pods_leave_room_for_one_of_eight_cards() -> None:
    profile = {
        "pluginConfig": [{"name": "GpuShare", "args": {"nodePolicy": "fragmentation", "cardPolicy": "fragmentation"}}]
    }
    score = {"score": {"disabled": [{"name": "*"}], "enabled": [{"name": "GpuShare"}]}}
    engine, _ = build_engine(SchedulerConfiguration.model_validate({"profiles": [profile | {"plugins": score}]}))
    for number in range(8):
        engine.node_changed(wire_node(f"n{number}", [16] * 8, cpu="96"))
    rng = np.random.default_rng(7)

    def decide(asks: Pod) -> Placement | NoFit:
        engine.pod_seen(asks, 0.0)
        engine.pod_waiting(asks, 0.0)
        return decided(engine)

    for number, units in enumerate(rng.choice([4, 8, 12, 16], size=60).tolist()):
        assert isinstance(decide(ask(f"small-{number}", units)), Placement)

    assert isinstance(decide(ask("large", 128, 48, 8)), Placement)


@pytest.mark.parametrize(
    "asks", [ask("one", 3), ask("none", 0, cpu=2), ask("two", 6, cards=2)], ids=lambda asks: asks.key.name
)
def test_nodes_that_are_alike_are_judged_once_and_get_what_each_would_get_alone(asks: Pod) -> None:
    nodes = [wire_node(f"n{number:03}", [10, 10, 8 + number % 2]) for number in range(300)]
    tables = learned(tables_of(*nodes), {ask("usual", 4): 60, ask("large", 9): 30, ask("whole", 18, cards=2): 10})
    for number in range(0, 300, 3):
        run(tables, f"p{number}", 1 + number % 7, f"n{number:03}", number % 2)
    state = state_of(RULE, asks, tables)
    among_all = RULE.score(asks, tables, state, ALL_ROWS)
    rows = [tables.row_of[f"n{number:03}"] for number in range(300)]
    alone = [RULE.score(asks, tables, state_of(RULE, asks, tables), slice(row, row + 1))[0] for row in rows]
    assert among_all[rows].tolist() == alone
    assert 1 < len(set(alone)) < len(alone) // 4


# Of how many cards, in how many ways they differ, how many rows have the new workload, and what of the cards fits.
CLUSTERS = st.tuples(st.sampled_from([3, 10]), st.integers(1, 9), st.integers(0, 40), st.integers(0, 2**32))


@settings(deadline=None, max_examples=40)
@given(CLUSTERS)
def test_a_card_is_the_best_of_a_node_whoever_else_is_judged_with_it(drawn: tuple[int, int, int, int]) -> None:
    width, kinds, reached, seed = drawn
    rng = np.random.default_rng(seed)
    models = ["common", "rare"]
    nodes = [
        [card(slot, 10, node=f"n{n}", model=models[(n + slot) % kinds % 2]) for slot in range(width)] for n in range(40)
    ]
    tables = tables_of(*(wire_node(f"n{number}", cards) for number, cards in enumerate(nodes)))
    learned(tables, {ask("usual", 4): 60, ask("large", 9): 30})
    for number in range(40):
        run(tables, f"p{number}", 1 + number % kinds, f"n{number}", number % 2)
    columns = tables.fact(TargetWorkload).columns_of(0)
    columns.begin(columns.workload.reweighted(rng.uniform(0.5, 2.0, len(columns.workload.weights))))
    columns.reached = reached
    rows, asks = np.arange(40), ask("p", 1)
    columns.work_out(rows)
    fits = (rng.random((len(tables.cards.free), kinds))[:, rows % kinds] < 0.7) & tables.cards.available[:, rows]

    among_all = on_best_card(asks, tables, rows, fits)

    for row in np.logical_or.reduce(fits).nonzero()[0].tolist():
        alone = on_best_card(asks, tables, slice(row, row + 1), fits[:, row : row + 1])
        assert (among_all.scores[row], among_all.slots[0, row]) == (alone.scores[0], alone.slots[0, 0])
        assert fits[alone.slots[0, 0], row]
