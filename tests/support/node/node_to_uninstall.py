"""A simulated node for `uninstall`: a file tree, a kubelet's checkpoint, and an API server that keeps writes."""

import asyncio
import json
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from aiohttp import web
from aiohttp.test_utils import TestServer

from config.protocol import names
from config.settings.deviceplugin import DevicePluginConfiguration, Kubelet
from config.settings.scheduler import ClientConnection
from deviceplugin.uninstall.run import Options, run
from tests.support.servers.listing_server import kubeconfig_of

Json = dict[str, Any]
USED: Final = "2" * 16
UNUSED: Final = "0" * 16
AGAIN_S: Final = 0.02
WITHIN_S: Final = 20.0


def gpu_pod(name: str, phase: str = "Running") -> Json:
    annotations = {names.ALLOCATION: '{"0":{"0":2}}', names.CARDS: '{"0":"GPU-a"}', names.UNIT_MIB: "1024"}
    container = {"name": "c", "resources": {"limits": {names.GPU_MEM: "2"}}}
    meta = {"name": name, "namespace": "ns", "uid": name, "annotations": annotations}
    return {"metadata": meta, "spec": {"containers": [container]}, "status": {"phase": phase}}


@dataclass
class Cluster:
    """A cluster. node: None if missing. refused: errors for the next patches, of status and object."""

    pods: list[Json] = field(default_factory=list)
    refused: str = ""
    url: str = ""

    def __post_init__(self) -> None:
        amounts = {names.GPU_MEM: "0", names.GPU_COUNT: "1", "cpu": "8"}
        annotations = {names.INVENTORY: "{}", names.HELD_UNTIL: "2026-11-22T10:01:00Z", "example.com/x": "y"}
        meta = {"name": "n1", "uid": "u", "labels": {"gpushare": "true"}, "annotations": annotations}
        status = {"capacity": dict(amounts), "allocatable": dict(amounts)}
        self.node: Json = {"kind": "Node", "metadata": meta, "status": status}

    @asynccontextmanager
    async def serving(self) -> AsyncIterator[None]:
        app = web.Application()
        app.router.add_get("/api/v1/nodes/n1", self._node)
        app.router.add_get("/api/v1/pods", self._pods)
        app.router.add_patch("/api/v1/nodes/n1{status:(/status)?}", self._patched)
        async with TestServer(app, host="127.0.0.1") as server:
            self.url = str(server.make_url("")).rstrip("/")
            yield

    async def _node(self, _: web.Request) -> web.StreamResponse:
        return web.json_response(self.node)

    async def _pods(self, _: web.Request) -> web.StreamResponse:
        return web.json_response({"kind": "PodList", "items": self.pods})

    async def _patched(self, request: web.Request) -> web.StreamResponse:
        body = await request.json()
        if self.refused and self.refused in json.dumps(body):
            answer = {"kind": "Status", "message": "not allowed", "code": 403}
            return web.json_response(answer, status=403)
        merge(self.node, body)
        return web.json_response(self.node)


def merge(into: Json, patch: Mapping[str, Any]) -> None:
    for key, value in patch.items():
        if value is None:
            into.pop(key, None)
        elif isinstance(value, dict):
            merge(into.setdefault(key, {}), value)
        else:
            into[key] = value


@dataclass
class MadeUpNode:
    """The node. settings: configuration that overrides the defaults."""

    folder: Path
    cluster: Cluster = field(default_factory=Cluster)
    said: list[str] = field(default_factory=list)
    settings: Json = field(default_factory=dict)

    def __post_init__(self) -> None:
        for path in ("plugins/gpushare/isolation/pods/p/c/x", "plugins/gpushare/cards", "cdi"):
            (self.folder / path).mkdir(parents=True)
        for path in (
            *("plugins/gpushare/lock", "plugins/gpushare/journal.json", "plugins/gpushare/.health.json.tmp"),
            *("plugins/other.sock", f"cdi/gpushare-{USED}.json", f"cdi/gpushare-{UNUSED}.json", "cdi/nvidia.yaml"),
        ):
            (self.folder / path).write_text(path)
        # A container may plant it in a directory of its own.
        (self.folder / "plugins/gpushare/isolation/pods/p/c/x/link").symlink_to(self.folder / "cdi")
        held: Json = {"DeviceIDs": {"-1": ["u0", "u1"]}, "AllocResp": None}
        entry = {"PodUID": "p", "ContainerName": "c", "ResourceName": names.GPU_MEM, **held}
        self.checkpoint({names.GPU_MEM: []} if self.cluster.pods else {}, [entry])

    @property
    def state(self) -> Path:
        return self.folder / "plugins" / "gpushare"

    def checkpoint(self, registered: Json, entries: list[Json]) -> None:
        path = self.folder / "plugins" / "kubelet_internal_checkpoint"
        path.write_text(json.dumps({"Data": {"PodDeviceEntries": entries, "RegisteredDevices": registered}}))

    def tree(self) -> dict[str, str]:
        """Return files -> content; the lock contains its holder."""
        found = sorted(path for path in self.folder.rglob("*") if path.is_file() and path.name != "kubeconfig")
        return {str(path.relative_to(self.folder)): path.read_text() for path in found if path.name != "lock"}

    async def uninstalled(self, stop: asyncio.Event | None = None, **options: Any) -> bool:  # noqa: ANN401 - as Options
        async with asyncio.timeout(WITHIN_S), self.cluster.serving():
            chosen = Options(**{"again_s": AGAIN_S} | options)
            return await run(self.configuration(), {}, chosen, self.said.append, stop or asyncio.Event())

    def configuration(self, listen: str = "127.0.0.1:0") -> DevicePluginConfiguration:
        kubeconfig = kubeconfig_of(int(self.cluster.url.rpartition(":")[2]), self.folder)
        kubelet = Kubelet(
            device_plugin_dir=str(self.folder / "plugins"), pod_resources_socket=str(self.folder / "pod-resources.sock")
        )
        made = {
            "node_name": "n1",
            "listen": listen,
            "client_connection": ClientConnection(kubeconfig=kubeconfig),
            "cdi_dir": str(self.folder / "cdi"),
            "state_dir": str(self.folder / "plugins" / "gpushare"),
            "kubelet": kubelet,
        }
        return DevicePluginConfiguration(**{**made, **self.settings})
