"""Stream to an open page, line by line: the current cluster, then its changes, until the page reconnects.

    Begin ─▶ Rows … ─▶ Ready ─▶ (Rows, Waiting, Now, Access)… ─▶ end of the answer

Each line is one JSON document. An answer ends after less than a minute; the page then reconnects with its version and
gets the changes since. So a viewer who has lost access is rejected, and a forgotten page behind a broken connection
soon costs nothing. Nothing is buffered for a slow reader: changes are read from the tables when it is ready for more.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias

import msgspec

from scheduler.core.engine import Engine
from scheduler.tools.page.access import Guard, Viewer
from scheduler.tools.page.rows import PIECE, Rows, Sees, pods_on, rows_message
from scheduler.tools.page.waiting import Waiting, WaitingPodRows

LASTS_S: Final = 50.0
_EVERY_S: Final = 0.05
_SUMS_EVERY_S: Final = 1.0
# Share of the event loop's time, for one page.
_SHARE: Final = 0.05
# Rows that are sent with their pods.
_FEW: Final = 50

Send: TypeAlias = Callable[[bytes], Awaitable[None]]
_ENCODE: Final = msgspec.json.Encoder().encode


class Begin(msgspec.Struct, kw_only=True, tag="begin", tag_field="t", rename="camel"):
    """Start of a stream. whole: whether the whole cluster follows, or only changes. unit: of memory, such as GiB.

    replica: name of the sender, "" if there is only one.
    """

    instance: str
    replica: str
    unit: str
    nodes: int
    whole: bool


class Ready(msgspec.Struct, kw_only=True, tag="ready", tag_field="t"):
    """Everything up to this version has been sent."""

    version: int


class Now(msgspec.Struct, kw_only=True, tag="now", tag_field="t", rename="camel"):
    """Current state. leads: whether this replica schedules; leader: name of the active one, "" if unknown.

    problem: why no pods are scheduled, or "".
    """

    leads: bool
    leader: str
    problem: str


class AccessMoved(msgspec.Struct, kw_only=True, tag="access", tag_field="t"):
    """Other pods may now be shown by name, so the page must reload its data about pods."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Shown:
    """Data for pages. instance: identifies this process. unit: the name of a memory unit.

    replica: as in Begin. leads, leader, problem: as in Now.
    """

    engine: Engine
    waiting: WaitingPodRows
    instance: str
    replica: str
    unit: str
    leads: Callable[[], bool]
    leader: Callable[[], str]
    problem: Callable[[], str]
    now_s: Callable[[], float]


@dataclass(frozen=True, slots=True)
class Since:
    """Data that a page already has. models: number of models that it knows, including the empty one."""

    instance: str = ""
    version: int = -1
    models: int = 0


class Stream:
    """One answer to one page."""

    def __init__(self, shown: Shown, access: Guard, authorization: str, send: Send) -> None:
        """authorization: the header that the page has sent."""
        self._shown, self._access, self._authorization, self._send = shown, access, authorization, send
        self._tables = shown.engine.tables
        self._models = 0
        self._version = -1
        self._sums_due_s = 0.0
        self._access_version = -1

    async def run(self, viewer: Viewer, since: Since) -> None:
        """Send until LASTS_S have passed. Raises AccessDenied once the viewer may no longer see the page."""
        now_s = self._shown.now_s
        ends_s = now_s() + LASTS_S
        await self._begin(since, viewer)
        while now_s() < ends_s:
            if now_s() >= viewer.until_s:
                viewer = await self._access.viewer(self._authorization)
            began_s = now_s()
            await self._follow(viewer)
            await asyncio.sleep(max(_EVERY_S, (now_s() - began_s) / _SHARE))

    async def _begin(self, since: Since, viewer: Viewer) -> None:
        shown, tables = self._shown, self._tables
        same = since.instance == shown.instance and 0 <= since.version <= tables.changes.version
        changed = tables.changes.since(since.version) if same else None
        self._models = since.models if changed is not None else 0
        begin = Begin(
            instance=shown.instance,
            replica=shown.replica,
            unit=shown.unit,
            nodes=len(tables.row_of),
            whole=changed is None,
        )
        await self._send_one(begin)
        self._version = tables.changes.version
        self._access_version = viewer.version
        await self._send_rows(list(tables.row_of.values()) if changed is None else changed.rows, self._sees(viewer))
        await self._send_one(Ready(version=self._version))

    async def _follow(self, viewer: Viewer) -> None:
        changes = self._tables.changes
        if changes.version != self._version:
            changed = changes.since(self._version)
            self._version = changes.version
            rows = list(self._tables.row_of.values()) if changed is None else changed.rows
            await self._send_rows(rows, self._sees(viewer))
        if self._shown.now_s() >= self._sums_due_s:
            self._sums_due_s = self._shown.now_s() + _SUMS_EVERY_S
            shown = self._shown
            await self._send_one(Now(leads=shown.leads(), leader=shown.leader(), problem=shown.problem()))
            await self._send_one(await self._shown.waiting.shown(self._sees(viewer)))
            self._access.learn(viewer)
        if viewer.version != self._access_version:
            self._access_version = viewer.version
            await self._send_one(AccessMoved())

    async def _send_rows(self, rows: Sequence[int], sees: Sees) -> None:
        """Send rows in pieces. Each piece shows the tables when it is sent; rows that change later are sent again."""
        few = len(rows) <= _FEW
        for begin in range(0, len(rows), PIECE):
            piece = rows[begin : begin + PIECE]
            message = rows_message(self._tables, piece, self._models)
            message.version = self._version
            self._models = len(message.models) or self._models
            if few:
                message.on = {row: pods_on(self._tables, row, sees) for row in piece}
            await self._send_one(message)
            await asyncio.sleep(0)

    def _sees(self, viewer: Viewer) -> Sees:
        now_s = self._shown.now_s()
        return lambda namespace: viewer.sees(namespace, now_s)

    async def _send_one(self, message: Begin | Rows | Ready | Now | Waiting | AccessMoved) -> None:
        await self._send(_ENCODE(message) + b"\n")
