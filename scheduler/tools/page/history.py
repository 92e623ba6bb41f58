"""Usage of the cluster, minute by minute, for the last hours since the start of this process."""

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Final

import msgspec
import numpy as np

from scheduler.process.documents import SharedAnswer
from scheduler.process.scrape import with_pauses
from scheduler.state.packing.fragmentation import Copied
from scheduler.state.tables import Tables

EVERY_S: Final = 60.0
POINTS: Final = 360
# Shared by all concurrent callers.
_KEPT_S: Final = 1.0


class HistoryPoint(msgspec.Struct, rename="camel"):
    """Usage in one minute. at_s: Unix seconds. units, booked: on the usable cards.

    fragmented: 0 to 1, the share of free memory that typical pods cannot use, see `scheduler.state.packing`. empty:
    number of usable cards without pods. cards: number of usable cards. waiting: number of waiting pods.
    """

    at_s: int
    units: int
    booked: int
    fragmented: float
    empty: int
    cards: int
    waiting: int


async def point(tables: Tables, waiting: int, at_s: float) -> HistoryPoint:
    """Compute a point from the tables at the start of the call."""
    # Both in one step; the slow part runs in another thread.
    copied = Copied.of(tables, tables.target.usual())
    found = _point(tables, waiting, at_s)
    found.fragmented = await asyncio.to_thread(_share, copied)
    return found


def _share(copied: Copied) -> float:
    measured = copied.nothing()
    for _ in with_pauses(copied.each_measured(measured)):
        pass
    free, unusable = measured.total()
    return round(unusable / free, 4) if free else 0.0


def _point(tables: Tables, waiting: int, at_s: float) -> HistoryPoint:
    stored = tables.cards.stored
    usable = stored.usable
    units, taken = stored.units[usable].astype(np.int64), stored.taken[usable]
    used = stored.holders[usable] > 0
    return HistoryPoint(
        at_s=int(at_s),
        units=int(units.sum()),
        booked=int(np.minimum(taken, units).sum()),
        fragmented=0.0,
        empty=int(np.count_nonzero(~used)),
        cards=len(units),
        waiting=waiting,
    )


class UsageHistory:
    """Usage in the last POINTS minutes. wall_s: returns Unix seconds."""

    def __init__(self, tables: Tables, lengths: Callable[[], dict[str, int]], wall_s: Callable[[], float]) -> None:
        self._tables, self._lengths, self._wall_s = tables, lengths, wall_s
        self._points: deque[HistoryPoint] = deque(maxlen=POINTS)
        self._now = SharedAnswer(self._made, _KEPT_S)

    async def points(self) -> list[HistoryPoint]:
        """Return the points, oldest first. The last one is current, except for the time it takes to compute."""
        return [*self._points, await self._now.get()]

    async def run(self) -> None:
        """Record one point each minute, until cancelled."""
        while True:
            await asyncio.sleep(EVERY_S)
            self._points.append(await self._now.get())

    async def _made(self) -> HistoryPoint:
        return await point(self._tables, sum(self._lengths().values()), self._wall_s())
