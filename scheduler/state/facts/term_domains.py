"""Holders of each term in each domain of one topology key, as columns of pairs (term, domain)."""

from typing import Final

import numpy as np

from scheduler.state.columns.arrays import BoolArray, Int64Array, resized
from scheduler.state.columns.labels import LabelColumn

_FIRST_PAIRS: Final = 8


class TermDomains:
    """Pairs with at least one holder, in no particular order.

    Each pair uses the domain's code in the label column, so the code stays assigned as long as the pair exists.
    """

    def __init__(self, column: LabelColumn) -> None:
        """column: of the topology key."""
        self._column = column
        self._place_of: dict[tuple[int, int], int] = {}
        # By position of a pair: slot of the term, code of the domain, number of holders.
        self._slots: Int64Array = np.zeros(_FIRST_PAIRS, dtype=np.int64)
        self._codes: Int64Array = np.zeros(_FIRST_PAIRS, dtype=np.int64)
        self._holders: Int64Array = np.zeros(_FIRST_PAIRS, dtype=np.int64)

    def __bool__(self) -> bool:
        """Whether there are any pairs."""
        return bool(self._place_of)

    @property
    def column(self) -> LabelColumn:
        """The label column of these codes."""
        return self._column

    def count(self, slot: int, domain: str, holders: int) -> None:
        """Change by `holders` the number of pods in `domain` that have the term."""
        code = self._column.values.code(domain)
        place = None if code is None else self._place_of.get((slot, code))
        if place is None:
            place = self._enter(slot, self._column.values.take(domain))
        self._holders[place] += holders
        if not self._holders[place]:
            self._leave(place)

    def among(self, wanted: BoolArray) -> BoolArray:
        """bool[codes + 1], the last of rows without the topology key: domains with a holder of a wanted term.

        wanted: bool[slots].
        """
        pairs = len(self._place_of)
        domains = np.zeros(len(self._column.values) + 1, dtype=np.bool_)
        domains[self._codes[:pairs][wanted[self._slots[:pairs]]]] = True
        return domains

    def sums(self, weights: Int64Array) -> Int64Array:
        """int64[codes + 1], the last of rows without the topology key: the weights of all holders in the domain.

        weights: int64[slots].
        """
        pairs = len(self._place_of)
        each = weights.take(self._slots[:pairs]) * self._holders[:pairs]
        # Most pairs are of terms that do not match.
        (some,) = (each != 0).nonzero()
        # Exact: sums of the weights that pods may have stay far below 2^53.
        sums = np.bincount(self._codes.take(some), weights=each.take(some), minlength=len(self._column.values) + 1)
        return sums.astype(np.int64)

    def _enter(self, slot: int, code: int) -> int:
        place = len(self._place_of)
        if place == len(self._slots):
            shape = (2 * place,)
            self._slots, self._codes = resized(self._slots, shape, 0), resized(self._codes, shape, 0)
            self._holders = resized(self._holders, shape, 0)
        self._place_of[slot, code] = place
        self._slots[place], self._codes[place], self._holders[place] = slot, code, 0
        return place

    def _leave(self, place: int) -> None:
        """Remove a pair; the last one moves to its position."""
        slot, code, last = int(self._slots[place]), int(self._codes[place]), len(self._place_of) - 1
        self._place_of[int(self._slots[last]), int(self._codes[last])] = place
        del self._place_of[slot, code]
        for pairs in (self._slots, self._codes, self._holders):
            pairs[place] = pairs[last]
        self._column.values.drop(code)
