"""Records everything that happens to the pods of one namespace, from a watch, and checks it at the end."""

import asyncio
import time
from collections.abc import Callable, Iterable
from typing import Final, TypeAlias

import aiohttp
import msgspec

from config.protocol import names
from e2e.control_plane.admin import Admin, Json, UnexpectedAnswer

Allocation: TypeAlias = tuple[str | None, ...]
"""Values of names.ALLOCATION_KEYS, None where the pod lacks the key."""

_AGAIN_AFTER_S: Final = 0.05


class _Metadata(msgspec.Struct):
    uid: str = ""
    annotations: dict[str, str] = {}


class _Spec(msgspec.Struct, rename="camel"):
    node_name: str = ""


class _Pod(msgspec.Struct):
    """Watch objects; includes bookmarks and errors, which are not pods."""

    metadata: _Metadata = msgspec.field(default_factory=_Metadata)
    spec: _Spec = msgspec.field(default_factory=_Spec)


class _Event(msgspec.Struct):
    type: str
    object: _Pod


class PodHistory:
    """Follows a collection of pods while `follow` runs; observations are kept by the pod's UID.

    nodes: every node that it was ever seen on. allocations: every Allocation seen while it had a node. bound_at_s:
    `time.monotonic()` when it was first seen with a node. deleted: UIDs of pods seen to be deleted.
    """

    def __init__(self, admin: Admin, path: str) -> None:
        self.nodes: dict[str, set[str]] = {}
        self.allocations: dict[str, set[Allocation]] = {}
        self.bound_at_s: dict[str, float] = {}
        self.deleted: set[str] = set()
        self._admin = admin
        self._path = path
        self._changed = asyncio.Condition()

    async def follow(self) -> None:
        """Watch; restart from the current state when a watch ends or the server is unavailable."""
        decoder = msgspec.json.Decoder(_Event)
        while True:
            try:
                async for line in self._admin.watch(self._path):
                    await self._take(decoder.decode(line))
            except (aiohttp.ClientError, UnexpectedAnswer):
                await asyncio.sleep(_AGAIN_AFTER_S)

    async def until(self, holds: Callable[[], bool], *, within_s: float) -> None:
        """Return as soon as `holds()` is true. Raises TimeoutError."""
        async with asyncio.timeout(within_s), self._changed:
            await self._changed.wait_for(holds)

    def faults(self, pods: Iterable[Json]) -> list[str]:
        """Return a line for each pod that was not bound once, to one node, with one complete allocation; [] if none.

        pods: their final state on the API server.
        """
        found = [f"{uid} was deleted" for uid in self.deleted]
        for pod in pods:
            name, uid, node = pod["metadata"]["name"], pod["metadata"]["uid"], pod["spec"].get("nodeName")
            nodes, allocations = self.nodes.get(uid, set()), self.allocations.get(uid, set())
            if node is None or nodes != {node}:
                found.append(f"{name} is on {node}, was seen on {sorted(nodes)}")
            if len(allocations) != 1 or None in next(iter(allocations)):
                found.append(f"{name} was seen with {allocations}")
        return found

    async def _take(self, event: _Event) -> None:
        uid, node = event.object.metadata.uid, event.object.spec.node_name
        if not uid:
            return
        if node:
            written = event.object.metadata.annotations
            self.bound_at_s.setdefault(uid, time.monotonic())
            self.nodes.setdefault(uid, set()).add(node)
            self.allocations.setdefault(uid, set()).add(tuple(written.get(key) for key in names.ALLOCATION_KEYS))
        if event.type == "DELETED":
            self.deleted.add(uid)
        async with self._changed:
            self._changed.notify_all()
