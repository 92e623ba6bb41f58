"""What one namespace's user can do to another on a real API server; `tests/tenants` has the rest, in memory.

One tenant attacks, the other measures how long its pods wait. What the machine and the API server make of it is
measured beside: pods that the test itself binds, as soon as a watch shows them, take as long as it takes without any
scheduler.
"""

import asyncio
import itertools
import math
import sys
import time
from collections.abc import AsyncIterator, Iterable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from http import HTTPStatus
from pathlib import Path
from statistics import median
from typing import Any, Final

import pytest

from e2e.bench import workload
from e2e.control_plane import provider
from e2e.control_plane.admin import Admin, ApiResponse, Json, done
from e2e.programs.scheduler_process import SchedulerProcess
from e2e.soak.seen import Seen
from e2e.support.gpu_site import NODES, gpu_pod
from tests.tenants import changes, crowds, huge_objects
from tests.tenants.attack import Attack, Manifest, Tenant

_NODES: Final = 40
_EVERY_S: Final = 0.04
_SOON_S: Final = 30.0
_IN_FLIGHT: Final = 8
_AT_ONCE: Final = {"gracePeriodSeconds": 0}
_BY_HAND: Final = "by-hand"


@dataclass(frozen=True, slots=True)
class Waits:
    """From creating a pod to seeing it bound, 99th percentile, in seconds. by_hand: without a scheduler.

    added: how much later than the one by hand that was due at the same moment a pod of ours was seen, the median: what
    API server and machine do to both is not in it, and what they do to one of them is as often negative.
    """

    ours_s: float
    by_hand_s: float
    added_s: float


class ServerTenant(Tenant):
    """The attacker of `tests.tenants`, on a real API server. refused: its answers, but for the ones that took it."""

    def __init__(self, admin: Admin, path: str, nodes: list[str], scale: float) -> None:
        self.refused: list[ApiResponse] = []
        self.taken = 0
        self._admin = admin
        self._path = path
        self._nodes = nodes
        self._scale = scale

    async def creates(self, manifests: Iterable[Manifest]) -> None:
        """Several at the same time."""
        waiting = iter(manifests)
        async with asyncio.TaskGroup() as tasks:
            for _ in range(_IN_FLIGHT):
                tasks.create_task(self._create_each(waiting))

    async def deletes(self, name: str, *, grace_s: float = 0.0) -> None:
        """Ask for the end of a pod."""
        await self._admin.delete(f"{self._path}/{name}", {"gracePeriodSeconds": int(grace_s)})

    async def _create_each(self, waiting: Iterable[Manifest]) -> None:
        for manifest in waiting:
            answer = await self._admin.post(self._path, as_a_server_takes_it(manifest))
            if answer.status == HTTPStatus.CREATED:
                self.taken += 1
            else:
                self.refused.append(answer)


class TenantsSite:
    """Some nodes, a scheduler, and the two tenants' namespaces. admin: of the neighbour; attacker: of the other one."""

    def __init__(self, scheduler: SchedulerProcess, admin: Admin, attacker: Admin, namespaces: tuple[str, str]) -> None:
        self.scheduler = scheduler
        self.attacker = attacker
        self.paths = [f"/api/v1/namespaces/{namespace}/pods" for namespace in namespaces]
        self.nodes = [node["metadata"]["name"] for node in _nodes()]
        self._admin = admin
        self._seen = Seen()
        self._numbers = itertools.count()

    @property
    def rss_bytes(self) -> int:
        """Of the scheduler's process."""
        status = Path(f"/proc/{self.scheduler.child.pid}/status").read_text(encoding="ascii")
        return next(int(line.split()[1]) for line in status.splitlines() if line.startswith("VmRSS:")) * 1024

    async def follow(self) -> None:
        """See the neighbour's pods being bound, until cancelled."""
        await self._seen.follow(self._admin, self.paths[0])

    async def waits(self, samples: int) -> Waits:
        """Of so many pods of each kind, one every few milliseconds, whatever becomes of the ones before."""
        ours, by_hand = [], []
        due_s = time.monotonic()
        async with asyncio.TaskGroup() as tasks:
            for _ in range(samples):
                due_s += _EVERY_S
                await asyncio.sleep(due_s - time.monotonic())
                ours.append(tasks.create_task(self._wait(due_s, by_hand=False)))
                by_hand.append(tasks.create_task(self._wait(due_s, by_hand=True)))
        pairs = [(task.result(), hand.result()) for task, hand in zip(ours, by_hand, strict=True)]
        ours_s, by_hand_s = zip(*pairs, strict=True)
        return Waits(_p99(ours_s), _p99(by_hand_s), median(waited_s - hand_s for waited_s, hand_s in pairs))

    async def clear(self, path: str) -> None:
        """Remove every pod there, whatever holds it."""
        done(await self._admin.delete(path, _AT_ONCE))

    async def _wait(self, due_s: float, *, by_hand: bool) -> float:
        """Seconds until the pod was seen with a node; its whole time when it was not."""
        name = f"p-{next(self._numbers)}"
        body = gpu_pod(name, 4)
        if by_hand:
            body["spec"]["schedulerName"] = _BY_HAND
        created = (await self._admin.create(self.paths[0], body))["metadata"]
        if by_hand:
            binding: Json = {"metadata": {"name": name}, "target": {"kind": "Node", "name": self.nodes[-1]}}
            await self._admin.create(f"{self.paths[0]}/{name}/binding", binding)
        pod = self._seen.known(created["uid"], created["namespace"], name)
        try:
            await asyncio.wait_for(pod.bound.wait(), _SOON_S)
        except TimeoutError:
            return _SOON_S
        await self._admin.delete(f"{self.paths[0]}/{name}", _AT_ONCE)
        return _SOON_S if pod.bound_s is None else pod.bound_s - due_s


@asynccontextmanager
async def tenants_site(
    scheduler: SchedulerProcess, admin: Admin, attacker: Admin, namespaces: tuple[str, str]
) -> AsyncIterator[TenantsSite]:
    """A site whose nodes and pods are gone at the end."""
    site = TenantsSite(scheduler, admin, attacker, namespaces)
    await admin.create_all(NODES, _nodes())
    following = asyncio.create_task(site.follow())
    try:
        yield site
    finally:
        following.cancel()
        await asyncio.wait({following})
        for path in site.paths:
            await site.clear(path)
        await admin.delete(NODES)


def as_a_server_takes_it(manifest: Manifest) -> Json:
    """The same pod with an image, without what a server gives, and with the limits that extended resources need."""
    metadata: Json = {key: value for key, value in _mapping(manifest["metadata"]).items() if key != "uid"}
    metadata.pop("namespace")
    spec = dict(_mapping(manifest["spec"]))
    for kind in ("containers", "initContainers"):
        spec[kind] = [_container(container) for container in spec.get(kind, [])]
    return {"metadata": metadata, "spec": spec}


def _mapping(value: object) -> dict[str, Any]:
    if not isinstance(value, dict):
        message = f"{value!r} is no mapping"
        raise TypeError(message)
    return value


def _container(container: Json) -> Json:
    resources = container.get("resources", {})
    requests, limits = dict(resources.get("requests", {})), dict(resources.get("limits", {}))
    limits |= {name: amount for name, amount in requests.items() if "/" in name}
    return {**container, "image": "none", "resources": {"requests": requests, "limits": limits}}


def _nodes() -> list[Json]:
    return list(workload.nodes(workload.Size(nodes=_NODES, pods=1, templates=1)))


def _p99(found_s: Sequence[float]) -> float:
    return sorted(found_s)[math.ceil(0.99 * len(found_s)) - 1]


SAMPLES = 80
# Two busy processors: what a turn of the test's own loop may be late.
ALLOWANCE_S = 0.05
# Seconds in place of the allowance. Decisions on new templates take one processor of two meanwhile: 0.16 to 0.67 s.
SLOWER_YET: dict[object, float] = {crowds.templates: 1.0}
# What the scheduler itself may add to each pod of the neighbour, measured against pods that are bound by hand.
MOST_ADDED_S = 0.1
MOST_TIMES_RSS = 1.2
TRIALS = 5
# Those that only create and delete, with the scale that a few seconds take.
CHOSEN = {
    huge_objects.resource_names: 1.0,
    huge_objects.affinity_terms: 1.0,
    huge_objects.host_ports: 1.0,
    huge_objects.init_containers: 1.0,
    crowds.templates: 0.05,
    crowds.odd_texts: 0.3,
    changes.flapping: 0.15,
}
# One of each kind.
BY_DAY = {huge_objects.resource_names, crowds.templates, changes.flapping}
BY_FUNCTION = {attack.acts: attack for attack in (*huge_objects.ATTACKS, *crowds.ATTACKS, *changes.ATTACKS)}


@pytest.fixture
async def site(
    scheduler: SchedulerProcess, cluster: provider.Target, admin: Admin, namespace: str
) -> AsyncIterator[TenantsSite]:
    await scheduler.ready()
    theirs = f"{namespace}-hostile"
    await admin.create("/api/v1/namespaces", {"metadata": {"name": theirs}})
    async with (
        Admin(cluster.access()) as attacker,
        tenants_site(scheduler, admin, attacker, (namespace, theirs)) as made,
    ):
        yield made


@pytest.mark.parametrize(
    ("attack", "scale"),
    [
        pytest.param(BY_FUNCTION[acts], scale, id=acts.__name__, marks=() if acts in BY_DAY else pytest.mark.nightly)
        for acts, scale in CHOSEN.items()
    ],
)
async def test_no_attack_is_noticed_by_the_neighbour(site: TenantsSite, attack: Attack, scale: float) -> None:
    await site.waits(20)
    # The p99 of 80 pods is one pod's wait: what else the machine does can only make it longer.
    for _ in range(TRIALS):
        line, unnoticed = await trial(site, attack, scale)
        sys.stdout.write(f"  {line}\n")
        if unnoticed:
            return
    pytest.fail(line)


async def trial(site: TenantsSite, attack: Attack, scale: float) -> tuple[str, bool]:
    """(what was measured, whether the neighbour has noticed nothing)."""
    quiet, before = await site.waits(SAMPLES // 2), site.rss_bytes
    tenant = ServerTenant(site.attacker, site.paths[1], site.nodes, scale)
    attacking = asyncio.create_task(attack.acts(tenant))
    during = await site.waits(SAMPLES)
    ready, rss = (await site.scheduler.readyz()).strip(), site.rss_bytes
    await attacking
    await site.clear(site.paths[1])
    site.scheduler.child.check_alive()
    assert tenant.taken, attack.name
    assert ready == "ok", attack.name
    assert rss <= MOST_TIMES_RSS * before, attack.name
    line = f"{said(attack, tenant, quiet, during)}; RSS {before / 1e6:.0f} -> {rss / 1e6:.0f} MB"
    return line, noticed_nothing(quiet, during, SLOWER_YET.get(attack.acts, ALLOWANCE_S))


def noticed_nothing(quiet: Waits, during: Waits, allowance_s: float) -> bool:
    slower_s = max(0.0, during.by_hand_s - quiet.by_hand_s)
    return (
        during.added_s <= quiet.added_s + MOST_ADDED_S
        and during.ours_s <= 2 * quiet.ours_s + 2 * slower_s + allowance_s
    )


def said(attack: Attack, tenant: ServerTenant, quiet: Waits, during: Waits) -> str:
    return (
        f"{attack.name}: {tenant.taken} taken, {len(tenant.refused)} refused; p99 {quiet.ours_s * 1e3:.0f} -> "
        f"{during.ours_s * 1e3:.0f} ms, bound by hand {quiet.by_hand_s * 1e3:.0f} -> {during.by_hand_s * 1e3:.0f} ms, "
        f"added {quiet.added_s * 1e3:.0f} -> {during.added_s * 1e3:.0f} ms"
    )
