"""The legacy extender as kube-scheduler sees it, for tests: it chooses a card, annotates the pod, and then binds it.

Source of what it is asked and answers: k8s.io/kube-scheduler/extender/v1; of what it writes: pkg/cache/nodeinfo.go of
gpushare-scheduler-extender, Allocate. It counts what it has bound itself, and no more.
"""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, Final

from aiohttp import web

from config.protocol import names
from e2e.control_plane.admin import Admin, Json, done
from e2e.control_plane.processes import free_ports
from tests.support.legacy import chosen

_PREFIX: Final = "gpushare-scheduler"


class LegacyExtender:
    """cards: units of each card, by node. taken: of them, by what it has bound."""

    def __init__(self, admin: Admin, cards: dict[str, list[int]]) -> None:
        """admin: who it writes as."""
        self._admin = admin
        self._cards = cards
        self.taken = {node: [0] * len(units) for node, units in cards.items()}
        (self._port,) = free_ports(1)

    def configuration(self) -> Json:
        """What kube-scheduler's configuration says of it, as the legacy project has it."""
        resource = {"name": names.GPU_MEM, "ignoredByScheduler": False}
        return {
            "urlPrefix": f"http://127.0.0.1:{self._port}/{_PREFIX}",
            "filterVerb": "filter",
            "bindVerb": "bind",
            "nodeCacheCapable": True,
            "managedResources": [resource],
            "ignorable": False,
        }

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """It answers while the context lasts."""
        app = web.Application()
        app.add_routes([web.post(f"/{_PREFIX}/filter", self._filter), web.post(f"/{_PREFIX}/bind", self._bind)])
        runner = web.AppRunner(app)
        await runner.setup()
        try:
            await web.TCPSite(runner, "127.0.0.1", self._port).start()
            yield
        finally:
            await runner.cleanup()

    async def _filter(self, request: web.Request) -> web.Response:
        asked = await request.json()
        units = _units(asked["Pod"])
        nodes: list[str] = asked["NodeNames"] or []
        failed = [node for node in nodes if self._card(node, units) is None]
        return web.json_response(
            {
                "NodeNames": [node for node in nodes if node not in failed],
                "FailedNodes": dict.fromkeys(failed, "Insufficient GPU Memory in one device"),
            }
        )

    async def _bind(self, request: web.Request) -> web.Response:
        asked = await request.json()
        node, path = asked["Node"], f"/api/v1/namespaces/{asked['PodNamespace']}/pods/{asked['PodName']}"
        units = _units(done(await self._admin.get(path)).body)
        index = self._card(node, units)
        if index is None:
            return web.json_response({"Error": f"{node} can't place the pod"})
        annotations = chosen(index, units, self._cards[node][0], assigned=False)
        done(await self._admin.patch(path, {"metadata": {"annotations": annotations}}))
        target = {"apiVersion": "v1", "kind": "Node", "name": node}
        body = {"metadata": {"name": asked["PodName"]}, "target": target}
        done(await self._admin.post(f"{path}/binding", body))
        self.taken[node][index] += units
        return web.json_response({"Error": ""})

    def _card(self, node: str, units: int) -> int | None:
        """The fullest card with room."""
        free = [has - taken for has, taken in zip(self._cards.get(node, ()), self.taken.get(node, ()), strict=True)]
        return min((index for index, left in enumerate(free) if left >= units), key=free.__getitem__, default=None)


def _units(pod: Any) -> int:  # noqa: ANN401 - JSON
    return sum(
        int(one.get("resources", {}).get("limits", {}).get(names.GPU_MEM, "0")) for one in pod["spec"]["containers"]
    )
