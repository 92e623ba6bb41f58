"""The life of one pod, from its creation until it is gone, with its owner and its kubelet played.

created --bound--> running --its time is over, or it is preempted--> ended, deleted or kept by a finalizer --> gone
    └──waits for too long, or is not ours──▶ deleted
"""

import asyncio
import random
import time
from contextlib import suppress
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Final

from e2e.control_plane.admin import Admin, Json
from e2e.fire.site import AT_ONCE, tolerant
from e2e.soak import things
from e2e.soak.seen import Known, Seen
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
