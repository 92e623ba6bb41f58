"""Gives a placed pod its volumes before it is bound: writes what was decided, then waits until its claims are bound.

    to_write ── PATCH each ──▶ WAITING ── every claim is bound ─▶ returns
                                 │  └── a watch event of one of them: looks again
                                 └── time is up, or it cannot come true any more ─▶ VolumesFailed

Each PATCH says which version it is about, so that what somebody else has changed meanwhile is not overwritten. What is
written stays written: the next attempt, or the next process, finds the volume kept for its claim, and the node in it.
Source: kube-scheduler, plugins/volumebinding/binder.go, BindPodVolumes; it looks once a second.
"""

import asyncio
from collections.abc import Callable
from typing import Final

from scheduler.bind_slots import BindSlots, Stopped
from scheduler.kube.port import ApiError, Cluster, NodeForClaim, VolumeForClaim
from scheduler.pods.pod_volumes import ClaimKey
from scheduler.scheduling_cycle import Placement
from scheduler.state.tables import Tables
from scheduler.state.volumes.plan import Plan
from scheduler.state.volumes.progress import Failed, is_done, to_write

# No event says to a waiting pod that it has gone itself.
_LOOK_EVERY_S: Final = 5.0


class VolumesFailed(Exception):
    """The pod does not get its volumes on this node; the message says why."""

    def __init__(self, reason: str, *, status: int = 0, gone: bool = False) -> None:
        """status: HTTP status of the answer that says so, or 0. gone: the pod is."""
        super().__init__(reason)
        self.reason = reason
        self.status = status
        self.gone = gone


class VolumeBinder:
    """Owns the pods that wait for volumes."""

    def __init__(self, cluster: Cluster, tables: Tables, slots: BindSlots, *, gone: Callable[[str], bool]) -> None:
        """slots: of these requests. gone: by uid, whether the watch has shown that the pod is gone."""
        self._cluster = cluster
        self._tables = tables
        self._slots = slots
        self._gone = gone
        self._waiting: dict[ClaimKey | str, set[asyncio.Event]] = {}
        self._stopped = False

    async def bind(self, placement: Placement) -> None:
        """Return when every claim of the pod is bound. Raises VolumesFailed; Stopped when the process ends first."""
        plan = placement.volumes
        if plan is None:
            return
        try:
            async with asyncio.timeout(plan.timeout_s):
                written = await self._write(placement.pod.key.namespace, plan)
                await self._until_bound(placement.pod.key.uid, plan, written)
        except Failed as failed:
            raise VolumesFailed(str(failed)) from failed
        except TimeoutError as error:
            message = f"its volumes were not bound within {plan.timeout_s:g} s"
            raise VolumesFailed(message) from error

    def seen(self, key: ClaimKey | str) -> None:
        """A claim, or a volume by name, has come, changed or gone."""
        if not self._waiting:
            return
        names = self._tables.volumes.claims_of(key) if isinstance(key, str) else ()
        for one in (key, *names):
            for waiter in self._waiting.get(one, ()):
                waiter.set()

    def stop(self) -> None:
        """Who waits gets Stopped. Requests on the wire are answered."""
        self._stopped = True
        self._slots.stop()
        for waiters in self._waiting.values():
            for waiter in waiters:
                waiter.set()

    async def _write(self, namespace: str, plan: Plan) -> dict[ClaimKey | str, str]:
        """Returns the versions that were made, by claim and volume."""
        written: dict[ClaimKey | str, str] = {}
        async with self._slots.binding(namespace):
            for one in to_write(plan, self._tables.volumes):
                try:
                    async with self._slots.slot(namespace):
                        version = await self._send(one)
                except ApiError as error:
                    message = f"{_about(one)}: {error.message}"
                    raise VolumesFailed(message, status=error.status) from error
                written[one.volume if isinstance(one, VolumeForClaim) else (one.namespace, one.claim)] = version
        return written

    async def _send(self, one: VolumeForClaim | NodeForClaim) -> str:
        if isinstance(one, VolumeForClaim):
            return await self._cluster.give_volume(one)
        return await self._cluster.select_node(one)

    async def _until_bound(self, uid: str, plan: Plan, written: dict[ClaimKey | str, str]) -> None:
        waiter = asyncio.Event()
        keys: set[ClaimKey | str] = {*plan.made}
        for volume, claim in plan.taken:
            keys |= {volume, claim}
        for key in keys:
            self._waiting.setdefault(key, set()).add(waiter)
        try:
            while not is_done(plan, self._tables.volumes, self._labels(plan.node), written):
                if self._gone(uid):
                    message = "the watch shows that the pod is gone"
                    raise VolumesFailed(message, gone=True)
                if self._stopped:
                    raise Stopped
                await _wait(waiter)
        finally:
            for key in keys:
                self._waiting[key].discard(waiter)
                if not self._waiting[key]:
                    del self._waiting[key]

    def _labels(self, node: str) -> dict[str, str] | None:
        if node not in self._tables.row_of:
            return None
        return self._tables.node(node).metadata.labels or {}


async def _wait(waiter: asyncio.Event) -> None:
    """Until it is set, but not for long. It is not set then."""
    try:
        async with asyncio.timeout(_LOOK_EVERY_S):
            await waiter.wait()
    except TimeoutError:
        return
    waiter.clear()


def _about(one: VolumeForClaim | NodeForClaim) -> str:
    if isinstance(one, VolumeForClaim):
        return f"giving persistentvolume {one.volume} to persistentvolumeclaim {one.claim_namespace}/{one.claim}"
    return f"selecting node {one.node} for persistentvolumeclaim {one.namespace}/{one.claim}"
