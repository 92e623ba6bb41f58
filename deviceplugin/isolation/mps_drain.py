"""Terminates the MPS clients of pods that are being deleted, shortly before the kubelet kills them.

A client that is killed during work on the card leaves the MPS server unusable for others until it is restarted. When
MPS terminates the client, it takes no new work from it and waits for the pending work.
Source: kai-scheduler/kai-gpu-fractioning, mpsd: NVIDIA's workaround until a fix, planned for driver 625. Owned by the
event loop.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Final

from deviceplugin.allocation.pods import NodePod
from deviceplugin.allocation.view import NodeRecords
from deviceplugin.isolation.mps_cards import MpsCards
from scheduler.kube.objects import ObjectMeta
from scheduler.process.clock import Clock

# Most of the grace period is the program's own, to save its work; the rest is for its pending work on the card.
_BEFORE_END_S: Final = 5.0
_LARGEST_PART: Final = 0.5


def due_s(meta: ObjectMeta) -> float:
    """Return when to terminate a pod's clients, in Unix seconds; 0.0 (at once) if the end of the pod is unreadable."""
    try:
        end_s = datetime.fromisoformat(meta.deletion_timestamp).timestamp()
    except ValueError:
        return 0.0
    return end_s - min(_BEFORE_END_S, _LARGEST_PART * max(0, meta.deletion_grace_period_seconds))


@dataclass(slots=True, kw_only=True)
class MpsDrain:
    """Terminates clients. pods_of: PIDs -> the UIDs of their pods; raises OSError.

    A pod's deletion never waits for it.
    """

    cards: MpsCards
    view: NodeRecords
    pods_of: Callable[[Sequence[int]], Awaitable[Mapping[int, str]]]
    clock: Clock
    _begun: set[str] = field(default_factory=set)

    async def run(self) -> None:
        """Follow the node's pods forever."""
        async with asyncio.TaskGroup() as tasks:
            while True:
                changed = asyncio.ensure_future(self.view.pods.change())
                try:
                    await asyncio.wait({changed}, timeout=self._begin(tasks))
                finally:
                    changed.cancel()

    def _begin(self, tasks: asyncio.TaskGroup) -> float | None:
        """Begin with every pod that is due. Return the seconds until the next one is due; None if there is none."""
        ending = {pod.uid: pod for pod in self.view.asking() if pod.terminating} if self.cards.serving() else {}
        self._begun &= ending.keys()
        left_s = {uid: self._left_s(uid) for uid in ending.keys() - self._begun}
        for uid in [uid for uid, left in left_s.items() if left <= 0]:
            self._begun.add(uid)
            tasks.create_task(self._drain(ending[uid]))
        return min((left for left in left_s.values() if left > 0), default=None)

    def _left_s(self, uid: str) -> float:
        wire = self.view.pods.get(uid)
        return due_s(wire.metadata) - self.clock.wall_s() if wire else 0.0

    async def _drain(self, pod: NodePod) -> None:
        async def of_pod(pids: Sequence[int]) -> list[int]:
            pods = await self.pods_of(pids)
            return [pid for pid in pids if pods.get(pid) == pod.uid]

        of_containers = pod.first_cards.units.values() if pod.first_cards else ()
        for uuid in sorted({uuid for units in of_containers for uuid in units}):
            await self.cards.drain(uuid, of_pod)
