"""Binds a placed pod's volumes before it binds the pod: writes the decision, then waits for the pod's claims.

    to_write ── PATCH each ──▶ WAITING ── every claim is bound ─▶ returns
                                 │  └── a watch event for one of them: examined again
                                 └── timeout, or the claims can no longer be bound ─▶ VolumesFailed

While writes for a namespace fail, only a few of its pods wait for their turn; the others fail at once. A write is never
undone: the next attempt, or the next process, finds the volume reserved for its claim, and the node in the claim. After
a watch event for a claim, each pod that waits for it checks only that claim. Source: kube-scheduler,
plugins/volumebinding/binder.go, BindPodVolumes, which polls once a second.
"""

import asyncio
from collections.abc import Callable
from typing import Final

from scheduler.core.scheduling_cycle import Placement
from scheduler.dispatch.sender import Sender, Stopped
from scheduler.dispatch.volume_writes import VolumeWrites, WriteRejected, Written
from scheduler.kube.port import Cluster
from scheduler.pods.pod_volumes import ClaimKey
from scheduler.state.tables import Tables
from scheduler.state.volumes.plan import VolumePlan
from scheduler.state.volumes.progress import Failed, is_done

# No event tells a waiting task that its pod was deleted.
_LOOK_EVERY_S: Final = 5.0


class VolumesFailed(Exception):
    """The pod does not get its volumes on this node; the message gives the reason."""

    def __init__(self, reason: str, *, status: int = 0, lasting: bool = False, gone: bool = False) -> None:
        """status: HTTP status of the answer, or 0. lasting: see BindRejected. gone: whether the pod is gone."""
        super().__init__(reason)
        self.reason = reason
        self.status = status
        self.lasting = lasting
        self.gone = gone


class VolumeBinder:
    """Owner of the pods that wait for volumes."""

    def __init__(self, cluster: Cluster, tables: Tables, sender: Sender) -> None:
        self._tables = tables
        self._writes = VolumeWrites(cluster, tables.volumes, sender)
        self._waiting: dict[Written, set[_Waiting]] = {}
        self._stopped = False

    async def bind(self, placement: Placement) -> None:
        """Wait until every claim of the pod is bound. Raises VolumesFailed; Stopped if the process ends first."""
        plan = placement.volumes
        if plan is None:
            return
        try:
            async with asyncio.timeout(plan.timeout_s):
                for claim, volume in plan:
                    await self._writes.write(placement.pod.key.namespace, claim, volume, plan.node)
                await self._until_bound(placement.pod.key.uid, plan)
        except WriteRejected as rejected:
            raise VolumesFailed(str(rejected), status=rejected.status, lasting=True) from rejected
        except Failed as failed:
            raise VolumesFailed(str(failed)) from failed
        except TimeoutError as error:
            message = f"its volumes were not bound within {plan.timeout_s:g} s"
            raise VolumesFailed(message) from error

    def seen(self, key: Written) -> None:
        """Record that a claim, or a volume by name, was created, changed or deleted."""
        self._writes.seen(key)
        if not self._waiting:
            return
        names = self._tables.volumes.claims_of(key) if isinstance(key, str) else ()
        for one in (key, *names):
            for waiting in self._waiting.get(one, ()):
                waiting.seen(one, self._is_done)

    def stop(self) -> None:
        """Raise Stopped in waiting pods, because the process ends."""
        self._stopped = True
        for all_waiting in self._waiting.values():
            for waiting in all_waiting:
                waiting.woken.set()

    async def _until_bound(self, uid: str, plan: VolumePlan) -> None:
        waiting = _Waiting(plan)
        keys: set[Written] = {key for claim, volume in plan for key in (claim, volume) if key}
        for key in keys:
            self._waiting.setdefault(key, set()).add(waiting)
        try:
            while not waiting.look(self._is_done):
                if self._tables.is_gone(uid):
                    message = "the watch shows that the pod was deleted"
                    raise VolumesFailed(message, gone=True)
                if self._stopped:
                    raise Stopped
                await _wait(waiting.woken)
        finally:
            for key in keys:
                self._waiting[key].discard(waiting)
                if not self._waiting[key]:
                    del self._waiting[key]

    def _is_done(self, claim: ClaimKey, volume: str, node: str) -> bool:
        if self._writes.is_unseen(volume or claim):
            return False
        return is_done(claim, volume, node, self._tables.volumes, self._labels(node))

    def _labels(self, node: str) -> dict[str, str] | None:
        if node not in self._tables.row_of:
            return None
        return self._tables.node(node).metadata.labels or {}


class _Waiting:
    """A pod that waits for its volumes. woken: set when it may have all of them, or can no longer get them."""

    def __init__(self, plan: VolumePlan) -> None:
        self.woken = asyncio.Event()
        self._plan = plan
        self._claims = dict(plan.taken)
        self._volumes = {claim: volume for volume, claim in plan.taken}
        self._left: set[ClaimKey] = set()

    def look(self, is_done: Callable[[ClaimKey, str, str], bool]) -> bool:
        """Whether all claims are bound. Examines every claim, even if another one still waits; raises Failed."""
        self._left = {claim for claim, volume in self._plan if not is_done(claim, volume, self._plan.node)}
        return not self._left

    def seen(self, key: Written, is_done: Callable[[ClaimKey, str, str], bool]) -> None:
        """Record a change of one of its claims, or of one of their volumes by name."""
        claim = self._claims[key] if isinstance(key, str) else key
        try:
            done = is_done(claim, self._volumes.get(claim, ""), self._plan.node)
        except Failed:
            self.woken.set()
            return
        if not done:
            self._left.add(claim)
            return
        self._left.discard(claim)
        if not self._left:
            self.woken.set()


async def _wait(woken: asyncio.Event) -> None:
    """Wait for the event, but not for long; clear it."""
    try:
        async with asyncio.timeout(_LOOK_EVERY_S):
            await woken.wait()
    except TimeoutError:
        return
    woken.clear()
