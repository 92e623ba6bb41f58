"""One scheduler under fire, or its replicas: each process behind a proxy, nodes and pods, the witness, what was done.

    fire ──▶ nodes, rights as installed, proxies, replicas, witness at work ──end──▶ all of it gone

The scheduler runs with the rights of deploy/manifests, and no others.
"""

import asyncio
import random
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Final

import aiohttp

from e2e.control_plane.admin import Admin, ApiResponse, Json, UnexpectedAnswer
from e2e.control_plane.cluster import ControlPlane
from e2e.fire import pending, reading, workload
from e2e.fire.beside import beside
from e2e.fire.proxy import Proxy, WatchTrouble, proxy
from e2e.fire.recording import Recording
from e2e.fire.terms import Sent
from e2e.fire.witness import Witness
from e2e.programs import manifests
from e2e.programs.scheduler_process import SchedulerProcess

NODES: Final = "/api/v1/nodes"
AT_ONCE: Final = {"gracePeriodSeconds": 0}
# Short, so that a new process has not long to wait for requests of the last one, and refused pods soon come again. A
# bind request ends within bindTimeout, and `mishaps` hold none for longer than leaseDuration less renewDeadline.
CONFIGURATION: Final[Mapping[str, Any]] = {
    "bindTimeout": "1s",
    "podInitialBackoffSeconds": 0.1,
    "podMaxBackoffSeconds": 2,
    "ledgerAuditPeriod": "2s",
    "leaderElection": {"leaseDuration": "4s", "renewDeadline": "2s", "retryPeriod": "500ms"},
}
_LOOK_EVERY_S: Final = 0.1
_SHOWN: Final = 60


@dataclass(slots=True)
class Replica:
    """program: held by whoever stops it. ended: exit codes, when it has ended by itself."""

    name: str
    proxy: Proxy
    scheduler: SchedulerProcess
    program: asyncio.Lock = field(default_factory=asyncio.Lock)
    ended: list[int] = field(default_factory=list)

    def unexpected(self) -> list[str]:
        """Ends that were not for the loss of the Lease, a line each."""
        lost = len(self.scheduler.lines("leader.lost"))
        others = [code for code in self.ended if code != 1]
        return [f"{self.name} has ended with {self.ended}, {lost} times for the Lease"] * bool(
            others or lost < len(self.ended)
        )


@dataclass(slots=True)
class Site:
    """servers: held by whoever stops a server. replicas: behind a proxy each. sent: what came through those.

    pods_path: where the pods are. said: what was done, and when.
    """

    cluster: ControlPlane
    admin: Admin
    pods_path: str
    replicas: list[Replica]
    sent: Sent
    recording: Recording
    seed: int
    servers: asyncio.Lock = field(default_factory=asyncio.Lock)
    said: list[str] = field(default_factory=list)
    began_s: float = field(default_factory=time.monotonic)

    def __str__(self) -> str:
        witness = self.witness
        waiting = sum(map(reading.is_ours, witness.waiting()))
        return (
            f"NIGHTLY_SEED={self.seed}, {self.recording.happened} changes seen, {witness.bound} pods bound, "
            f"{waiting} wait, {sum(one.proxy.seen for one in self.replicas)} requests, "
            f"{len(witness.terms.leaders(self.sent))} terms, {len(witness.faults)} faults"
        )

    @property
    def proxy(self) -> Proxy:
        """Of the first replica."""
        return self.replicas[0].proxy

    @property
    def scheduler(self) -> SchedulerProcess:
        """The first replica."""
        return self.replicas[0].scheduler

    def described(self, one: Replica) -> str:
        """Its name and part, for `say`."""
        return f"{one.name}, {'the leader' if one is self.leader else 'which does not lead'}"

    @property
    def leader(self) -> Replica | None:
        """Who holds the Lease; None where none of them does."""
        name = self.sent.replica_of(self.witness.terms.holder)
        return next((one for one in self.replicas if one.name == name), None)

    @property
    def witness(self) -> Witness:
        """Who has seen everything."""
        return self.recording.witness

    def rng(self, of: str) -> random.Random:
        """A generator of its own for each fault, so that one that is left out does not change the others."""
        return random.Random(f"{self.seed} {of}")  # noqa: S311 - to be repeated

    def say(self, what: str) -> None:
        """Note what was done."""
        self.said.append(f"{time.monotonic() - self.began_s:8.2f} s, revision {self.witness.revision}: {what}")

    async def create(self, count: int, of: str = "pod") -> None:
        """Create so many pods. Raises UnexpectedAnswer."""
        rng = self.rng(of)
        await self.admin.create_all(self.pods_path, (workload.pod(f"{of}-{number}", rng) for number in range(count)))

    def spare(self) -> None:
        """Do no more to requests."""
        for one in self.replicas:
            one.proxy.choose, one.proxy.watches = (lambda _: None), WatchTrouble()

    async def clear(self) -> None:
        """Do no more to requests, and remove the pods. Raises TimeoutError."""
        self.spare()
        await self.admin.delete_all(self.pods_path, AT_ONCE)
        await self.recording.until(lambda: all(one.gone for one in self.witness.pods.values()), within_s=15.0)

    async def bound(self, count: int, *, within_s: float = 60.0) -> None:
        """Return when so many pods have got a node since the witness began. Raises TimeoutError."""
        await self.recording.until(lambda: self.witness.bound >= count, within_s=within_s)

    async def settled(self, within_s: float) -> list[str]:
        """What is wrong once every pod is bound, or waits with a true reason; [] is well.

        After `within_s`, what is not so yet.
        """
        until_s = time.monotonic() + within_s
        while not self.witness.faults:
            wrong = pending.untrue(self.witness) or await self._differs()
            if not wrong or time.monotonic() > until_s:
                return self._told(wrong)
            await asyncio.sleep(_LOOK_EVERY_S)
        return self._told([self.witness.report()])

    async def _differs(self) -> list[str]:
        """Where the witness is behind the API server."""
        listed = await tolerant(self.admin.items(self.pods_path))
        if listed is None:
            return ["the API server does not answer"]
        at = {uid: one.node for uid, one in self.witness.pods.items() if not one.gone}
        found = {pod["metadata"]["uid"]: reading.node_of(pod) for pod in listed}
        return [f"the witness has not seen {uid} on {node!r}" for uid, node in found.items() if at.get(uid) != node]

    def _told(self, wrong: list[str]) -> list[str]:
        audits = [audit for one in self.replicas for audit in one.scheduler.lines("ledger.audited")]
        # What must never be comes first: only so many lines are shown.
        never = [*self.witness.terms.faults(self.sent), *(line for one in self.replicas for line in one.unexpected())]
        never += [str(audit) for audit in audits if audit["differences"] or audit["overcommitted"]]
        wrong = [*never, *wrong]
        return [*wrong[:_SHOWN], f"NIGHTLY_SEED={self.seed}", *self.said[-_SHOWN:]] if wrong else []


@asynccontextmanager
async def fire(
    cluster: ControlPlane,
    admin: Admin,
    namespace: str,
    folder: Path,
    *,
    seed: int,
    nodes: int,
    replicas: int = 1,
) -> AsyncIterator[Site]:
    """A scheduler at work on so many nodes. folder: of its configuration and its log.

    replicas: where there are several, one that ends by itself is started again, as the kubelet does.
    """
    await manifests.apply(admin, *_installed())
    direct = cluster.kubeconfig_for(await manifests.token(admin), f"scheduler-{namespace}")
    recording = Recording(cluster.etcd_url, Witness())
    names = [f"node-{number}" for number in range(nodes)]
    path = f"/api/v1/namespaces/{namespace}/pods"
    made = Site(cluster, admin, path, [], Sent(), recording, seed)
    async with AsyncExitStack() as stack:
        await admin.create_all(NODES, map(workload.node, names))
        running = [asyncio.create_task(recording.follow())]
        try:
            for number in range(replicas):
                made.replicas.append(
                    await stack.enter_async_context(_replica(made, f"replica-{number}", direct, folder))
                )
            await made.scheduler.ready()
            if replicas > 1:
                running.append(asyncio.create_task(_start_again(made)))
            yield made
        finally:
            for task in running:
                task.cancel()
            await asyncio.wait(running)
            await admin.delete_all(path, AT_ONCE)
            await admin.delete_all(NODES)
    for task in running:
        if not task.cancelled():
            task.result()


@asynccontextmanager
async def _replica(of: Site, name: str, direct: Path, folder: Path) -> AsyncIterator[Replica]:
    async with proxy(of.cluster) as between:
        between.note = partial(of.sent.note, name)
        (folder / name).mkdir()
        with SchedulerProcess(between.kubeconfig(direct), folder / name, CONFIGURATION) as scheduler:
            yield Replica(name, between, scheduler)
            # Its last requests go through the proxy, which is here.
            await beside(scheduler.stop)


async def _start_again(site: Site) -> None:
    while True:
        for one in site.replicas:
            code = None if one.program.locked() else one.scheduler.child.process.poll()
            if code is not None:
                async with one.program:
                    one.ended.append(code)
                    site.say(f"{one.name} has ended with {code}, and starts again")
                    await beside(one.scheduler.start)
        await asyncio.sleep(_LOOK_EVERY_S)


async def tolerant(request: Awaitable[Any]) -> Any:  # noqa: ANN401 - whatever it returns
    """What it returns; None when the API server does not do it."""
    try:
        answer = await request
    except (aiohttp.ClientError, TimeoutError, UnexpectedAnswer, ExceptionGroup):
        return None
    return answer if not isinstance(answer, ApiResponse) or answer.status < 300 else None  # noqa: PLR2004 - HTTP


async def again(
    rng: random.Random, every_s: tuple[float, float], once: Callable[[], Awaitable[None]], enough: asyncio.Event
) -> None:
    """Do it with pauses between these two, until it is enough; what has begun is finished."""
    while not enough.is_set():
        try:
            async with asyncio.timeout(rng.uniform(*every_s)):
                await enough.wait()
        except TimeoutError:
            await once()


def _installed() -> list[Json]:
    return manifests.documents("rbac.yaml", "flow-schema.yaml")
