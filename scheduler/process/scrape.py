"""Text of `/metrics`: rendered at most once a second, in a thread that leaves CPU time to others.

Only one thread of a process runs Python at a time, so rendering takes time away from decisions. Therefore it works in
small pieces, and after each piece the thread sleeps nine times as long as it worked.
"""

import asyncio
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Final

from prometheus_client.core import Metric
from prometheus_client.exposition import generate_latest
from prometheus_client.registry import Collector, CollectorRegistry

from scheduler.process.documents import SharedAnswer

_KEPT_S: Final = 1.0
_SHARE: Final = 0.1
# Each sleep has a cost of its own.
_SHORTEST_BREAK_S: Final = 0.0005


def exposition(registry: CollectorRegistry) -> Iterator[bytes]:
    """Yield the text of a registry, one piece for each metric."""
    for metric in registry.collect():
        yield generate_latest(_One(metric))


class _One(Collector):
    def __init__(self, metric: Metric) -> None:
        self._metric = metric

    def collect(self) -> Iterator[Metric]:
        yield self._metric


class Scrapes:
    """Scrapes that share one rendered copy of the metrics. Owned by the event loop."""

    def __init__(self, scrape: Callable[[], Iterator[bytes]], kept_s: float = _KEPT_S) -> None:
        """scrape: called on the event loop; its result is read in another thread."""
        self._scrape = scrape
        self._rendered = SharedAnswer(self._render, kept_s)

    async def pieces(self) -> Sequence[bytes]:
        """Return the text. Its age is at most a second plus the time that it takes to render."""
        return await self._rendered.get()

    async def _render(self) -> Sequence[bytes]:
        return await asyncio.to_thread(_collected, self._scrape())


def _collected(pieces: Iterator[bytes]) -> Sequence[bytes]:
    """Render the pieces; the thread sleeps after each of them, see the module."""
    collected = []
    began_s = time.thread_time()
    for piece in pieces:
        collected.append(piece)
        worked_s = time.thread_time() - began_s
        time.sleep(max(_SHORTEST_BREAK_S, worked_s * (1 / _SHARE - 1)))
        began_s = time.thread_time()
    return [piece for piece in collected if piece]
