"""Cards over columns: holders that a selector matches, as pod by pod; one row with Python's numbers, as by arrays."""

from collections import Counter
from typing import Any, NamedTuple

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from config.protocol import names
from scheduler.framework.card_rules import CARD_RULES, CardRules
from scheduler.framework.cycle_state import CycleState
from scheduler.plugins.card.card_affinity import CardHolders
from scheduler.plugins.card.card_choice import chosen_slots, eligible, fitting, slots_on
from scheduler.plugins.card.gpu_share import GpuShare
from scheduler.plugins.card.gpu_sharers_per_card import GpuSharersPerCard, GpuSharersPerCardArgs
from scheduler.pods.gpu_request import PlacementPolicy
from scheduler.pods.pod import Pod
from scheduler.state.columns.arrays import ALL_ROWS, BoolArray, Rows
from scheduler.state.columns.selectors import match, of_text
from scheduler.state.tables import Tables
from tests.support.builders import bound, cluster, pod, wire_node
from tests.support.judging import tables_of
from tests.support.placing import on_card

# Holders of cards

LABELS = (
    {},
    {"app": "web"},
    {"app": "db"},
    {"app": "web", "tier": "a"},
    *({"app": "web", "number": str(number)} for number in range(12)),
)
SELECTORS = ("app", "!app", "app=web", "app!=web", "app in (db, web),!tier", "number", "number in (3, 5)", "app,none")
HOLDERS = st.tuples(st.integers(0, 99), st.integers(0, 3), st.integers(0, len(LABELS) - 1))


class Counted(dict[str, str]):
    """Labels that count how often they are looked at."""

    looks = 0

    def get(self, key: str, default: Any = None, /) -> Any:  # noqa: ANN401 - as dict
        Counted.looks += 1
        return super().get(key, default)


def of_a_hundred_nodes() -> Tables:
    return cluster(**{f"n{number:02}": [16] * 4 for number in range(100)})


def expected(there: Counter[tuple[int, int, int]], selector: str, tables: Tables) -> BoolArray:
    found = np.zeros((4, tables.capacity), dtype=np.bool_)
    for (row, slot, labels), pods in there.items():
        found[slot, row] |= pods > 0 and match(of_text(selector), LABELS[labels])
    return found


@given(st.lists(st.tuples(HOLDERS, st.booleans()), max_size=60), st.sampled_from(SELECTORS))
@settings(max_examples=60, deadline=None)
def test_a_selector_finds_the_same_cards_over_columns_as_pod_by_pod(
    steps: list[tuple[tuple[int, int, int], bool]], first: str
) -> None:
    tables = of_a_hundred_nodes()
    holders, there = CardHolders(tables), Counter[tuple[int, int, int]]()
    for number, (holder, comes) in enumerate(steps):
        if not comes and not there[holder]:
            continue
        row, slot, labels = holder
        holders.book(row, (slot,), ("default", LABELS[labels]), 1 if comes else -1)
        there[holder] += 1 if comes else -1
        if number % 7 == 0:
            holders.matching("default", of_text(first), ALL_ROWS)
    for selector in SELECTORS:
        whole = expected(there, selector, tables)
        for rows in (ALL_ROWS, slice(0, 1), np.arange(5, 9), np.arange(10, 90)):
            found = holders.matching("default", of_text(selector), rows)
            assert (found == whole[:, rows]).all(), (selector, rows)


def of_a_hundred_pods(keys: list[str]) -> CardHolders:
    holders = CardHolders(of_a_hundred_nodes())
    for number in range(100):
        labels = Counted({"pod-index": str(number), **dict.fromkeys(keys, "v")})
        holders.book(number, (0,), ("default", labels), 1)
    return holders


def test_a_selector_looks_at_no_pod_whatever_keys_it_names() -> None:
    keys = [f"k{number}" for number in range(16)]
    holders = of_a_hundred_pods(keys)
    selectors = (
        ",".join(("pod-index!=7", *(f"{key} in (v, w7)" for key in keys[1:]))),
        ",".join(("k0", "k1=other", *(f"{key}!=w" for key in keys[2:]))),
        f"pod-index in ({','.join(map(str, range(40)))})",
    )
    Counted.looks = 0
    found = [holders.matching("default", of_text(selector), ALL_ROWS).sum() for selector in selectors]
    assert (found, Counted.looks) == ([99, 0, 40], 0)


# One row of cards

RULE = GpuShare()
POLICIES = st.sampled_from(list(PlacementPolicy))
EXCLUSIVE = {names.EXCLUSIVE: "true"}


class There(NamedTuple):
    """A pod on a node: the number of its node, its card, what it has of it."""

    node: int
    card: int
    units: int
    alone: bool


# The last one may be wider than the others.
NODES = st.tuples(*[st.lists(st.sampled_from([4, 8, 16]), min_size=1, max_size=most) for most in (3, 3, 3, 6)])
PODS = st.lists(st.builds(There, st.integers(0, 3), st.integers(0, 5), st.integers(1, 16), st.booleans()), max_size=8)
ASKS = st.builds(
    lambda each, cards, card_policy, node_policy, alone: pod(
        "asks",
        each * cards,
        labels={names.GPU_COUNT: str(cards)},
        annotations={
            names.CARD_POLICY: card_policy,
            names.NODE_POLICY: node_policy,
            **(EXCLUSIVE if alone else {}),
        },
    ),
    st.integers(1, 9),
    st.integers(1, 2),
    POLICIES,
    POLICIES,
    st.booleans(),
)


def tables(nodes: tuple[list[int], ...], pods: list[There]) -> Tables:
    """Those nodes with those pods; a card that its node lacks is one that it has lost."""
    built = tables_of(*(wire_node(f"n{number}", cards) for number, cards in enumerate(nodes)))
    for number, one in enumerate(pods):
        running = pod(f"p{number}", one.units, annotations=EXCLUSIVE if one.alone else {})
        built.pod_seen(running, 0.0)
        built.add(bound(running, f"n{one.node}", on_card(one.card, one.units)))
    return built


def judged(asks: Pod, over: Tables, most: int | None, rows: Rows) -> list[int]:
    """The score of the row; empty where it is rejected."""
    state = CycleState()
    sharers = GpuSharersPerCard(GpuSharersPerCardArgs(max_sharers=most))
    state.write(CARD_RULES, CardRules(filters=(sharers,)))
    if any(rejection.rejected.any() for rejection in RULE.filter(asks, over, state, rows)):
        return []
    scores: list[int] = RULE.score(asks, over, state, rows).tolist()
    return scores


@given(NODES, PODS, ASKS, st.none() | st.integers(1, 2))
def test_one_row_is_judged_as_the_arrays_judge_it(
    nodes: tuple[list[int], ...], pods: list[There], asks: Pod, most: int | None
) -> None:
    over = tables(nodes, pods)
    for row in over.row_of.values():
        by_arrays = judged(asks, over, most, np.array([row], dtype=np.intp))
        assert judged(asks, over, most, slice(row, row + 1)) == by_arrays


@given(NODES, PODS, ASKS, st.sampled_from(PlacementPolicy))
def test_the_cards_of_one_row_are_those_that_the_arrays_choose(
    nodes: tuple[list[int], ...], pods: list[There], asks: Pod, policy: PlacementPolicy
) -> None:
    over, request = tables(nodes, pods), asks.template.gpu_request
    assert request is not None
    for row in over.row_of.values():
        cards, rows = over.cards, slice(row, row + 1)
        with cards.viewing(cards.width_of(row)):
            fits = fitting(cards, request, rows)
            found = slots_on(cards, request, policy, row, eligible(cards, request, rows))
            chosen = chosen_slots(cards, request, policy, rows, fits)[:, 0].tolist()
        assert found == (chosen if fits.sum() >= request.cards else [])
