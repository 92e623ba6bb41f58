"""The scheduler's watches, which pass events to the event handlers, and failures to `contact`.

Pods are listed last, when bind requests of the previous leader can no longer take effect.
"""

import asyncio
import random
from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, Generic

import structlog
from tenacity.wait import wait_exponential

from scheduler.core.engine import Engine
from scheduler.intake.event_handlers import EventHandlers, rfc3339
from scheduler.intake.reports import Reports
from scheduler.intake.volume_handlers import VolumeHandlers
from scheduler.kube import port
from scheduler.kube.port import Cluster, Kind, ListBegins, ListEnds, T, WatchEvent
from scheduler.kube.reflector import Backoff, WatchBackoff, reflect
from scheduler.kube.scheduling import OPTIONAL, POD_GROUPS
from scheduler.leader.leader_election import TakeOver
from scheduler.leader.leadership import VersionBarrier
from scheduler.metrics.observer import ServiceObserver
from scheduler.pods.pod import PodReader
from scheduler.process.clock import Clock
from scheduler.process.contact import BINDINGS, Contact

_CATCHING_UP: Final = "the pods as they are now"
_BATCH_WAIT_S: Final = 0.005
_SLICE_S: Final = 0.005
_SMALL_BATCH: Final = 64
# One scheduler serves the whole cluster, so it reconnects within a second of a server's return.
_RECONNECT_MAX_S: Final = 1.0
# Several times as long as a scheduler without its Lease may continue, because its clock may differ.
_AT_WORK_WITHIN_S: Final = 60.0
# Unless our watch is broken, it soon shows every change that the previous leader saw.
_HANDED_OVER_WITHIN_S: Final = 1.0

# Scheduling of other pods does not depend on them.
_NOT_NEEDED: Final[tuple[Kind[Any], ...]] = (port.FAILED_PODS, *OPTIONAL)

log = structlog.get_logger()


async def in_slices(
    batch: Sequence[WatchEvent[T]], handle: Callable[[Sequence[WatchEvent[T]]], None], now_s: Callable[[], float]
) -> None:
    """Handle a batch in slices of a few milliseconds; other tasks run between slices. now_s: monotonic seconds."""
    until_s = now_s() + _SLICE_S
    for event in batch:
        # A large object takes milliseconds.
        if now_s() > until_s:
            await asyncio.sleep(0)
            until_s = now_s() + _SLICE_S
        handle((event,))


@dataclass(frozen=True, slots=True)
class Watched(Generic[T]):
    """A kind of object that the scheduler reads, and its handler. needed: nothing can be decided without it."""

    kind: Kind[T]
    handle: Callable[[Sequence[WatchEvent[T]]], None]
    needed: bool = True


def watched(handlers: EventHandlers, volume_handlers: VolumeHandlers) -> tuple[Watched[Any], ...]:
    """All watched kinds: `scheduling.KINDS_AND_OPTIONAL`.

    Pods come last, because they are listed after the fencing delay.
    """
    return (
        Watched(port.NODES, handlers.nodes),
        Watched(port.NAMESPACES, handlers.namespaces, needed=False),
        Watched(port.CONFIG_MAPS, handlers.config_maps, needed=False),
        Watched(port.DISRUPTION_BUDGETS, handlers.disruption_budgets, needed=False),
        *(Watched(kind, partial(handlers.selecting, kind), needed=False) for kind in port.SELECTING),
        *(
            Watched(kind, partial(handlers.pod_groups, api_group), needed=False)
            for api_group, kinds in POD_GROUPS.items()
            for kind in kinds
        ),
        *(Watched(kind, partial(volume_handlers.handle, kind), needed=False) for kind in port.OF_STORAGE),
        Watched(port.PODS, handlers.pods),
    )


class Watches:
    """The watches, one task per kind. listed: set once every kind has been listed. wake: set at each batch."""

    def __init__(
        self,
        cluster: Cluster,
        handlers: EventHandlers,
        volume_handlers: VolumeHandlers,
        observer: ServiceObserver,
        contact: Contact,
        *,
        clock: Clock,
        fencing_delay_s: float,
        since_s: float,
        rng: random.Random,
        wake: asyncio.Event,
    ) -> None:
        """fencing_delay_s: for how long a request of the previous leader may take effect after its last one.

        since_s: monotonic time from which a previous leader without a Lease sends nothing. rng: spreads retries.
        """
        self._cluster = cluster
        self._handlers = handlers
        self._observer = observer
        self._clock = clock
        self._fencing_delay_s = fencing_delay_s
        self._fenced_s = since_s + fencing_delay_s
        self._rng = rng
        self._wake = wake
        self._watched = watched(handlers, volume_handlers)
        # Without the budgets nothing is preempted, and without its PodGroup no gang starts; everything else works.
        may_come_later = (port.DISRUPTION_BUDGETS, *OPTIONAL)
        self._unlisted = {one.kind.name for one in self._watched if one.kind not in may_come_later}
        self.contact = contact
        self.listed = asyncio.Event()
        self.barrier = VersionBarrier()

    def start(self, tasks: asyncio.TaskGroup) -> list[asyncio.Task[None]]:
        """Start the watches."""
        failed_pods = Watched(port.FAILED_PODS, self._handlers.failed_pods)
        return [tasks.create_task(self._reflect(one.kind, one.handle)) for one in (failed_pods, *self._watched)]

    async def take_over(self, taken_over: TakeOver, scheduler_names: Collection[str]) -> None:
        """Wait until the tables include every binding of the previous leader, and none can follow."""
        if taken_over.first and await self.are_first(scheduler_names, self._clock.wall_ns() / 1e9):
            return
        if taken_over.sends_for_s is not None and self._fencing_delay_s:
            await self._wait_until(self._clock.monotonic_s() + taken_over.sends_for_s + self._fencing_delay_s)
        await self.wait_until_current(taken_over.pods_version)

    async def _wait_until(self, fenced_s: float) -> None:
        left_s = fenced_s - self._clock.monotonic_s()
        if left_s > 0:
            reason = "a bind request of the previous process may still take effect"
            log.info("start.waiting", seconds=round(left_s, 1), reason=reason)
            await asyncio.sleep(left_s)

    async def are_first(self, scheduler_names: Collection[str], unix_s: float) -> bool:
        """Whether no scheduler with these names has run in the last minute, so that the tables miss no binding.

        Call it only if there was no Lease. unix_s: current time.
        """
        since = rfc3339(unix_s - _AT_WORK_WITHIN_S)
        try:
            found = [await self._cluster.last_scheduled(name) for name in sorted(scheduler_names)]
        except port.ApiError as error:
            log.warning("leader.predecessor_unknown", reason=error.message)
            return False
        if any(last.moment >= since for last in found):
            return False
        await self.listed.wait()
        for last in found:
            await self.barrier.wait_for(last.version)
        return True

    async def wait_until_current(self, pods_version: str | None) -> None:
        """Wait until the tables include every pod change made before the call.

        pods_version: resource version of the last such change; None to ask the API server for it.
        """
        await self.listed.wait()
        if pods_version is not None:
            with suppress(TimeoutError):
                async with asyncio.timeout(_HANDED_OVER_WITHIN_S):
                    return await self.barrier.wait_for(pods_version)
        backoff, failures = Backoff(self._rng, wait_exponential(multiplier=0.1, max=_RECONNECT_MAX_S)), 0
        while True:
            try:
                last = await self._cluster.last_change(port.PODS, self.barrier.version)
            except port.ApiError as error:
                failures += 1
                if self.contact.failed(_CATCHING_UP, error.message):
                    log.warning("leader.catches_up", reason=error.message)
                await asyncio.sleep(backoff.delay_s(failures))
            else:
                self.contact.recovered(_CATCHING_UP)
                return await self.barrier.wait_for(last)

    def not_ready(self, after_s: float) -> str:
        """Why no pod can be scheduled yet: missing lists, or failures for longer than `after_s`; "" for none."""
        problem = self.contact.problem(after_s)
        if not self._unlisted:
            return problem
        waiting = f"waiting for the first list of {', '.join(sorted(self._unlisted))}"
        return f"{waiting}; {problem}" if problem else waiting

    async def _reflect(self, kind: Kind[T], handle: Callable[[Sequence[WatchEvent[T]]], None]) -> None:
        if kind is port.PODS:
            # The list then has every binding of the previous leader, however slow the watch is.
            await self._wait_until(self._fenced_s)
        batches = reflect(
            self._cluster,
            kind,
            backoff=WatchBackoff(self._rng, reconnect_max_s=_RECONNECT_MAX_S),
            on_trouble=self._trouble,
            on_answer=self._answered,
            bookmarks=kind is port.PODS,
        )
        async for batch in batches:
            await in_slices(batch, handle, self._clock.monotonic_s)
            self._handled(kind, batch)
            # The API server sends each change separately; after a short pause they arrive in batches, which cost less.
            if len(batch) < _SMALL_BATCH:
                await asyncio.sleep(_BATCH_WAIT_S)

    def _handled(self, kind: Kind[T], batch: Sequence[WatchEvent[T]]) -> None:
        if kind is port.PODS:
            self.barrier.handled(batch)
        for event in batch:
            if isinstance(event, ListBegins):
                self._observer.list_began(kind.name)
            elif isinstance(event, ListEnds):
                self._first_list(kind.name)
        self._wake.set()

    def _first_list(self, kind: str) -> None:
        if kind in self._unlisted:
            self._unlisted.discard(kind)
            log.info("cluster.listed", kind=kind, missing=sorted(self._unlisted))
        if not self._unlisted:
            self.listed.set()

    def _trouble(self, kind: Kind[T], error: port.ApiError | None) -> None:
        if kind in _NOT_NEEDED:
            pass
        elif error is None:
            self.contact.recovered(kind.name)
        else:
            self.contact.failed(kind.name, error.message)
        self._observer.watch_trouble(kind, error)

    def _answered(self, kind: Kind[T], opened: bool) -> None:  # noqa: FBT001 - as OnAnswer
        if kind not in _NOT_NEEDED:
            self.contact.answered(kind.name)
        if opened:
            # The credentials work; the next bind request shows whether they allow binding.
            self.contact.recovered(BINDINGS)


def watches_of(
    cluster: Cluster,
    engine: Engine,
    reader: PodReader,
    observer: ServiceObserver,
    contact: Contact,
    *,
    reports: Reports,
    clock: Clock,
    fencing_delay_s: float,
    since_s: float,
    rng: random.Random,
    wake: asyncio.Event,
) -> Watches:
    """Return the watches, not started, with handlers that feed the engine. Arguments as in `Watches`."""
    return Watches(
        cluster,
        EventHandlers(engine, reader, reports, clock),
        VolumeHandlers(engine.tables, reports),
        observer,
        contact,
        clock=clock,
        fencing_delay_s=fencing_delay_s,
        since_s=since_s,
        rng=rng,
        wake=wake,
    )
