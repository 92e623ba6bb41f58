"""Watches a race from outside: when pods get a node, and how many Scheduled events there are."""

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final, TypeVar

import msgspec

from e2e.bench.workload import NAMESPACE
from e2e.control_plane.admin import Admin

PODS: Final = f"/api/v1/namespaces/{NAMESPACE}/pods"
EVENTS: Final = f"/apis/events.k8s.io/v1/namespaces/{NAMESPACE}/events"


class _Metadata(msgspec.Struct, rename="camel"):
    name: str
    resource_version: str = ""


class _Spec(msgspec.Struct, rename="camel"):
    node_name: str = ""


class _Condition(msgspec.Struct):
    reason: str = ""


class _Status(msgspec.Struct):
    conditions: list[_Condition] = []


class _Pod(msgspec.Struct):
    metadata: _Metadata
    spec: _Spec
    status: _Status


class _Event(msgspec.Struct):
    metadata: _Metadata
    regarding: _Metadata


class _PodSeen(msgspec.Struct):
    object: _Pod


class _EventSeen(msgspec.Struct):
    object: _Event


_Line = TypeVar("_Line", _PodSeen, _EventSeen)


class Observer:
    """What has been seen so far. Times are `time.monotonic()`, taken when the watch event came in.

    bound: when each pod was first seen with a node, by name. told, announced: names of the pods that were told why they
    wait, that have a Scheduled event.
    first_s, last_s: of the pods seen with a node; 0.0 before there was one. caught_up: set once `backlog` pods were
    seen, for 0 from the start.
    """

    def __init__(self, backlog: int) -> None:
        self.caught_up = asyncio.Event()
        self.bound: dict[str, float] = {}
        self.told: set[str] = set()
        self.announced: set[str] = set()
        self.first_s = 0.0
        self.last_s = 0.0
        self._backlog = backlog
        if not backlog:
            self.caught_up.set()

    async def watch_pods(self, admin: Admin) -> None:
        """Run until cancelled."""
        unread = self._backlog
        async for change in _followed(admin, PODS, {}, msgspec.json.Decoder(_PodSeen)):
            pod = change.object
            unread -= 1
            if unread == 0:
                self.caught_up.set()
            if any(condition.reason == "Unschedulable" for condition in pod.status.conditions):
                self.told.add(pod.metadata.name)
            if pod.spec.node_name and pod.metadata.name not in self.bound:
                self.last_s = self.bound[pod.metadata.name] = time.monotonic()
                self.first_s = self.first_s or self.last_s

    async def watch_events(self, admin: Admin) -> None:
        """Run until cancelled."""
        query = {"fieldSelector": "reason=Scheduled"}
        async for change in _followed(admin, EVENTS, query, msgspec.json.Decoder(_EventSeen)):
            self.announced.add(change.object.regarding.name)


@asynccontextmanager
async def observing(admin: Admin, backlog: int) -> AsyncIterator[Observer]:
    """Watch the pods; entered once `backlog` pods were seen."""
    observer = Observer(backlog)
    async with asyncio.TaskGroup() as tasks:
        watching = tasks.create_task(observer.watch_pods(admin))
        await observer.caught_up.wait()
        yield observer
        watching.cancel()


async def _followed(
    admin: Admin, path: str, query: dict[str, str], decoder: msgspec.json.Decoder[_Line]
) -> AsyncIterator[_Line]:
    """Every change that the watch shows, forever: a watch that ends is taken up where it ended.

    The API server ends watches that it finds too slow; in a race of thousands of writes that happens.
    """
    version: dict[str, str] = {}
    while True:
        async for line in admin.watch(path, query | version):
            seen = decoder.decode(line)
            version["resourceVersion"] = seen.object.metadata.resource_version
            yield seen
