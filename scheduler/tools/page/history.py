"""Usage of the cluster, minute by minute, for the last hours since the start of this process."""

import asyncio
import time
from collections import deque
from typing import Final

import msgspec
import numpy as np

from scheduler.core.engine import Engine
from scheduler.plugins.fragmentation.measure import fragmentation_of

_EVERY_S: Final = 60.0
_MOST_POINTS: Final = 360


class HistoryPoint(msgspec.Struct, rename="camel"):
    """Usage in one minute. at_s: Unix seconds. units, booked: on the usable cards.

    fragmented: 0 to 1, the share of free memory that typical pods cannot use. empty: number of usable cards without
    pods. cards: number of usable cards. waiting: number of waiting pods.
    """

    at_s: int
    units: int
    booked: int
    fragmented: float
    empty: int
    cards: int
    waiting: int


def point(engine: Engine, at_s: float) -> HistoryPoint:
    """Return the point for the cluster as it is. Takes 20 ms for 5,000 nodes of 8 cards."""
    stored = engine.tables.cards.stored
    usable = stored.usable
    units, taken = stored.units[usable].astype(np.int64), stored.taken[usable]
    used = stored.holders[usable] > 0
    free, unusable = fragmentation_of(engine.tables).total()
    return HistoryPoint(
        at_s=int(at_s),
        units=int(units.sum()),
        booked=int(np.minimum(taken, units).sum()),
        fragmented=round(unusable / free, 4) if free else 0.0,
        empty=int(np.count_nonzero(~used)),
        cards=len(units),
        waiting=sum(engine.queue.lengths().values()),
    )


class UsageHistory:
    """Usage in the last hours."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._points: deque[HistoryPoint] = deque(maxlen=_MOST_POINTS)

    def points(self) -> list[HistoryPoint]:
        """Return the points, oldest first. The last one is current."""
        return [*self._points, self._now()]

    async def run(self) -> None:
        """Record one point each minute, until cancelled."""
        while True:
            await asyncio.sleep(_EVERY_S)
            self._points.append(self._now())

    def _now(self) -> HistoryPoint:
        return point(self._engine, time.time())
