"""Events on the node and on its pods, for operators.

Best effort: an Event that the API server does not accept after a few tries is lost; the log already has it.
"""

import asyncio
from collections import deque
from typing import Final, Protocol

import structlog

from deviceplugin.events import NodeEvent
from scheduler.kube.events import Regarding, Reporter
from scheduler.kube.port import ApiConflict, ApiError, ApiRejected, ApiThrottled, EventRecord
from scheduler.process.clock import Clock

CONTROLLER: Final = "gpushare-device-plugin"
# Health of a few cards and drift of a few dozen pods: more Events at once add no information.
_MOST_QUEUED: Final = 256
_TRIES: Final = 5
_AGAIN_S: Final = 1.0
_LONGEST_WAIT_S: Final = 30.0
log = structlog.get_logger()


class _EventWriter(Protocol):
    """Port: the part of `scheduler.kube.port.Cluster` that writes Events."""

    async def create_event(self, event: EventRecord) -> None:
        """Create an Event. Raises ApiError."""
        ...


class NodeEventRecorder:
    """Recorder of Events: `run` writes them one by one. A full queue drops the oldest.

    node_uid: the node object's, once a watch has shown it.
    """

    def __init__(self, writer: _EventWriter, node: str, clock: Clock) -> None:
        """node: its name."""
        self._writer = writer
        self._node = node
        self._reporter = Reporter(CONTROLLER, node)
        self._clock = clock
        self._queue: deque[tuple[NodeEvent, int, int]] = (
            deque()
        )  # recorded at, and identified by, these Unix nanoseconds
        self._something = asyncio.Event()
        self._last_ns = 0
        self.node_uid = ""

    def record(self, event: NodeEvent) -> None:
        """Log the event now, write it soon."""
        about = str(event.pod) if event.pod else self._node
        say = log.warning if event.warning else log.info
        say("notice", reason=event.reason, about=about, note=event.note)
        if len(self._queue) == _MOST_QUEUED:
            dropped, *_ = self._queue.popleft()
            log.warning("event.lost", reason="the queue is full", note=dropped.note)
        recorded_ns = self._clock.wall_ns()
        # This alone distinguishes Events, even if the clock is set back.
        self._last_ns = max(recorded_ns, self._last_ns + 1)
        self._queue.append((event, recorded_ns, self._last_ns))
        self._something.set()

    async def run(self) -> None:
        """Write forever."""
        while True:
            await self._something.wait()
            self._something.clear()
            while self._queue:
                await self._write(self._event(*self._queue.popleft()))

    async def _write(self, event: EventRecord) -> None:
        for attempt in range(1, _TRIES + 1):
            try:
                await self._writer.create_event(event)
            except ApiConflict:
                return  # Only this plugin uses the name: an earlier try, whose answer was lost, has written it.
            except ApiError as error:
                if isinstance(error, ApiRejected) or attempt == _TRIES:
                    log.warning("event.lost", reason=error.message, status=error.status, note=event.note)
                    return
                asked_s = error.retry_after_s if isinstance(error, ApiThrottled) else 0.0
                await asyncio.sleep(min(max(asked_s, _AGAIN_S * 2 ** (attempt - 1)), _LONGEST_WAIT_S))
            else:
                return

    def _event(self, event: NodeEvent, recorded_ns: int, unique_ns: int) -> EventRecord:
        pod = event.pod
        # `kubectl describe node` searches for both, because the kubelet writes the name in place of a UID.
        node = Regarding("Node", "", self._node, self.node_uid or self._node)
        return self._reporter.event(
            Regarding("Pod", pod.namespace, pod.name, pod.uid) if pod else node,
            warning=event.warning,
            reason=event.reason,
            action="Report",
            note=event.note,
            now_ns=recorded_ns,
            unique_ns=unique_ns,
        )
