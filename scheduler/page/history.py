"""How full the cluster was, minute by minute, for the last hours; since this process was started.

What is split is the share of free memory on cards that pods are on already: memory that no pod gets which needs a card
for itself, or more than any card in use has left.
"""

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Final

import msgspec
import numpy as np

from scheduler.state.tables import Tables

EVERY_S: Final = 60.0
POINTS: Final = 360


class Point(msgspec.Struct, rename="camel"):
    """A minute. at_s: Unix seconds. units, booked: of the usable cards. split: 0 to 1, see the module.

    empty, cards: usable cards that nobody is on, and all that are usable. waiting: pods.
    """

    at_s: int
    units: int
    booked: int
    split: float
    empty: int
    cards: int
    waiting: int


def point(tables: Tables, waiting: int, at_s: float) -> Point:
    """As the tables are now."""
    stored = tables.cards.stored
    usable = stored.usable
    units, taken = stored.units[usable].astype(np.int64), stored.taken[usable]
    free, used = np.maximum(units - taken, 0), stored.holders[usable] > 0
    left = int(free.sum())
    return Point(
        at_s=int(at_s),
        units=int(units.sum()),
        booked=int(np.minimum(taken, units).sum()),
        split=round(int(free[used].sum()) / left, 4) if left else 0.0,
        empty=int(np.count_nonzero(~used)),
        cards=len(units),
        waiting=waiting,
    )


class History:
    """The last POINTS minutes. wall_s: Unix seconds."""

    def __init__(self, tables: Tables, lengths: Callable[[], dict[str, int]], wall_s: Callable[[], float]) -> None:
        self._tables, self._lengths, self._wall_s = tables, lengths, wall_s
        self._points: deque[Point] = deque(maxlen=POINTS)

    def points(self) -> list[Point]:
        """The oldest first; the last one is of now."""
        return [*self._points, self._now()]

    async def run(self) -> None:
        """Note one each minute, until cancelled."""
        while True:
            await asyncio.sleep(EVERY_S)
            self._points.append(self._now())

    def _now(self) -> Point:
        return point(self._tables, sum(self._lengths().values()), self._wall_s())
