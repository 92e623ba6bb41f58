"""One client of a cluster in memory: `port.Cluster`, with faults between client and server.

    request -> [fault?] -> executed by `World` -> [fault?] -> answer

A request that takes effect after its client has given up waits in `_late`, until its time or until `deliver_late`. The
server then checks it against its state at that moment.
"""

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Any, Final, TypeVar

from scheduler.kube.objects import PodCondition, PodObject
from scheduler.kube.port import (
    FAILED_PODS,
    ApiError,
    ApiFailed,
    ApiNotFound,
    ApiSilent,
    ApiThrottled,
    Binding,
    EventRecord,
    EventSeries,
    Kind,
    LastScheduled,
    NodeForClaim,
    NotSent,
    PodKey,
    T,
    VolumeForClaim,
    WantedLease,
    WatchEvent,
)
from scheduler.kube.scheduling import KINDS_AND_OPTIONAL
from scheduler.testing.cluster.faults import (
    Break,
    Effect,
    Fail,
    Faults,
    Overtaken,
    Refuse,
    Request,
    RequestFault,
    Silence,
    Slow,
    Stranger,
    Throttle,
    Verb,
    WatchBreaks,
    refusal,
)
from scheduler.testing.cluster.watching import WatchConnection, WatchTiming, last_change
from scheduler.testing.cluster.world import World

R = TypeVar("R")
# Besides bindings.
_OF_THE_LEADER: Final = frozenset(
    {Verb.BIND_VOLUME, Verb.SELECT_NODE, Verb.SET_CONDITION, Verb.NOMINATE, Verb.DELETE_POD}
)
_THROTTLED: Final = "Too many requests, please try again later."
_FAILED: Final = "an error on the server has prevented the request from succeeding"
_TIMING: Final = WatchTiming()
_EVERY_KIND: Final = frozenset(kind.name for kind in (*KINDS_AND_OPTIONAL, FAILED_PODS))


class MemoryCluster:
    """Client of a cluster in memory; implements `port.Cluster`.

    leads: asked before a request that only the leader may send. faults: none by default. latency_s: from request to
    answer, for requests without a fault. request_timeout_s: for requests without their own time-out.
    """

    def __init__(
        self,
        world: World,
        *,
        faults: Faults | None = None,
        latency_s: float = 0.0,
        timing: WatchTiming = _TIMING,
        request_timeout_s: float = 10.0,
    ) -> None:
        self.world = world
        self.faults = faults or Faults()
        self.leads: Callable[[], bool] = lambda: True
        self._latency_s = latency_s
        self._timing = timing
        self._request_timeout_s = request_timeout_s
        self._open: dict[WatchConnection[Any], None] = {}  # in the order of opening, so that every run is equal
        self._stalled: set[str] = set()
        self._late: dict[int, Callable[[], object]] = {}
        self._late_made = 0
        self._timers: set[asyncio.Task[None]] = set()

    async def watch(self, kind: Kind[T], since: str | None) -> AsyncIterator[list[WatchEvent[T]]]:
        fault = self.faults.hitting(Request(Verb.WATCH, kind.name))
        breaks = fault if isinstance(fault, WatchBreaks) else None
        collection = await self._answer(
            fault if breaks is None else None, lambda: self.world.collection(kind), self._timing.silence_s
        )
        connection = WatchConnection(kind, collection, since, timing=self._timing, breaks=breaks)
        if kind.name in self._stalled:
            connection.break_off(Break.STALLED)
        self._open[connection] = None
        try:
            if since is not None and kind.name not in self._stalled:
                yield []
            while (batch := await connection.next_batch()) is not None:
                yield batch
        finally:
            self._open.pop(connection, None)
            connection.close()

    async def bind(self, binding: Binding, timeout_s: float) -> None:
        self._expect_leader()
        fault = self.faults.hitting(Request(Verb.BIND, str(binding.pod), binding))
        await self._answer(fault, lambda: self.world.pods.assign(binding), timeout_s, binding)

    async def pod(self, namespace: str, name: str) -> PodObject | None:
        request = Request(Verb.READ_POD, f"{namespace}/{name}")
        try:
            return await self._ask(request, lambda: self.world.pods.find(namespace, name))
        except ApiNotFound:
            return None

    async def bind_volume(self, wanted: VolumeForClaim) -> str:
        return await self._ask(Request(Verb.BIND_VOLUME, wanted.volume), lambda: self.world.storage.bind_volume(wanted))

    async def select_node(self, wanted: NodeForClaim) -> str:
        request = Request(Verb.SELECT_NODE, f"{wanted.namespace}/{wanted.claim}")
        return await self._ask(request, lambda: self.world.storage.select_node(wanted))

    async def last_change(self, kind: Kind[T], since: str) -> str:
        request = Request(Verb.LAST_CHANGE, kind.name)
        return await self._ask(request, lambda: last_change(kind, self.world.collection(kind), since))

    async def last_scheduled(self, scheduler_name: str) -> LastScheduled:
        request = Request(Verb.LAST_SCHEDULED, scheduler_name)
        return await self._ask(request, lambda: self.world.pods.last_scheduled(scheduler_name))

    async def write_lease(self, wanted: WantedLease, timeout_s: float) -> str:
        fault = self.faults.hitting(Request(Verb.WRITE_LEASE, f"{wanted.namespace}/{wanted.name}"))
        return await self._answer(fault, lambda: self.world.leases.write(wanted), timeout_s)

    async def set_pod_condition(
        self,
        pod: PodKey,
        condition: PodCondition,
        *,
        changed: bool = True,  # noqa: ARG002 - conditions have no times here
    ) -> None:
        await self._ask(Request(Verb.SET_CONDITION, str(pod)), lambda: self.world.pods.set_condition(pod, condition))

    async def set_nominated_node(self, pod: PodKey, node: str) -> None:
        await self._ask(Request(Verb.NOMINATE, str(pod)), lambda: self.world.pods.nominate(pod, node))

    async def delete_pod(self, pod: PodKey) -> None:
        await self._ask(Request(Verb.DELETE_POD, str(pod)), lambda: self.world.pods.delete_of(pod))

    async def create_event(self, event: EventRecord) -> None:
        request = Request(Verb.CREATE_EVENT, f"{event.namespace}/{event.object_name}")
        await self._ask(request, lambda: self.world.events.create(event))

    async def update_event(self, event: EventRecord, series: EventSeries) -> None:
        request = Request(Verb.UPDATE_EVENT, f"{event.namespace}/{event.object_name}")
        await self._ask(request, lambda: self.world.events.update(event, series))

    async def close(self) -> None:
        """End every watch; the world and the requests sent to it remain for the next client."""
        self.break_watches(Break.ENDED)

    def break_watches(self, how: Break, kind: Kind[T] | None = None) -> None:
        """Break the open watches of a kind, None for all; a stall also holds those opened before `resume_watches`."""
        for connection in self._open:
            if kind is None or connection.kind.name == kind.name:
                connection.break_off(how)
        if how is Break.STALLED:
            self._stalled |= _EVERY_KIND if kind is None else {kind.name}

    def resume_watches(self) -> None:
        """End every stall."""
        self._stalled.clear()
        for connection in self._open:
            connection.resume()

    @property
    def late_requests(self) -> int:
        """Number of requests that will still be executed although their client has given up on them."""
        return len(self._late)

    def deliver_late(self) -> int:
        """Execute all late requests now, in the order in which they were sent; return how many had an effect."""
        return sum(self._deliver(ticket) for ticket in list(self._late))

    def _expect_leader(self) -> None:
        if not self.leads():
            raise NotSent

    async def _ask(self, request: Request, act: Callable[[], R]) -> R:
        if request.verb in _OF_THE_LEADER:
            self._expect_leader()
        return await self._answer(self.faults.hitting(request), act, self._request_timeout_s)

    async def _answer(
        self, fault: RequestFault | None, act: Callable[[], R], timeout_s: float, binding: Binding | None = None
    ) -> R:
        """Return the client's answer to a request that `act` executes."""
        await asyncio.sleep(0)  # no request is answered before its sender has yielded
        match fault:
            case None if self._latency_s > 0.0:
                return await self._slowly(Slow(self._latency_s / 2, self._latency_s / 2), act, timeout_s)
            case Throttle(retry_after_s):
                raise ApiThrottled(_THROTTLED, retry_after_s)
            case Refuse():
                raise refusal(fault)
            case Fail(status, effect, late_s):
                self._take_effect(effect, act, late_s)
                raise ApiFailed(_FAILED, status)
            case Stranger(status, effect, late_s):
                self._take_effect(effect, act, late_s)
                raise ApiSilent(f"not the API server's answer: {status}", status)
            case Silence():
                return await self._silently(fault, act, timeout_s)
            case Slow():
                return await self._slowly(fault, act, timeout_s)
            case Overtaken(node, annotations) if binding is not None:
                self._overtake(binding, node, annotations)
        return act()

    async def _silently(self, fault: Silence, act: Callable[[], R], timeout_s: float) -> R:
        waits_s = timeout_s if fault.after_s is None else fault.after_s
        self._take_effect(fault.effect, act, None if fault.late_s is None else waits_s + fault.late_s)
        if waits_s > 0.0:
            await asyncio.sleep(waits_s)
        raise ApiSilent("the connection was lost" if waits_s < timeout_s else f"no answer within {timeout_s:g} s")

    async def _slowly(self, fault: Slow, act: Callable[[], R], timeout_s: float) -> R:
        if fault.before_s >= timeout_s:
            late_s = fault.before_s - timeout_s
            return await self._silently(Silence(Effect.LATER, late_s=late_s), act, timeout_s)
        await asyncio.sleep(fault.before_s)
        if fault.before_s + fault.after_s >= timeout_s:
            return await self._silently(Silence(Effect.AT_ONCE, after_s=timeout_s - fault.before_s), act, timeout_s)
        answer = act()
        await asyncio.sleep(fault.after_s)
        return answer

    def _overtake(self, binding: Binding, node: str | None, annotations: dict[str, str]) -> None:
        try:
            self.world.pods.bind(binding.pod.namespace, binding.pod.name, node or binding.node, annotations)
        except ApiError:
            return  # the other binding is rejected just as this one will be

    def _take_effect(self, effect: Effect, act: Callable[[], object], late_s: float | None) -> None:
        if effect is Effect.NONE:
            return
        self._late_made += 1
        ticket = self._late_made
        self._late[ticket] = act
        if effect is Effect.AT_ONCE:
            self._deliver(ticket)
        elif late_s is not None:
            timer = asyncio.create_task(self._deliver_after(late_s, ticket))
            self._timers.add(timer)
            timer.add_done_callback(self._timers.discard)

    async def _deliver_after(self, late_s: float, ticket: int) -> None:
        await asyncio.sleep(late_s)
        self._deliver(ticket)

    def _deliver(self, ticket: int) -> bool:
        """Execute the request. Return whether it had an effect: it may be a duplicate, or the server may reject it."""
        act = self._late.pop(ticket, None)
        if act is None:
            return False
        try:
            act()
        except ApiError:
            return False  # the client of this answer is gone
        return True
