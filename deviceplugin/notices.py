"""Events on the node and on its pods: what an operator has to see. Best effort: what cannot be written is logged.

A pod's Event needs its uid, a node's the node's; both come from the watch.
"""

import asyncio
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, Protocol

import structlog

from scheduler.ports import ApiError, EventRecord, PodKey

_CONTROLLER: Final = "gpushare-device-plugin"
_OUTBOX: Final = 256
# An object's name has at most 253 characters; the time in hexadecimal takes 17.
_LONGEST_NAME: Final = 230
log = structlog.get_logger()


class EventWriter(Protocol):
    """The part of `scheduler.ports.Cluster` that writes Events."""

    async def create_event(self, event: EventRecord) -> None:
        """Create an Event. Raises ApiError."""
        ...


@dataclass(frozen=True, slots=True)
class Notice:
    """pod: None: it is about the node. reason: one word in CamelCase."""

    reason: str
    note: str
    pod: PodKey | None = None
    warning: bool = True


class Notices:
    """Takes notices at any time; `run` writes them one by one. A full outbox drops the oldest."""

    def __init__(self, writer: EventWriter, node: str, wall_s: Callable[[], float]) -> None:
        """wall_s: Unix seconds."""
        self._writer = writer
        self._node = node
        self._wall_s = wall_s
        self._outbox: deque[Notice] = deque(maxlen=_OUTBOX)
        self._something = asyncio.Event()
        self.node_uid = ""

    def tell(self, notice: Notice) -> None:
        """Log it now, write it soon."""
        about = str(notice.pod) if notice.pod else self._node
        log.log(30 if notice.warning else 20, "notice", reason=notice.reason, about=about, note=notice.note)
        self._outbox.append(notice)
        self._something.set()

    async def run(self) -> None:
        """Write for ever."""
        while True:
            await self._something.wait()
            self._something.clear()
            while self._outbox:
                notice = self._outbox.popleft()
                try:
                    await self._writer.create_event(self._event(notice))
                except ApiError as error:
                    log.warning("event.lost", reason=error.message, status=error.status, note=notice.note)

    def _event(self, notice: Notice) -> EventRecord:
        now_s = self._wall_s()
        pod = notice.pod
        name = pod.name if pod else self._node
        return EventRecord(
            name=f"{name[:_LONGEST_NAME]}.{int(now_s * 1e9):x}",
            kind="Pod" if pod else "Node",
            namespace=pod.namespace if pod else "",
            object_name=name,
            object_uid=pod.uid if pod else self.node_uid,
            type="Warning" if notice.warning else "Normal",
            reason=notice.reason,
            action="Allocate",
            note=notice.note,
            time_s=now_s,
            reporting_controller=_CONTROLLER,
            reporting_instance=self._node,
        )
