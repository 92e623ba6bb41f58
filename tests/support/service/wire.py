"""One scheduler process's connection to the cluster: the objects that it received, and its requests.

Everything is recorded as the process sees it, so that it can be judged by what it could know.
"""

import asyncio
import math
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import Any, Final, TypeVar, cast

from config.protocol.booked_cards import Ask, read
from scheduler.dispatch.binding_cycle import SERVER_REQUEST_TIMEOUT_S, is_bound_as
from scheduler.kube import objects, port
from scheduler.kube.port import (
    ApiError,
    ApiFailed,
    ApiSilent,
    Binding,
    Changed,
    Deleted,
    Kind,
    ListBegins,
    ListEnds,
    T,
    WatchEvent,
)
from scheduler.kube.scheduling import KINDS_AND_OPTIONAL
from scheduler.pods.gpu_request import ResourceNames
from scheduler.pods.pod import PodReader
from scheduler.testing.cluster.cluster import MemoryCluster
from scheduler.testing.cluster.faults import Faults, Request, RequestFault, Verb
from scheduler.testing.cluster.pods import FINISHED
from scheduler.testing.cluster.world import World

R = TypeVar("R")
_INTERNAL_ERROR: Final = 500
WRITES: Final = frozenset(Verb) - {Verb.WATCH, Verb.READ_POD, Verb.LAST_CHANGE, Verb.LAST_SCHEDULED, Verb.WRITE_LEASE}
# Seconds added in another order differ in their last bit.
_ROUNDING_S: Final = 1e-6


class Told:
    """The objects of one kind as a client knows them from its watches."""

    def __init__(self) -> None:
        self._objects: dict[tuple[str, str], Any] = {}
        self._listed: set[tuple[str, str]] | None = None
        self.lists = 0

    def __iter__(self) -> Any:  # noqa: ANN401 - of whatever kind it is about
        return iter(self._objects.values())

    def take(self, event: WatchEvent[Any]) -> None:
        match event:
            case ListBegins():
                self._listed = set()
            case ListEnds():
                self._objects = {key: o for key, o in self._objects.items() if key in (self._listed or ())}
                self._listed = None
                self.lists += 1
            case Changed(found):
                known = self._objects.get(_key(found))
                if known is None or not _is_newer(known, found):
                    self._objects[_key(found)] = found
                if self._listed is not None:
                    self._listed.add(_key(found))
            case Deleted(gone):
                self._objects.pop(_key(gone), None)

    def knows(self, found: Any) -> bool:  # noqa: ANN401 - of whatever kind it is about
        """Return whether exactly this object was shown, and has not been shown as deleted since."""
        known = self._objects.get(_key(found))
        return known is not None and known.metadata.uid == found.metadata.uid


@dataclass
class Posts:
    """Every requested Binding, by all processes of one world. by_uid: without repetitions.

    open: UID -> the binding that may still take effect, and until when. lasts_s: after it was sent. of: by process and
    pod, until when a request of that process may take effect.
    """

    world: World

    by_uid: dict[str, list[Binding]] = field(default_factory=dict)
    open: dict[str, tuple[Binding, float]] = field(default_factory=dict)
    lasts_s: float = SERVER_REQUEST_TIMEOUT_S
    of: dict[tuple[int, port.PodKey], float] = field(default_factory=dict)

    def sending(self, binding: Binding, now_s: float, process: int) -> None:
        """Record a sent binding. Assert that no other binding or other process's request may still take effect."""
        uid = binding.pod.uid
        # The API server gives a bound pod no other node, and a deleted pod none, even if another pod has its name. So
        # late bindings for such pods are harmless.
        others = {key: until_s for key, until_s in self.of.items() if key[0] != process and self._waits(key[1])}
        assert all(now_s >= until_s - _ROUNDING_S for until_s in others.values()), (
            f"{binding} while requests of another process may still take effect: {others}"
        )
        self.of[process, binding.pod] = math.inf
        other, until_s = self.open.get(uid, (binding, 0.0))
        assert not self._waits(binding.pod) or other == binding or now_s >= until_s - _ROUNDING_S, (
            f"{binding} while {other} may still take effect"
        )
        sent = self.by_uid.setdefault(uid, [])
        if binding not in sent:
            sent.append(binding)

    def answered(self, binding: Binding, process: int) -> None:
        self.of.pop((process, binding.pod), None)

    def unanswered(self, binding: Binding, sent_s: float, process: int) -> None:
        until_s = sent_s + self.lasts_s
        self.open[binding.pod.uid] = (binding, until_s)
        self.of[process, binding.pod] = until_s

    def end_by(self, until_s: float) -> None:
        """Limit the time in which requests sent so far can take effect."""
        self.open = {uid: (binding, min(late_s, until_s)) for uid, (binding, late_s) in self.open.items()}
        self.of = {key: min(late_s, until_s) for key, late_s in self.of.items()}

    def _waits(self, pod: port.PodKey) -> bool:
        """Return whether exactly that pod exists, without a node."""
        found = self.world.pods.find(pod.namespace, pod.name)
        return found is not None and found.metadata.uid == pod.uid and not found.spec.node_name

    def are_ours(self, pod: objects.PodObject) -> bool:
        """Return whether one of our bindings has put the pod on its node."""
        written = pod.metadata.annotations or {}
        return any(
            sent.node == pod.spec.node_name and sent.annotations.items() <= written.items()
            for sent in self.by_uid.get(pod.metadata.uid, ())
        )


class CountedWrites(Faults):
    """Faults that count a client's writes, including failed ones, by verb and object."""

    def __init__(self, seed: int = 0) -> None:
        super().__init__(seed)
        self.writes: Counter[tuple[Verb, str]] = Counter()

    def hitting(self, request: Request) -> RequestFault | None:
        if request.verb in WRITES:
            self.writes[request.verb, request.about] += 1
        return super().hitting(request)


class Wire(MemoryCluster):
    """One process's client. told, connections: by the name of the kind.

    garbled: names of objects that arrive undecodable.
    heard: number of events, without bookmarks, and of answers.
    """

    def __init__(self, world: World, posts: Posts, *, latency_s: float = 0.0, seed: int = 0) -> None:
        super().__init__(world, faults=Faults(seed), latency_s=latency_s)
        self.posts = posts
        watched = (*KINDS_AND_OPTIONAL, port.FAILED_PODS, port.lease_kind("", ""))
        self.told = {kind.name: Told() for kind in watched}
        self.connections: Counter[str] = Counter()
        self.garbled: set[str] = set()
        self.heard = 0
        # UID -> the first annotations that named the pod's cards, as this process received them.
        self.first: dict[str, dict[str, str]] = {}
        self._placed: set[str] = set()
        # (when, pod, message) of every requested condition, and the time of each binding.
        self.conditions: list[tuple[float, str, str]] = []
        self.bindings: list[tuple[float, Binding]] = []

    def pod_told(self, uid: str) -> objects.PodObject:
        """Return the pod as last received. Raises StopIteration if it was not."""
        found: objects.PodObject = next(pod for pod in self.told["pods"] if pod.metadata.uid == uid)
        return found

    async def watch(self, kind: Kind[T], since: str | None) -> AsyncIterator[list[WatchEvent[T]]]:
        told = self.told[kind.name]
        self.connections[kind.name] += 1
        async with aclosing(cast("Any", super().watch(kind, since))) as batches:
            async for batch in batches:
                events = [self._garble(event) for event in batch]
                self.heard += sum(not isinstance(event, port.Bookmark) for event in events)
                for event in events:
                    told.take(event)
                    # Another watch shows failed pods, to report why they failed; bookings are not read from it.
                    if kind.name == port.PODS.name:
                        self._learn(event)
                yield events

    async def set_pod_condition(
        self, pod: port.PodKey, condition: objects.PodCondition, *, changed: bool = True
    ) -> None:
        """Set the condition; assert that no pod with a known node is reported as waiting."""
        told = next((found for found in self.told["pods"] if found.metadata.uid == pod.uid), None)
        has_place = pod.uid in self._placed or (told is not None and told.spec.node_name)
        assert not (condition.status == "False" and has_place), f"{pod} has a place, and is said to wait"
        if condition.type == "PodScheduled":
            self.conditions.append((asyncio.get_running_loop().time(), pod.name, condition.message))
        await super().set_pod_condition(pod, condition, changed=changed)

    async def pod(self, namespace: str, name: str) -> objects.PodObject | None:
        """Return the pod. It is known from then on, however late the watch is, unless the watch was faster."""
        found = await super().pod(namespace, name)
        if found is not None and found.spec.node_name:
            self._placed.add(found.metadata.uid)
            wanted = next(b for _, b in reversed(self.bindings) if (b.pod.namespace, b.pod.name) == (namespace, name))
            if wanted.pod.uid == found.metadata.uid and self.told["pods"].knows(found):
                elsewhere = not is_bound_as(found, wanted.node, wanted.annotations)
                gone = elsewhere and found.status.phase in FINISHED
                self.told["pods"].take(Deleted(found) if gone else Changed(found))
                if gone:
                    self.first.pop(found.metadata.uid, None)
                else:
                    self._learn(Changed(found))
        return found

    async def bind(self, binding: Binding, timeout_s: float) -> None:
        self._expect_leader()
        sent_s = asyncio.get_running_loop().time()
        self.bindings.append((sent_s, binding))
        self.posts.sending(binding, sent_s, id(self))
        try:
            await super().bind(binding, timeout_s)
            self._placed.add(binding.pod.uid)
            self.first[binding.pod.uid] = dict(binding.annotations)
        except (ApiSilent, asyncio.CancelledError):
            self.posts.unanswered(binding, sent_s, id(self))
            raise
        except ApiFailed as failed:
            if failed.status == _INTERNAL_ERROR:
                self.posts.answered(binding, id(self))
            else:
                self.posts.unanswered(binding, sent_s, id(self))
            raise
        except ApiError:
            self.posts.answered(binding, id(self))
            raise
        else:
            self.posts.answered(binding, id(self))

    async def _answer(
        self, fault: RequestFault | None, act: Callable[[], R], timeout_s: float, binding: Binding | None = None
    ) -> R:
        try:
            return await super()._answer(fault, act, timeout_s, binding)
        finally:
            self.heard += 1

    def _learn(self, event: WatchEvent[Any]) -> None:
        if isinstance(event, Changed) and isinstance(event.object, objects.PodObject) and event.object.spec.node_name:
            uid, shown = event.object.metadata.uid, event.object.metadata.annotations or {}
            known = self.first.get(uid)
            if known is None or not read(known, _asks(event.object)).decided:
                self.first[uid] = dict(shown)

    def _garble(self, event: WatchEvent[T]) -> WatchEvent[T]:
        if isinstance(event, Changed) and event.object.metadata.name in self.garbled:
            return port.Undecodable("/".join(filter(None, _key(event.object))), "expected `object`, got `str`")
        return event


def _asks(pod: objects.PodObject) -> Ask:
    template = PodReader(ResourceNames()).read(pod).template
    cards = 0 if template.gpu_request is None else template.gpu_request.cards
    return Ask(template.gpu_units, cards, template.sidecars)


def _key(found: Any) -> tuple[str, str]:  # noqa: ANN401 - an object of any kind
    return found.metadata.namespace, found.metadata.name


def _is_newer(known: Any, found: Any) -> bool:  # noqa: ANN401 - of whatever kind
    """Return whether `known` is a later state of the same object."""
    one, other = known.metadata, found.metadata
    return bool(one.uid == other.uid and int(one.resource_version) > int(other.resource_version))
