"""Writes of decisions about volumes: each is sent once, however many placed pods need it.

    needed ── not being sent ──▶ SENDING ── answered ──▶ WRITTEN ── the watch shows it ──▶ (forgotten)
                                     └── rejected: so is every pod that waits for it

Each PATCH names its resource version, so it never overwrites changes of another writer. Owned by the event loop.
"""

import asyncio
from dataclasses import dataclass, field
from typing import TypeAlias

from scheduler.dispatch.sender import Sender, Write
from scheduler.kube.port import ApiError, Cluster, NodeForClaim, VolumeForClaim
from scheduler.pods.pod_volumes import ClaimKey
from scheduler.state.volumes.progress import is_older, to_write
from scheduler.state.volumes.volumes import Volumes

# Target of a write: a claim, or a volume by name.
Written: TypeAlias = ClaimKey | str


class WriteRejected(Exception):
    """The API server rejected a write; the message names the write and the reason."""

    def __init__(self, about: str, status: int) -> None:
        """status: HTTP status of the answer, or 0."""
        super().__init__(about)
        self.status = status


@dataclass(slots=True)
class _Sending:
    """A write in flight. ended: set when it is answered or given up. rejected: its rejection."""

    ended: asyncio.Event = field(default_factory=asyncio.Event)
    rejected: WriteRejected | None = None


class VolumeWrites:
    """Volume writes in flight or not yet shown; see the module."""

    def __init__(self, cluster: Cluster, volumes: Volumes, sender: Sender) -> None:
        self._cluster = cluster
        self._volumes = volumes
        self._sender = sender
        self._sending: dict[Written, _Sending] = {}
        # Purpose of the write, and the resulting version.
        self._written: dict[Written, tuple[ClaimKey | str, str]] = {}

    async def write(self, namespace: str, key: ClaimKey, name: str, node: str) -> None:
        """Wait until the write for a claim of a plan is done.

        key, name, node: see `to_write`. Raises WriteRejected, Failed, Stopped.
        """
        target: Written = name or key
        while (needed := self._needed(key, name, node)) is not None:
            sending = self._sending.get(target)
            if sending is None:
                await self._send(namespace, target, needed)
                continue
            await sending.ended.wait()
            if sending.rejected is not None:
                raise WriteRejected(str(sending.rejected), sending.rejected.status)

    def is_unseen(self, target: Written) -> bool:
        """Whether the watch has not yet shown our last write."""
        written = self._written.get(target)
        return written is not None and is_older(self._version(target), written[1])

    def seen(self, target: Written) -> None:
        """Record that the watch has shown a change or the deletion of the target."""
        if target in self._written and not self.is_unseen(target):
            del self._written[target]

    def _needed(self, key: ClaimKey, name: str, node: str) -> VolumeForClaim | NodeForClaim | None:
        written = self._written.get(name or key)
        if written is not None and written[0] == (key if name else node) and self.is_unseen(name or key):
            return None
        return to_write(key, name, node, self._volumes)

    async def _send(self, namespace: str, target: Written, needed: VolumeForClaim | NodeForClaim) -> None:
        sending = self._sending[target] = _Sending()
        try:
            version = await self._sender.send(Write.VOLUME, namespace, self._request, needed)
        except ApiError as error:
            sending.rejected = WriteRejected(f"{_about(needed)}: {error.message}", error.status)
            raise sending.rejected from error
        finally:
            del self._sending[target]
            sending.ended.set()
        self._written[target] = _purpose(needed), version
        self.seen(target)

    async def _request(self, needed: VolumeForClaim | NodeForClaim) -> str:
        if isinstance(needed, VolumeForClaim):
            return await self._cluster.bind_volume(needed)
        return await self._cluster.select_node(needed)

    def _version(self, target: Written) -> str:
        """Version that the watch has shown; "" if the target is deleted, which counts as newer than any write."""
        found = self._volumes.volume(target) if isinstance(target, str) else self._volumes.claim(target)
        return "" if found is None else found.version


def _purpose(one: VolumeForClaim | NodeForClaim) -> ClaimKey | str:
    return (one.claim_namespace, one.claim) if isinstance(one, VolumeForClaim) else one.node


def _about(one: VolumeForClaim | NodeForClaim) -> str:
    if isinstance(one, VolumeForClaim):
        return f"binding persistentvolume {one.volume} to persistentvolumeclaim {one.claim_namespace}/{one.claim}"
    return f"selecting node {one.node} for persistentvolumeclaim {one.namespace}/{one.claim}"
