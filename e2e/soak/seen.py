"""What becomes of the pods, from a watch of all of them.

came --has a node--> bound --is being deleted--> leaving --> gone, and forgotten
"""

import asyncio
import time
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import Final

import aiohttp
import msgspec

from e2e.control_plane.admin import Admin

PODS: Final = "/api/v1/pods"


class _Metadata(msgspec.Struct, rename="camel"):
    namespace: str
    name: str
    uid: str
    deletion_timestamp: str = ""


class _Spec(msgspec.Struct, rename="camel"):
    node_name: str = ""


class _Object(msgspec.Struct):
    metadata: _Metadata
    spec: _Spec


class _Event(msgspec.Struct):
    type: str
    object: _Object


@dataclass(slots=True)
class Known:
    """came_s, bound_s: monotonic seconds, as the watch showed it; bound_s: None while it waits."""

    uid: str
    namespace: str
    name: str
    came_s: float
    node: str = ""
    bound_s: float | None = None
    bound: asyncio.Event = field(default_factory=asyncio.Event)
    leaving: asyncio.Event = field(default_factory=asyncio.Event)
    gone: asyncio.Event = field(default_factory=asyncio.Event)


class Seen:
    """Pods that are there, by uid. bound: how many got a node, ever."""

    def __init__(self) -> None:
        """Nothing was seen."""
        self.pods: dict[str, Known] = {}
        self.bound = 0
        self._gone: set[str] = set()
        self._decode = msgspec.json.Decoder(_Event).decode

    def known(self, uid: str, namespace: str, name: str) -> Known:
        """The pod, which may not have been seen yet; or be gone before its creation is answered."""
        pod = Known(uid, namespace, name, time.monotonic())
        if uid in self._gone:
            _end(pod)
            return pod
        return self.pods.setdefault(uid, pod)

    def forget(self, pod: Known) -> None:
        """The pod is gone."""
        self.pods.pop(pod.uid, None)

    def on(self, node: str) -> list[Known]:
        """Pods on a node."""
        return [pod for pod in self.pods.values() if pod.node == node]

    async def follow(self, admin: Admin, path: str = PODS) -> None:
        """Watch the pods there until cancelled; again when the server ends a watch, as it does every hour."""
        while True:
            try:
                async with aclosing(admin.watch(path)) as lines:
                    async for line in lines:
                        self._take(self._decode(line), time.monotonic())
            except aiohttp.ClientError:
                continue
            there = {pod["metadata"]["uid"] for pod in await admin.items(path)}
            for uid in self.pods.keys() - there:
                self._goes(uid)

    def _take(self, event: _Event, now_s: float) -> None:
        meta, node = event.object.metadata, event.object.spec.node_name
        if event.type == "DELETED":
            self._goes(meta.uid)
            return
        pod = self.known(meta.uid, meta.namespace, meta.name)
        if node and pod.bound_s is None:
            pod.node, pod.bound_s = node, now_s
            self.bound += 1
            pod.bound.set()
        if meta.deletion_timestamp:
            pod.leaving.set()

    def _goes(self, uid: str) -> None:
        self._gone.add(uid)
        if (pod := self.pods.pop(uid, None)) is not None:
            _end(pod)


def _end(pod: Known) -> None:
    """Nobody waits for it any longer."""
    for event in (pod.gone, pod.bound, pod.leaving):
        event.set()
