"""GpuShare judges a row that changed with Python's numbers: what it says and takes is what the arrays say of it."""

from typing import NamedTuple

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from config.protocol import names
from scheduler.framework.card_rules import CARD_RULES, CardRules
from scheduler.framework.cycle_state import CycleState
from scheduler.plugins.card.card_choice import chosen_slots, eligible, fitting, slots_on
from scheduler.plugins.card.gpu_share import GpuShare
from scheduler.plugins.card.gpu_sharers_per_card import GpuSharersPerCard, GpuSharersPerCardArgs
from scheduler.pods.gpu_request import PlacementPolicy
from scheduler.pods.pod import Pod
from scheduler.state.columns.arrays import Rows
from scheduler.state.tables import Tables
from tests.support.builders import UNIT_MIB, bound, pod, wire_node
from tests.support.judging import tables_of

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
        said = {names.MEM_IDX: str(one.card), names.MEM_POD: str(one.units), names.UNIT_MIB: str(UNIT_MIB)}
        built.target.note(running, 0.0)
        built.add(bound(running, f"n{one.node}", said))
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
