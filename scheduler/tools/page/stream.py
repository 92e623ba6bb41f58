"""Stream to an open page: the current cluster, then its changes, until the page reconnects.

    Begin ─▶ Rows … ─▶ Ready ─▶ (Rows, Waiting, Now)… ─▶ end of the answer

An answer ends after less than a minute; the page then reconnects with its version and gets the changes since. So a
forgotten page behind a broken connection soon costs nothing. Nothing is buffered for a slow reader: changes are read
from the tables when it is ready for more.
"""

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias

import msgspec

from scheduler.pods.gpu_request import unit_name
from scheduler.tools.explain.reading import ClusterSnapshot
from scheduler.tools.page.rows import PIECE, Rows, pods_on, rows_message
from scheduler.tools.page.waiting import Waiting, waiting

LASTS_S: Final = 50.0
_EVERY_S: Final = 0.05
_SUMS_EVERY_S: Final = 1.0
# Rows that are sent with their pods.
_FEW: Final = 50


class Begin(msgspec.Struct, kw_only=True, tag="begin", tag_field="t", rename="camel"):
    """Start of a stream. whole: whether the whole cluster follows, or only changes. unit: of memory, such as GiB."""

    instance: str
    unit: str
    nodes: int
    whole: bool


class Ready(msgspec.Struct, kw_only=True, tag="ready", tag_field="t"):
    """Everything up to this version has been sent."""

    version: int


class Now(msgspec.Struct, kw_only=True, tag="now", tag_field="t"):
    """Current state. problem: why the data may be out of date, or ""."""

    problem: str


Message: TypeAlias = Begin | Rows | Ready | Now | Waiting


@dataclass(frozen=True, slots=True)
class Since:
    """Data that a page already has. models: number of models that it knows, including the empty one."""

    instance: str = ""
    version: int = -1
    models: int = 0


class Stream:
    """One answer to one page."""

    def __init__(self, reading: ClusterSnapshot, instance: str, problem: Callable[[], str]) -> None:
        """instance: identifies this process. problem: as in Now."""
        self._engine, self._unit = reading.engine, unit_name(reading.unit_mib)
        self._tables = reading.engine.tables
        self._instance, self._problem = instance, problem
        self._models = 0
        self._version = -1

    async def messages(self, since: Since) -> AsyncIterator[Message]:
        """Yield messages until LASTS_S have passed."""
        now_s, changes = time.monotonic, self._tables.changes
        ends_s, sums_due_s = now_s() + LASTS_S, 0.0
        rows = self._begin(since)
        yield Begin(instance=self._instance, unit=self._unit, nodes=len(self._tables.row_of), whole=rows is None)
        for message in self._rows(rows):
            yield message
            await asyncio.sleep(0)
        yield Ready(version=self._version)
        while now_s() < ends_s:
            if changes.version != self._version:
                changed = changes.since(self._version)
                self._version = changes.version
                for message in self._rows(None if changed is None else changed.rows):
                    yield message
                    await asyncio.sleep(0)
            if now_s() >= sums_due_s:
                sums_due_s = now_s() + _SUMS_EVERY_S
                yield Now(problem=self._problem())
                yield waiting(self._engine.queue, now_s())
            await asyncio.sleep(_EVERY_S)

    def _begin(self, since: Since) -> Sequence[int] | None:
        """Return the rows that the page lacks; None for all of them."""
        changes = self._tables.changes
        same = since.instance == self._instance and 0 <= since.version <= changes.version
        changed = changes.since(since.version) if same else None
        self._version = changes.version
        self._models = 0 if changed is None else since.models
        return None if changed is None else changed.rows

    def _rows(self, changed: Sequence[int] | None) -> Iterator[Rows]:
        """Yield rows in pieces. Each piece shows the tables when it is sent; rows that change later are sent again.

        changed: None for all rows.
        """
        rows = list(self._tables.row_of.values()) if changed is None else changed
        for begin in range(0, len(rows), PIECE):
            piece = rows[begin : begin + PIECE]
            message = rows_message(self._tables, piece, self._models)
            message.version = self._version
            self._models = len(message.models) or self._models
            if len(rows) <= _FEW:
                message.on = {row: pods_on(self._tables, row) for row in piece}
            yield message
