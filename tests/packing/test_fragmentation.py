"""The arithmetic of FGD against its definition, written down once more in the plainest way."""

import math
import random
from typing import Final, NamedTuple

import numpy as np
import pytest

from e2e.packing.fragmentation import Needed, Nodes, scores_of
from e2e.packing.workload import Workload


class Ask(NamedTuple):
    """share: a power of two, so that sums of floats are exact in whatever order."""

    share: float
    cpu: int
    units: int
    cards: int
    models: tuple[str, ...] = ()


ASKS: Final = (
    Ask(0.5, 4000, 1000, 1),
    Ask(0.25, 2000, 470, 1),
    Ask(0.125, 6000, 0, 0),
    Ask(0.0625, 8000, 1000, 4),
    Ask(0.0625, 1000, 810, 1, ("A",)),
)
WORKLOAD: Final = Workload(
    np.array([[ask.share] for ask in ASKS]),
    np.array([[ask.cpu] for ask in ASKS]),
    np.array([[ask.units] for ask in ASKS]),
    np.array([[ask.cards] for ask in ASKS]),
    [ask.models for ask in ASKS],
)


def fragments(cpu: int, free: list[int], model: str) -> float:
    """What a pod of the workload can be expected to find and not to be able to use."""
    total = 0.0
    for ask in ASKS:
        fits = [own for own in free if own >= ask.units]
        usable = ask.cards and cpu >= ask.cpu and len(fits) >= ask.cards and (not ask.models or model in ask.models)
        total += ask.share * (sum(own for own in free if own < ask.units) if usable else sum(free))
    return total


def score(cpu: int, free: list[int], model: str, needed: Needed, slots: list[int]) -> int:
    after = [own - needed.units * (slot in slots) for slot, own in enumerate(free)]
    gained = fragments(cpu, free, model) - fragments(cpu - needed.cpu, after, model)
    return math.trunc(100 / (1 + math.exp(-gained / 1000)))


def expected(cpu: int, free: list[int], model: str, needed: Needed) -> list[int]:
    """Of each card, or of all together."""
    slots = [slot for slot, own in enumerate(free) if own >= max(needed.units, 1)]
    roomy = cpu >= needed.cpu and len(slots) >= needed.cards
    if not needed.shares:
        return [score(cpu, free, model, needed, slots[: needed.cards])] if roomy else [-1]
    return [
        score(cpu, free, model, needed, [slot]) if roomy and slot in slots and own not in free[:slot] else -1
        for slot, own in enumerate(free)
    ]


@pytest.mark.parametrize(
    "needed",
    [Needed(2000, 470, 1), Needed(0, 810, 1), Needed(4000, 1000, 1), Needed(8000, 1000, 4), Needed(6000, 0, 0)],
)
def test_scores_are_those_of_the_definition(needed: Needed) -> None:
    chance = random.Random(7)  # noqa: S311 - the same nodes each time
    cpus = [chance.choice((0, 1000, 3000, 5000, 9000, 64_000)) for _ in range(300)]
    cards = [[chance.choice((0, 190, 500, 530, 1000)) for _ in range(6)] for _ in cpus]
    models = [chance.choice("AB") for _ in cpus]
    allowed = np.array([[not ask.models or model in ask.models for model in models] for ask in ASKS])
    found = scores_of(WORKLOAD, Nodes(np.array(cpus), np.array(cards).T, allowed), needed)
    wanted = [expected(*node, needed) for node in zip(cpus, cards, models, strict=True)]
    assert found.T.tolist() == wanted
    assert len({score for scores in wanted for score in scores}) > 3
