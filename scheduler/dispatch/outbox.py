"""Entries that wait to be written, by namespace: a few requests of each namespace at a time, oldest entry first.

The sender decides which namespace's request goes next. Owned by the event loop.
"""

import asyncio
from abc import ABC, abstractmethod
from collections import Counter, OrderedDict
from contextlib import suppress
from math import inf
from typing import Final, Generic, TypeVar

from scheduler.dispatch.sender import Stopped

EntryT = TypeVar("EntryT")
# Per namespace. More of them would only wait for the sender.
_WRITERS: Final = 8


class Outbox(ABC, Generic[EntryT]):
    """Entries by namespace and key. A new entry replaces a waiting one with the same key, and keeps its position."""

    def __init__(self, most: float = inf) -> None:
        """most: entries of one namespace; beyond it, its oldest is dropped."""
        self._most = most
        self._waiting: dict[str, OrderedDict[str, EntryT]] = {}
        self._writers: Counter[str] = Counter()
        self._tasks: asyncio.TaskGroup | None = None
        self._ends = False  # the sender may have stopped

    @abstractmethod
    async def _write(self, entry: EntryT) -> None:
        """Write the entry, or give it up. If this is cancelled or Stopped, the entry is kept for `flush`."""

    @property
    def pending(self) -> int:
        """Number of entries that are neither written nor given up."""
        return sum(map(len, self._waiting.values())) + self._writers.total()

    def put(self, namespace: str, key: str, entry: EntryT) -> EntryT | None:
        """Add an entry. Returns the one that is dropped for it, if any."""
        waiting = self._waiting.setdefault(namespace, OrderedDict())
        waiting[key] = entry
        dropped = waiting.popitem(last=False)[1] if len(waiting) > self._most else None
        self._start(namespace)
        return dropped

    async def run(self) -> None:
        """Write entries until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            self._begin(tasks)
            try:
                await asyncio.Event().wait()
            finally:
                self._tasks = None

    async def flush(self, within_s: float) -> None:
        """Write the remaining entries for at most `within_s` seconds, as the process ends."""
        self._ends = True
        with suppress(TimeoutError):
            async with asyncio.timeout(within_s), asyncio.TaskGroup() as tasks:
                self._begin(tasks)
                self._tasks = None

    def _begin(self, tasks: asyncio.TaskGroup) -> None:
        self._tasks = tasks
        self._writers.clear()  # a task that is cancelled before it starts counts itself no more
        for namespace, waiting in self._waiting.items():
            for _ in range(min(len(waiting), _WRITERS)):
                self._start(namespace)

    def _start(self, namespace: str) -> None:
        if self._tasks is not None and self._writers[namespace] < _WRITERS:
            self._writers[namespace] += 1
            self._tasks.create_task(self._write_all(namespace))

    async def _write_all(self, namespace: str) -> None:
        waiting = self._waiting[namespace]
        try:
            with suppress(Stopped):
                while waiting:
                    await self._write_first(waiting)
        finally:
            self._writers[namespace] -= 1
            if not self._writers[namespace]:
                del self._writers[namespace]
                if not waiting:
                    del self._waiting[namespace]

    async def _write_first(self, waiting: OrderedDict[str, EntryT]) -> None:
        key, entry = waiting.popitem(last=False)
        try:
            await self._write(entry)
        except (asyncio.CancelledError, Stopped):
            waiting.setdefault(key, entry)
            waiting.move_to_end(key, last=False)
            raise
