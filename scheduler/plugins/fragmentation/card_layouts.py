"""Card layouts of the nodes, regardless of load and health. They show which requests any node could hold if empty."""

from typing import Final

import numpy as np

from scheduler.plugins.fragmentation.distinct import first_of_each
from scheduler.pods.gpu_request import WHOLE, Selection
from scheduler.state.cards.node_inventory import GpuState, accepted_codes
from scheduler.state.columns.arrays import ALL_ROWS, BoolArray, Int32Array
from scheduler.state.tables import Tables

_ANY_MODEL: Final = Selection()
_OTHER_UNIT: Final = int(GpuState.OTHER_UNIT)
_PRIME: Final = np.uint64(0x100000001B3)


class CardLayouts:
    """Layouts, stored once for all nodes with equal cards. A snapshot: the tables may change later."""

    def __init__(self, tables: Tables) -> None:
        """Layouts of the nodes that announce memory in the scheduler's unit."""
        self._codes = tables.cards.model_code
        self._kinds: list[tuple[Int32Array, Int32Array, BoolArray]] = []  # (units, model, whole), [cards, kinds]
        for group in tables.cards.groups(ALL_ROWS):
            with tables.cards.viewing(group.width):
                known = tables.cards.state[group.rows] != _OTHER_UNIT
                units = np.where(known, tables.cards.units[:, group.rows], 0)
                model = tables.cards.model[:, group.rows]
                whole = tables.cards.traits[:, group.rows] & np.int8(WHOLE) != 0
                number = np.zeros(units.shape[1], dtype=np.uint64)
                for column in (*units, *model, *whole):
                    number = number * _PRIME + column.astype(np.uint64)
                first, _ = first_of_each(number)
                self._kinds.append((units[:, first], model[:, first], whole[:, first]))

    def hold(self, cards: int, units: int, models: Selection) -> bool:
        """Whether a node has at least this many cards of these models, each with at least these units.

        Several cards must be whole: a pod cannot use several MIG instances.
        """
        accepted = accepted_codes(models, self._codes)
        return any(
            bool((np.count_nonzero((sizes >= units) & accepted[model] & (whole | (cards == 1)), axis=0) >= cards).any())
            for sizes, model, whole in self._kinds
        )

    def largest(self, models: Selection = _ANY_MODEL) -> int:
        """Units of the largest card of these models; 0 if there is none."""
        accepted = accepted_codes(models, self._codes)
        return max((int(sizes.max(where=accepted[model], initial=0)) for sizes, model, _ in self._kinds), default=0)
