"""Free card memory that a workload can use, and its worth.

For one request m and one node, let r be the free units of each card that can be allocated to it:

    usable = (sum of the r that hold a copy of m) x min(1, copies that the CPU allows / copies that the cards allow)

usable is 0 if fewer cards hold a copy than m requests. Memory that is free but not usable is fragmented for m. The
weighted sum of usable over all requests is the node's worth to the workload. A placement is better if it loses less
worth for the memory that it uses.

Sums are of whole numbers, so that their order does not matter: a row gets the same score alone and among others.
Source: Q. Weng et al., Beware of Fragmentation, USENIX ATC 2023, section 3. That paper considers one copy, counts CPU
only if it is too little for that copy, and uses shares as weights; docs/packing.md says why ours differ.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from scheduler.plugins.fragmentation.distinct import distinct
from scheduler.plugins.fragmentation.requests_seen import Shape
from scheduler.state.cards.node_inventory import accepted_codes
from scheduler.state.columns.arrays import BoolArray, Int32Array, RowArray

FloatArray = NDArray[np.float64]
# A unit has this many parts; worth is counted in parts.
PARTS: Final = 65_536
# Makes the number of copies exact: (free + 1/2) / units is never within rounding of a whole number.
_HALF: Final = 0.5
_NO_CPU: Final = 1e-9
# Cards of one size have at most this many different free amounts, usually far fewer. A kilobyte each.
_MOST_KEPT: Final = 1_024


class Room(NamedTuple):
    """Room on some nodes or cards for each ask of a workload. All float64[asks, places], whole numbers.

    free: units on cards that hold a copy. copies: number of copies that these cards hold. cards: number of these cards.
    """

    free: FloatArray
    copies: FloatArray
    cards: FloatArray

    @classmethod
    def of(cls, rooms: FloatArray) -> "Room":
        """Room from rows of numbers. rooms: float64[places, 3 x asks], the Room of each place, flattened."""
        fields = len(cls._fields)
        return cls(*np.ascontiguousarray(rooms.T).reshape(fields, rooms.shape[1] // fields, len(rooms)))


@dataclass(frozen=True, slots=True, eq=False)
class PodMix:
    """Requests with their weights. An ask is a number of units on each of a number of cards of some models.

    shapes: the requests. models: number of models that had a code when this was created. units, cards: float64[asks,
    1]. accepted: bool[asks, models + 1], by code of the model, the last one for codes that came later; None if every
    ask takes every model. ask_of: intp[requests], the ask of each request; cpu_millis: float64[requests, 1]. Requests
    with the same ask are adjacent.
    weights: float64[requests, 1]. total: worth of a unit that every request can use, in PARTS, whole. step: smallest
    difference of worth that counts, in PARTS. If places have different weights, these three have a value per place:
    float64[requests, places], float64[places].
    """

    shapes: tuple[Shape, ...]
    models: int
    units: FloatArray
    cards: FloatArray
    accepted: BoolArray | None
    ask_of: RowArray
    cpu_millis: FloatArray
    weights: FloatArray
    total: float | FloatArray
    step: float | FloatArray
    _on_card: dict[tuple[int, int], FloatArray] = field(default_factory=dict)

    @classmethod
    def of(cls, weighted: Sequence[tuple[Shape, float]], models: Mapping[str, int], step_units: float) -> "PodMix":
        """Create a mix. weighted: (request, weight >= 0); requests without cards or weight are left out.

        models: code of each model. step_units: smallest difference of worth that counts, in units.
        """
        asking = [(shape, weight) for shape, weight in weighted if shape.cards and weight > 0]
        asks = {(shape.units, shape.cards, shape.models): None for shape, _ in asking}
        place = {ask: number for number, ask in enumerate(asks)}
        asking.sort(key=lambda entry: place[entry[0].units, entry[0].cards, entry[0].models])
        accepted = None
        if any(selection for _, _, selection in asks):
            accepted = np.array([accepted_codes(selection, models) for _, _, selection in asks])
        weights = np.array([[weight * PARTS] for _, weight in asking], dtype=np.float64).reshape(-1, 1)
        return cls(
            shapes=tuple(shape for shape, _ in asking),
            models=len(models),
            units=np.array([[units] for units, _, _ in asks], dtype=np.float64).reshape(-1, 1),
            cards=np.array([[cards] for _, cards, _ in asks], dtype=np.float64).reshape(-1, 1),
            accepted=accepted,
            ask_of=np.array([place[s.units, s.cards, s.models] for s, _ in asking], dtype=np.intp),
            cpu_millis=np.array([[max(s.cpu_millis, _NO_CPU)] for s, _ in asking], dtype=np.float64).reshape(-1, 1),
            weights=weights,
            total=float(np.rint(weights.sum())),
            step=step_units * PARTS,
        )

    def weighing(self, shares: Mapping[Shape, float], step_units: float) -> "PodMix":
        """Workload of the same requests with other weights. shares: for each of `shapes`. step_units: see `of`."""
        weights = np.array([[shares[shape] * PARTS] for shape in self.shapes], dtype=np.float64).reshape(-1, 1)
        return self._with(weights, step_units * PARTS)

    def reweighted(self, factors: FloatArray) -> "PodMix":
        """Workload of the same requests with other weights. factors: float64[requests], multiply the weights."""
        return self._with(self.weights * factors[:, np.newaxis], self.step)

    def _with(self, weights: FloatArray, step: float | FloatArray) -> "PodMix":
        return replace(self, weights=weights, total=float(np.rint(weights.sum())), step=step)

    def beside(self, other: "PodMix", mine: BoolArray) -> "PodMix":
        """Workload with weights per place: its own where `mine`, otherwise those of `other`.

        other: the same requests. mine: bool[places].
        """
        return replace(
            self,
            weights=np.where(mine, self.weights, other.weights),
            total=np.where(mine, self.total, other.total),
            step=np.where(mine, self.step, other.step),
        )

    def copies(self, free: FloatArray, model: Int32Array) -> FloatArray:
        """float64[asks, …]: copies that each card holds. free: its free units, >= 0; model: its model's code."""
        shape = (len(self.units), *free.shape)
        found: FloatArray = np.floor((free.reshape(-1) + _HALF) / self.units)
        if self.accepted is not None:
            found *= self.accepted[:, np.minimum(model.reshape(-1), self.accepted.shape[1] - 1)]
        return found.reshape(shape)

    def on_cards(self, free: FloatArray, model: Int32Array) -> FloatArray:
        """float64[cards, 3 x asks]: Room of each card alone, flattened. free, model: see `copies`."""
        copies = self.copies(free, model)
        holds = copies > 0
        return np.ascontiguousarray(np.concatenate([np.where(holds, free, 0.0), copies, holds]).T)

    def on_card(self, free: int, model: int) -> FloatArray:
        """float64[3 x asks]: room on one card.

        Cached, because a changed row usually has cards with the same free units as other rows.
        """
        key = free, 0 if self.accepted is None else model
        found = self._on_card.get(key)
        if found is None:
            found = self.on_cards(np.array([free], dtype=np.float64), np.array([model], dtype=np.int32))[0]
            if len(self._on_card) >= _MOST_KEPT:
                self._on_card.clear()
            self._on_card[key] = found
        return found

    def kinds_of_cards(self, free: FloatArray, model: Int32Array) -> tuple[FloatArray, Int32Array, RowArray]:
        """Return (free units of each kind of card, its model, the kind of each card); many cards are alike."""
        models = 1 if self.accepted is None else self.accepted.shape[1]
        codes = free.astype(np.int64) * models
        if models > 1:
            codes += np.minimum(model, models - 1)
        kinds, like = distinct(codes)
        return (kinds // models).astype(np.float64), (kinds % models).astype(np.int32), like

    def worth(self, room: Room, cpu: FloatArray) -> FloatArray:
        """float64[places], whole: worth of the places, in PARTS of a unit. cpu: free millis of each, >= 0."""
        found: FloatArray = self.worth_by_request(room, cpu).sum(axis=0)
        return found

    def worth_by_request(self, room: Room, cpu: FloatArray) -> FloatArray:
        """float64[requests, places], whole: worth per request."""
        usable = np.where(room.cards >= self.cards, room.free, 0.0)
        allowed = cpu * self.cards / np.maximum(room.copies, 1.0)
        if len(self.ask_of) > len(self.units):
            allowed, usable = allowed[self.ask_of], usable[self.ask_of]
        shares = np.minimum(allowed / self.cpu_millis, 1.0)
        shares *= usable
        shares *= self.weights
        found: FloatArray = np.rint(shares, out=shares)
        return found
