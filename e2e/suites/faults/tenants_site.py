"""Two tenants on a real API server that our scheduler serves: one attacks, the other measures how long its pods wait.

What the machine and the API server make of it is measured beside: pods that the test itself binds, as soon as a watch
shows them, take as long as it takes without any scheduler.
"""

import asyncio
import itertools
import math
import time
from collections.abc import AsyncIterator, Iterable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from http import HTTPStatus
from pathlib import Path
from statistics import median
from typing import Any, Final

from e2e.bench import workload
from e2e.control_plane.admin import Admin, ApiResponse, Json, done
from e2e.programs.scheduler_process import SchedulerProcess
from e2e.support.gpu_site import NODES, gpu_pod
from e2e.support.pod_history import PodHistory
from tests.tenants.attack import Manifest, Tenant

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

    def __init__(self, admin: Admin, path: str, nodes: list[str], scale: float, *, dry_run: bool = False) -> None:
        self.refused: list[ApiResponse] = []
        self.taken = 0
        self._admin = admin
        self._path = path
        self._query = "?dryRun=All" if dry_run else ""
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
            answer = await self._admin.post(self._path + self._query, as_a_server_takes_it(manifest))
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
        self._history = PodHistory(admin, self.paths[0])
        self._created_s: dict[str, float] = {}
        self._numbers = itertools.count()

    @property
    def rss_bytes(self) -> int:
        """Of the scheduler's process."""
        status = Path(f"/proc/{self.scheduler.child.pid}/status").read_text(encoding="ascii")
        return next(int(line.split()[1]) for line in status.splitlines() if line.startswith("VmRSS:")) * 1024

    async def follow(self) -> None:
        """See the neighbour's pods being bound, until cancelled."""
        await self._history.follow()

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
        uid = (await self._admin.create(self.paths[0], body))["metadata"]["uid"]
        if by_hand:
            binding: Json = {"metadata": {"name": name}, "target": {"kind": "Node", "name": self.nodes[-1]}}
            await self._admin.create(f"{self.paths[0]}/{name}/binding", binding)
        seen_s = self._history.bound_at_s
        try:
            await self._history.until(lambda: uid in seen_s, within_s=_SOON_S)
        except TimeoutError:
            return _SOON_S
        await self._admin.delete(f"{self.paths[0]}/{name}", _AT_ONCE)
        return seen_s[uid] - due_s


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
