"""What comes and goes: so many pods in a second, nodes that change, namespaces that last half a minute."""

import asyncio
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from itertools import count
from typing import Final

from e2e.control_plane.admin import Admin, Json
from e2e.fire.site import AT_ONCE, NODES, tolerant
from e2e.fire.workload import CARDS
from e2e.soak import things
from e2e.soak.lives import Lives
from e2e.soak.seen import PODS, Seen

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
