"""What comes and goes: so many pods in a second, nodes that change, namespaces that last half a minute.

The life of one pod, from its creation until it is gone, with its owner and its kubelet played:

    created --bound--> running --its time is over, or it is preempted--> ended, deleted or kept by a finalizer --> gone
        └──waits for too long, or is not ours──▶ deleted
"""

import asyncio
import random
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from http import HTTPStatus
from itertools import count
from typing import Final

from e2e.control_plane.admin import Admin, Json
from e2e.fire.site import AT_ONCE, NODES, tolerant
from e2e.fire.workload import CARDS
from e2e.soak import things
from e2e.soak.seen import PODS, Known, Seen
from e2e.soak.things import KINDS, Kind
from scheduler.state.volumes.claim import BIND_COMPLETED
from tests.support import volumes

_BOUND_WITHIN_S: Final = 30.0
_WAITS_S: Final = (1.0, 6.0)
_LEAVES_S: Final = (0.1, 1.0)
_LOOK_EVERY_S: Final = 1.0
_VOLUMES: Final = "/api/v1/persistentvolumes"
_RUNNING: Final = {"phase": "Running", "startTime": "2026-01-01T00:00:00Z"}
_REJECTED: Final = {"phase": "Failed", "reason": "OutOfcpu", "message": "Pod was rejected"}
_KEPT_SHARE: Final = 0.05


@dataclass(slots=True)
class Lives:
    """lasts_s: for how long a pod runs, at least and at most. timed: (when, seconds from coming to having a node).

    late: pods that should have been bound in time and were not, a line each.
    """

    admin: Admin
    seen: Seen
    seed: int
    lasts_s: tuple[float, float]
    began_s: float = field(default_factory=time.monotonic)
    created: int = 0
    timed: list[tuple[float, float]] = field(default_factory=list)
    late: list[str] = field(default_factory=list)
    counted: dict[str, int] = field(default_factory=dict)

    async def live(self, number: int, namespace: str) -> None:
        """One pod, whatever becomes of it."""
        rng = random.Random(f"{self.seed} {number}")  # noqa: S311 - to be repeated
        (name,) = rng.choices(list(KINDS), [kind.share for kind in KINDS.values()])
        kind, path = KINDS[name], f"/api/v1/namespaces/{namespace}"
        manifest = things.pod(number, kind, rng)
        if rng.random() < _KEPT_SHARE:
            manifest["metadata"]["finalizers"] = [things.FINALIZER]
        claimed = name == "claims" and await self._claim(f"{path}/persistentvolumeclaims", number)
        answer = await tolerant(self.admin.post(f"{path}/pods", manifest))
        if answer is None:
            return  # its namespace has gone
        self.created += 1
        self._count(name)
        pod = self.seen.known(answer.body["metadata"]["uid"], namespace, manifest["metadata"]["name"])
        at = f"{path}/pods/{pod.name}"
        if name == "gated":
            await asyncio.sleep(rng.uniform(0.1, 2.0))
            await tolerant(self.admin.patch(at, {"spec": {"schedulingGates": None}}))
        if await self._bound(pod, name, kind, rng):
            await self._run(at, pod, rng)
        await self._leave(at, pod, rng)
        if claimed:
            await tolerant(self.admin.delete(f"{path}/persistentvolumeclaims/claim-{number}"))
            await tolerant(self.admin.delete(f"{_VOLUMES}/volume-{number}"))

    async def _claim(self, path: str, number: int) -> bool:
        """A claim that has its volume."""
        name, volume = f"claim-{number}", f"volume-{number}"
        claim = volumes.bound(volumes.claim(name), volume)
        claim["metadata"] = {"name": name, "annotations": {BIND_COMPLETED: "yes"}}
        made = await tolerant(self.admin.post(path, claim))
        if made is None:
            return False
        place: Json = volumes.volume(volume, hostPath={"path": "/none"})
        place["spec"]["claimRef"] = {
            "namespace": made.body["metadata"]["namespace"],
            "name": name,
            "uid": made.body["metadata"]["uid"],
        }
        await tolerant(self.admin.post(_VOLUMES, place))
        await tolerant(self.admin.patch(f"{_VOLUMES}/{volume}/status", {"status": {"phase": "Bound"}}))
        await tolerant(self.admin.patch(f"{path}/{name}/status", {"status": {"phase": "Bound"}}))
        return True

    async def _bound(self, pod: Known, name: str, kind: Kind, rng: random.Random) -> bool:
        """Wait until it has a node; False when it has none, or goes before."""
        within_s = rng.uniform(*_WAITS_S) if kind.waits else _BOUND_WITHIN_S
        try:
            async with asyncio.timeout(within_s):
                await pod.bound.wait()
        except TimeoutError:
            if not kind.waits:
                self.late.append(f"{pod.namespace}/{pod.name} ({name}) has waited for {within_s:.0f} s")
            return False
        if pod.bound_s is None:
            return False
        if not kind.schedules:
            self.late.append(f"{pod.namespace}/{pod.name} ({name}) is on {pod.node}, and is not ours")
        if kind.timed:
            self.timed.append((pod.bound_s - self.began_s, pod.bound_s - pod.came_s))
        return True

    async def _run(self, at: str, pod: Known, rng: random.Random) -> None:
        """As a kubelet does: reject it, or run it until its time is over or somebody deletes it."""
        if rng.random() < 0.01:  # noqa: PLR2004 - of a hundred pods, one
            await tolerant(self.admin.patch(f"{at}/status", {"status": _REJECTED}))
            return
        await asyncio.sleep(rng.uniform(0.0, 0.5))
        await tolerant(self.admin.patch(f"{at}/status", {"status": _RUNNING}))
        if rng.random() < 0.1:  # noqa: PLR2004 - of ten pods, one
            await tolerant(self.admin.patch(at, {"metadata": {"labels": {"soak/phase": pod.name}}}))
        try:
            async with asyncio.timeout(rng.uniform(*self.lasts_s)):
                await pod.leaving.wait()
        except TimeoutError:
            return
        self._count("deleted by others")

    async def _leave(self, at: str, pod: Known, rng: random.Random) -> None:
        """It ends, or is deleted in one step or two; in the end it is gone."""
        match rng.randrange(5):
            case 0 if pod.bound_s is not None:
                phase = rng.choice(("Succeeded", "Failed"))
                await tolerant(self.admin.patch(f"{at}/status", {"status": {"phase": phase}}))
                await asyncio.sleep(rng.uniform(*_LEAVES_S))
            case 1:
                await tolerant(self.admin.delete(at))
                await asyncio.sleep(rng.uniform(*_LEAVES_S))
        while not pod.gone.is_set():
            await tolerant(self.admin.delete(at, AT_ONCE))
            answer = await self.admin.patch(at, {"metadata": {"finalizers": None}})
            if answer.status == HTTPStatus.NOT_FOUND:
                # Perhaps it went before its creation was answered, and no watch will say so again.
                self.seen.forget(pod)
                return
            with suppress(TimeoutError):
                async with asyncio.timeout(_LOOK_EVERY_S):
                    await pod.gone.wait()

    def _count(self, what: str) -> None:
        self.counted[what] = self.counted.get(what, 0) + 1


_NAMESPACES: Final = "/api/v1/namespaces"
_CLASSES: Final = "/apis/scheduling.k8s.io/v1/priorityclasses"
_LASTING: Final = 4
_WIDE: Final = 20
_NARROW: Final = 1
_MOVING: Final = 4
_NODE_EVERY_S: Final = (1.0, 3.0)
_NAMESPACE_LASTS_S: Final = (10.0, 40.0)
_POLL_S: Final = 0.05


class Load:
    """per_s: pods that come in a second. Made, and all of it removed, by `load`."""

    def __init__(self, admin: Admin, seed: int, per_s: float, lasts_s: tuple[float, float]) -> None:
        self.seen = Seen()
        self.lives = Lives(admin, self.seen, seed, lasts_s)
        self._admin = admin
        self._per_s = per_s
        self._rng = random.Random(f"{seed} load")  # noqa: S311 - to be repeated
        self._lasting = [f"soak-{seed}-{number}" for number in range(_LASTING)]
        self._young = ""
        self._nodes = count()
        self._moving: list[str] = []
        self._seed = seed

    async def begin(self) -> None:
        """Namespaces and nodes. Raises UnexpectedAnswer."""
        for name in self._lasting:
            await self._admin.create(_NAMESPACES, {"metadata": {"name": name}})
        await self._admin.create(_CLASSES, {"metadata": {"name": things.IMPORTANT}, "value": 1000})
        pools = [things.WIDE] * _WIDE + [things.NARROW] * _NARROW
        await self._admin.create_all(NODES, [things.node(self._new_node(), pool) for pool in pools])
        self._moving = [self._new_node() for _ in range(_MOVING)]
        await self._admin.create_all(NODES, [things.node(name, things.WIDE) for name in self._moving])

    async def run(self, for_s: float) -> None:
        """Everything comes and goes for so long; returns when the last pod is gone."""
        enough = asyncio.Event()
        async with asyncio.TaskGroup() as tasks:
            for task in (self._nodes_change(enough), self._namespaces_change(enough)):
                tasks.create_task(task)
            await self._pods_come(tasks, for_s)
            enough.set()

    async def end(self) -> None:
        """Remove what is left: nodes, namespaces, the class."""
        await self._admin.delete(PODS, AT_ONCE)
        await self._admin.delete(NODES)
        await self._admin.delete(f"{_CLASSES}/{things.IMPORTANT}")
        for name in (*self._lasting, self._young):
            await self._remove_namespace(name)

    async def _pods_come(self, tasks: asyncio.TaskGroup, for_s: float) -> None:
        loop = asyncio.get_running_loop()
        began_s, number = loop.time(), 0
        while (passed_s := loop.time() - began_s) < for_s:
            while number < passed_s * self._per_s:
                number += 1
                namespace = self._rng.choice([*self._lasting, self._young or self._lasting[0]])
                tasks.create_task(self.lives.live(number, namespace))
            await asyncio.sleep(_POLL_S)

    async def _nodes_change(self, enough: asyncio.Event) -> None:
        async for number in _again(enough, self._rng, _NODE_EVERY_S):
            place = self._rng.randrange(_MOVING)
            name = self._moving[place]
            match number % 5:
                case 0:
                    self._moving[place] = await self._replace_node(name)
                case 1:
                    await self._change_node(name, {"labels": {"soak/round": f"round-{number}"}})
                case 2:
                    unhealthy = self._rng.randrange(CARDS)
                    await self._change_node(
                        name, {"annotations": {"gpushare/inventory": things.inventory(name, unhealthy)}}
                    )
                case 3:
                    taint = {"key": f"soak/{number}", "value": "1", "effect": "PreferNoSchedule"}
                    await tolerant(self._admin.patch(f"{NODES}/{name}", {"spec": {"taints": [taint]}}))
                case 4:
                    images = [{"names": [f"registry.example/image-{number}:1"], "sizeBytes": 100_000_000 + number}]
                    await tolerant(self._admin.patch(f"{NODES}/{name}/status", {"status": {"images": images}}))
                    await self._change_node(name, {"annotations": {f"gpushare/unknown-{number}": "1"}})

    async def _change_node(self, name: str, metadata: Json) -> None:
        await tolerant(self._admin.patch(f"{NODES}/{name}", {"metadata": metadata}))

    async def _replace_node(self, name: str) -> str:
        """The node goes, then its pods, as the garbage collector has it; another one comes. Returns its name."""
        await tolerant(self._admin.delete(f"{NODES}/{name}"))
        await asyncio.sleep(self._rng.uniform(0.0, 0.5))
        for pod in self.seen.on(name):
            await tolerant(self._admin.delete(f"{_NAMESPACES}/{pod.namespace}/pods/{pod.name}", AT_ONCE))
        other = self._new_node()
        await self._admin.create(NODES, things.node(other, things.WIDE))
        return other

    def _new_node(self) -> str:
        return f"node-{next(self._nodes)}"

    async def _namespaces_change(self, enough: asyncio.Event) -> None:
        async for number in _again(enough, self._rng, _NAMESPACE_LASTS_S):
            before, name = self._young, f"soak-{self._seed}-young-{number}"
            await self._admin.create(_NAMESPACES, {"metadata": {"name": name, "labels": {"soak/number": f"{number}"}}})
            selector = {"app": f"app-{number % 7}"}
            service = {"metadata": {"name": name}, "spec": {"selector": selector, "ports": [{"port": 80}]}}
            await tolerant(self._admin.post(f"{_NAMESPACES}/{name}/services", service))
            budget = {"metadata": {"name": name}, "spec": {"selector": {"matchLabels": selector}, "minAvailable": 0}}
            budgets = f"/apis/policy/v1/namespaces/{name}/poddisruptionbudgets"
            await tolerant(self._admin.post(budgets, budget))
            self._young = name
            if before:
                await self._remove_namespace(before)

    async def _remove_namespace(self, name: str) -> None:
        """What the namespace controller does."""
        if not name:
            return
        at = f"{_NAMESPACES}/{name}"
        await tolerant(self._admin.delete(f"{at}/pods", AT_ONCE))
        await tolerant(self._admin.delete(f"{at}/services/{name}"))
        await tolerant(self._admin.delete(f"/apis/policy/v1/namespaces/{name}/poddisruptionbudgets/{name}"))
        await tolerant(self._admin.delete(at))
        body = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}, "spec": {"finalizers": []}}
        await tolerant(self._admin.put(f"{at}/finalize", body))


async def _again(enough: asyncio.Event, rng: random.Random, every_s: tuple[float, float]) -> AsyncIterator[int]:
    """0, 1, 2, … with pauses between these two, until it is enough."""
    for number in count():
        if enough.is_set():
            return
        yield number
        try:
            async with asyncio.timeout(rng.uniform(*every_s)):
                await enough.wait()
        except TimeoutError:
            pass


@asynccontextmanager
async def load(admin: Admin, seed: int, *, per_s: float, lasts_s: tuple[float, float]) -> AsyncIterator[Load]:
    """Watched from the start; nothing of it is left in the end."""
    made = Load(admin, seed, per_s, lasts_s)
    watching = asyncio.create_task(made.seen.follow(admin))
    try:
        yield made
    finally:
        watching.cancel()
        await asyncio.wait([watching])
        await made.end()
