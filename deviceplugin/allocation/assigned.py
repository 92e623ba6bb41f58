"""Cards assigned to each container since this process started; marks the pod if configured to.

`ALIYUN_COM_GPU_MEM_ASSIGNED` becomes `true` once every container of the pod that requests cards has them:
docs/develop/protocol.md, "Compatibility with the legacy plugin".
"""

import asyncio
from collections import deque
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, Protocol

import structlog

from config.protocol import environment, names
from deviceplugin.allocation.pods import NodePod
from scheduler.kube.port import ApiError, ApiRejected, PodKey

_NOT_YET: Final = "false"
log = structlog.get_logger()


class _PodWriter(Protocol):
    """Port: writes annotations to a pod."""

    async def mark_assigned(self, pod: PodKey, annotations: Mapping[str, str]) -> None:
        """Set annotations on exactly this pod, not on a namesake. Raises ApiError."""
        ...


@dataclass(slots=True)
class AssignedCards:
    """Cards of each container. by_container: (pod UID, container) -> UUIDs."""

    by_container: dict[tuple[str, str], frozenset[str]] = field(default_factory=dict)

    def note(self, pod: NodePod, containers: Sequence[str], uuids: frozenset[str]) -> None:
        """Record that these containers of the pod have these cards."""
        self.by_container.update({(pod.uid, name): uuids for name in containers})

    def complete(self, pod: NodePod) -> bool:
        """Return whether every container of the pod that requests cards has them."""
        return all((pod.uid, container.name) in self.by_container for container in pod.asking())

    def keep(self, uids: Collection[str]) -> None:
        """Drop all pods except these."""
        for key in [key for key in self.by_container if key[0] not in uids]:
            del self.by_container[key]


class Marker:
    """Marks pods as assigned. A failed mark is retried; a deleted or replaced pod is left alone."""

    def __init__(self, writer: _PodWriter, backoff_s: Callable[[int], float]) -> None:
        """backoff_s: seconds to wait after the given number of consecutive failures."""
        self._writer = writer
        self._backoff_s = backoff_s
        self._waiting: deque[PodKey] = deque()
        self._something = asyncio.Event()

    def mark(self, pod: NodePod) -> None:
        """Mark the pod soon, unless it is already marked or has no such annotation."""
        if pod.annotations.get(names.MEM_ASSIGNED) == _NOT_YET and pod.key not in self._waiting:
            self._waiting.append(pod.key)
            self._something.set()

    async def run(self) -> None:
        """Write queued marks forever."""
        failures = 0
        while True:
            await self._something.wait()
            self._something.clear()
            while self._waiting:
                try:
                    await self._writer.mark_assigned(self._waiting[0], {names.MEM_ASSIGNED: environment.TRUE})
                except ApiRejected as error:
                    log.warning("mark.refused", pod=str(self._waiting[0]), reason=error.message)
                except ApiError as error:
                    failures += 1
                    log.warning("mark.failed", pod=str(self._waiting[0]), reason=error.message, attempt=failures)
                    await asyncio.sleep(self._backoff_s(failures))
                    continue
                failures = 0
                self._waiting.popleft()
