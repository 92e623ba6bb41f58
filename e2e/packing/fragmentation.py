"""The expected fragmentation of nodes, as published, and how much of it a pod takes away.

"Beware of Fragmentation: Scheduling GPU-Sharing Workloads with Fragmentation Gradient Descent" (USENIX ATC '23), with
the rounding and the order of the sums of its authors' simulator: docs/evidence/packing.md.
"""

from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from e2e.packing.workload import Workload

_CARD: Final = 1000
# Why units are fragments; sums are kept apart, and added up in this order, since floats are.
_REASONS: Final = 6
_LACKS_BOTH, _LACKS_CARDS, _LACKS_CPU, _NO_GPU_ASKED, _NO_GPU_ASKED_LACKS_CPU, _OTHER_MODEL = range(_REASONS)


@dataclass(frozen=True, slots=True)
class Nodes:
    """cpu: int64[nodes], free millis. free: int64[cards, nodes], free units. allowed: bool[asks, nodes], by model."""

    cpu: NDArray[np.int64]
    free: NDArray[np.int64]
    allowed: NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class Needed:
    """What the pod asks. units: of each of `cards` cards."""

    cpu: int
    units: int
    cards: int

    @property
    def shares(self) -> bool:
        """Whether it takes part of a card."""
        return self.cards == 1 and self.units < _CARD


def scores_of(workload: Workload, nodes: Nodes, needed: Needed) -> NDArray[np.int64]:
    """int64[cards, nodes], 0..100: what placing the pod there scores; -1 where it does not fit.

    Of the cards of a node with the same free units the first is scored. Of a pod that shares no card there is one row
    of scores, whichever cards it takes.
    """
    there, lesser = _counted(workload, nodes.free)
    idle = nodes.free.sum(axis=0)
    before = _fragments(workload, nodes.allowed, nodes.cpu, idle, there, lesser)
    if not needed.shares:
        return _whole(workload, nodes, needed, before)
    scores = np.full(nodes.free.shape, -1, dtype=np.int64)
    card, on = (_first_of_equals(nodes.free) & (nodes.free >= needed.units) & (nodes.cpu >= needed.cpu)).nonzero()
    own = nodes.free[card, on]
    left = own - needed.units
    fewer = (own >= workload.units).astype(np.int64) - (left >= workload.units)
    less = np.where(left < workload.units, left, 0) - np.where(own < workload.units, own, 0)
    after = _fragments(
        workload,
        nodes.allowed[:, on],
        nodes.cpu[on] - needed.cpu,
        idle[on] - needed.units,
        there[:, on] - fewer,
        lesser[:, on] + less,
    )
    scores[card, on] = _score(before[on] - after)
    return scores


def _whole(workload: Workload, nodes: Nodes, needed: Needed, before: NDArray[np.float64]) -> NDArray[np.int64]:
    """As `scores_of`, of a pod that takes the first free cards whole, or none."""
    fits = nodes.free >= max(needed.units, 1)
    taken = fits & (np.cumsum(fits, axis=0) <= needed.cards)
    free = nodes.free - np.where(taken, needed.units, 0)
    there, lesser = _counted(workload, free)
    after = _fragments(workload, nodes.allowed, nodes.cpu - needed.cpu, free.sum(axis=0), there, lesser)
    roomy = (np.count_nonzero(fits, axis=0) >= needed.cards) & (nodes.cpu >= needed.cpu)
    return np.where(roomy, _score(before - after), -1)[np.newaxis]


def _first_of_equals(free: NDArray[np.int64]) -> NDArray[np.bool_]:
    """bool[cards, nodes]: no card before it on its node has as many units."""
    first = np.ones(free.shape, dtype=np.bool_)
    for card in range(1, len(free)):
        first[card] = ~(free[:card] == free[card]).any(axis=0)
    return first


def _counted(workload: Workload, free: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """int64[asks, nodes] both: cards that have the units of each ask; free units of those that have not."""
    there = np.zeros((len(workload.units), free.shape[1]), dtype=np.int64)
    lesser = np.zeros_like(there)
    for own in free:
        enough = own >= workload.units
        there += enough
        lesser += np.where(enough, 0, own)
    return there, lesser


def _fragments(  # noqa: PLR0917 - columns of the same nodes
    workload: Workload,
    allowed: NDArray[np.bool_],
    cpu: NDArray[np.int64],
    idle: NDArray[np.int64],
    there: NDArray[np.int64],
    lesser: NDArray[np.int64],
) -> NDArray[np.float64]:
    """float64[nodes]: units that a pod of the workload can be expected to find and not to be able to use.

    allowed: as in Nodes. cpu: free. idle: free units of all cards. there, lesser: as `_counted`.
    """
    has_cpu, has_cards = cpu >= workload.cpu_milli, there >= workload.cards
    reason = np.where(has_cpu, _LACKS_CARDS, np.where(has_cards, _LACKS_CPU, _LACKS_BOTH))
    of_cpu_only = np.where(has_cpu, _NO_GPU_ASKED, _NO_GPU_ASKED_LACKS_CPU)
    reason = np.where(allowed, reason, _OTHER_MODEL)
    reason = np.where(workload.cards == 0, of_cpu_only, reason)
    usable = has_cpu & has_cards & allowed & (workload.cards > 0)
    amount = workload.share * np.where(usable, lesser, idle)
    total = np.zeros(len(cpu), dtype=np.float64)
    for each in range(_REASONS):
        because = reason == each
        if because.any():
            # One after the other: `sum` adds pairs of them, which is another float.
            total += np.cumsum(np.where(because, amount, 0.0), axis=0)[-1]
    return total


def _score(gained: NDArray[np.float64]) -> NDArray[np.int64]:
    """0..100. Rounded, or what is the same to a hair would not be the same."""
    return np.trunc(100 / (1 + np.exp(-gained / _CARD))).astype(np.int64)
