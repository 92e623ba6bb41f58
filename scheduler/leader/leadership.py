"""This replica's part in leader election: it follows the Lease, and writes it when due."""

import asyncio
import random
from collections.abc import Callable, Sequence
from typing import Any, Final

import structlog

from scheduler.kube.leases import Lease
from scheduler.kube.port import (
    ApiConflict,
    ApiError,
    ApiNotFound,
    Bookmark,
    Changed,
    Cluster,
    Deleted,
    ListBegins,
    ListEnds,
    WatchEvent,
    lease_kind,
)
from scheduler.kube.reflector import WatchBackoff, reflect
from scheduler.kube.resource_versions import version_number
from scheduler.leader.leader_election import LeaderElection, TakeOver
from scheduler.process.contact import Contact


class VersionBarrier:
    """Position of the tables in the history of pods. Owned by the event loop."""

    def __init__(self) -> None:
        # The tables include everything up to this version; None until the first list has ended.
        self._version: int | None = None
        self._last_change = 0
        self._listing = False
        self._advanced = asyncio.Event()

    @property
    def version(self) -> str:
        """Version up to which the tables include all changes; "0" until the first list has ended."""
        return str(self._version or 0)

    @property
    def last_change(self) -> str:
        """Version of the latest pod change in the tables, "0" if none. Other replicas reach it without a bookmark."""
        return str(self._last_change)

    def handled(self, batch: Sequence[WatchEvent[Any]]) -> None:
        """Record that the tables include these events of pods."""
        for event in batch:
            match event:
                case Changed() | Deleted() if version := version_number(event.object.metadata.resource_version):
                    self._last_change = max(self._last_change, version)
                    if not self._listing:
                        self._version = self._last_change
                case ListBegins():
                    self._listing = True
                case ListEnds():
                    self._listing, self._version = False, version_number(event.resource_version)
                case Bookmark():
                    self._version = version_number(event.resource_version)
        self._advanced.set()

    async def wait_for(self, version: str) -> None:
        """Wait until the tables include all changes up to this version."""
        while self._version is None or self._version < version_number(version):
            self._advanced.clear()
            await self._advanced.wait()


# Names of the requests in `Contact`, next to the watches.
_WATCH: Final = "leases"
_WRITES: Final = "renewals of the lease"
# When the leader's process exits.
_END_WITHIN_S: Final = 2.0
# Spreads the writes of standby replicas: maximum delay as a fraction of the retry period.
_JITTER: Final = 0.2
# After this many rejections, the watch of the Lease is restarted.
_REFUSED_IN_A_ROW: Final = 2
# Short enough to find a returning server before the deadline.
_RECONNECT_MAX_S: Final = 1.0

log = structlog.get_logger()


class LeaseLost(Exception):
    """This replica no longer leads, so the process must exit."""


class Leadership:
    """Leader election of this replica; see the module. Create it inside the event loop that uses it."""

    def __init__(
        self,
        cluster: Cluster,
        election: LeaderElection,
        *,
        now_s: Callable[[], float],
        wall: Callable[[], str],
        rng: random.Random,
    ) -> None:
        """now_s: seconds of a clock that is never adjusted and runs while the machine sleeps. wall: RFC 3339."""
        self._cluster = cluster
        self._election = election
        self._now_s = now_s
        self._wall = wall
        self._rng = rng
        self._listed = asyncio.Event()
        self._changed = asyncio.Event()
        self._won: asyncio.Future[TakeOver] = asyncio.get_running_loop().create_future()
        self._logged = ""
        self._shown = False  # whether the current list contains the Lease
        # Consecutive writes rejected because the Lease differs from what the watch shows.
        self._behind = 0
        self._ending = False

    @property
    def identity(self) -> str:
        """Identity of this replica."""
        return self._election.identity

    @property
    def leader(self) -> str:
        """Known holder of the Lease; "" if none."""
        return self._election.holder

    def leads(self) -> bool:
        """Whether this replica may send a leader's request now."""
        return self._election.leads(self._now_s())

    async def won(self) -> TakeOver:
        """Wait until this replica leads, and return how it took over."""
        return await asyncio.shield(self._won)

    async def run(self, contact: Contact) -> None:
        """Follow the Lease, acquire it when it is free, and renew it, until `end`. Raises LeaseLost.

        contact: records failures, so that a replica that cannot lead is not ready.
        """
        async with asyncio.TaskGroup() as tasks:
            following = tasks.create_task(self._follow(contact))
            await self._listed.wait()
            while not self._ending:
                await self._write_if_due(contact)
                if why := self._election.lost(self._now_s()):
                    raise LeaseLost(why)
                if self._behind >= _REFUSED_IN_A_ROW:
                    # A half-open connection delivers nothing; a new one starts with the current state.
                    self._behind = 0
                    following.cancel()
                    following = tasks.create_task(self._follow(contact))
                await self._until_due()
            following.cancel()

    async def end(self, running: asyncio.Task[None], pods_version: str | None) -> None:
        """Stop `run` and release the Lease, so that the next replica need not wait.

        pods_version: see `LeaderElection.given_up`; None if the outcome of a request of ours is unknown, so that the
        Lease expires instead.
        """
        self._ending = True
        self._changed.set()
        # Wait for a renewal in flight, which would make the release fail.
        await asyncio.wait({running}, timeout=_END_WITHIN_S)
        running.cancel()
        wanted = None if pods_version is None else self._election.given_up(self._wall(), pods_version)
        if wanted is None:
            return
        try:
            await self._cluster.write_lease(wanted, _END_WITHIN_S)
        except ApiError as error:
            log.warning("leader.not_given_up", reason=error.message)
        else:
            log.info("leader.given_up", identity=self.identity)

    async def _follow(self, contact: Contact) -> None:
        kind = lease_kind(self._election.namespace, self._election.name)
        backoff = WatchBackoff(self._rng, reconnect_max_s=_RECONNECT_MAX_S)

        def trouble(_: object, error: ApiError | None) -> None:
            if error is None:
                contact.recovered(_WATCH)
            elif contact.failed(_WATCH, error.message):
                log.warning("leader.lease_not_read", reason=error.message)

        async for batch in reflect(self._cluster, kind, backoff=backoff, on_trouble=trouble):
            for event in batch:
                self._observe(event)
            self._behind = 0
            if self.leader not in {"", self.identity}:
                # Another replica renews it, so no write of ours fails any more.
                contact.recovered(_WRITES)
            self._log_leader()
            self._changed.set()

    def _observe(self, event: WatchEvent[Lease]) -> None:
        match event:
            case ListBegins():
                self._shown = False
            case Changed():
                self._shown = True
                self._election.observe(event.object, self._now_s())
            case Deleted():
                self._election.gone(self._now_s())
            case ListEnds():
                if not self._shown:
                    self._election.gone(self._now_s())
                self._listed.set()

    async def _write_if_due(self, contact: Contact) -> None:
        sent_s = self._now_s()
        led, wanted = self._election.leads(sent_s), self._election.wanted(sent_s, self._wall())
        if wanted is None:
            return
        try:
            version = await self._cluster.write_lease(wanted, self._election.request_timeout_s)
        except (ApiConflict, ApiNotFound) as rejected:
            # Another replica was faster: the watch will show it.
            self._behind += 1
            contact.recovered(_WRITES)
            log.info("leader.lease_not_written", reason=rejected.message)
        except ApiError as error:
            if contact.failed(_WRITES, error.message):
                log.warning("leader.lease_not_written", reason=error.message)
        else:
            contact.recovered(_WRITES)
            self._election.written(wanted, version, sent_s)
            self._leads_now(led=led)

    def _leads_now(self, *, led: bool) -> None:
        """Record that this replica holds the Lease. led: whether it already held it before."""
        if self._election.taken_over is None or led:
            return
        log.info("leader.elected" if not self._won.done() else "leader.again", identity=self.identity)
        if not self._won.done():
            self._won.set_result(self._election.taken_over)

    async def _until_due(self) -> None:
        """Wait until a write is due, or the Lease changes."""
        if self._ending:
            return
        election, now_s = self._election, self._now_s()
        due_s = election.due_s()
        if not self._won.done() and due_s > now_s:
            due_s += self._rng.uniform(0.0, _JITTER) * election.timing.retry_period_s
        self._changed.clear()
        try:
            async with asyncio.timeout(max(0.0, due_s - now_s)):
                await self._changed.wait()
        except TimeoutError:
            return

    def _log_leader(self) -> None:
        """Log a new leader, unless it is this replica."""
        leader = self.leader
        if leader not in {"", self._logged, self.identity} and not self._won.done():
            self._logged = leader
            log.info("leader.standby", leader=leader, hint="this replica schedules nothing until the leader exits")
