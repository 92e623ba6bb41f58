"""A node with both programs at their most talkative, secrets wherever they look, and a proxy with a password between.

scheduler ──HTTPS_PROXY──▶ Tunnel ──▶ API server
device plugin ──proxy-url──▲
"""

import asyncio
import json
import subprocess
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from http import HTTPStatus
from pathlib import Path
from typing import Any, Final

from config.protocol import names
from e2e.control_plane import commands
from e2e.control_plane.admin import Access, Admin, Json, ask, seen
from e2e.node.local_node import LocalNode
from e2e.node.node_pods import PODS
from e2e.programs import manifests
from e2e.programs.plugin_process import DevicePluginProcess, token
from e2e.programs.scheduler_process import NO_PREDECESSOR, SchedulerProcess, environment
from e2e.suites import planted_secrets, policy_site
from e2e.suites.gpu_site import NODES
from e2e.suites.planted_secrets import secret
from e2e.suites.shared_node import GIB
from e2e.suites.tunnel import Tunnel, tunnel
from scheduler.legacy.inspect_api import PATH as INSPECT

CARD_UNITS: Final = 16
_EVENTS: Final = "/apis/events.k8s.io/v1/events"
_OURS: Final = (names.SCHEDULER_NAME, "gpushare-device-plugin")
_SOON_S: Final = 30.0
_ENDS_WITHIN_S: Final = 60.0


@dataclass(slots=True)
class SecretsSite:
    """tokens: of both accounts. said: what was shown so far, by where."""

    node: LocalNode
    admin: Admin
    scheduler: SchedulerProcess
    plugin: DevicePluginProcess
    between: Tunnel
    folder: Path
    tokens: tuple[str, ...]
    said: dict[str, str] = field(default_factory=dict)

    async def create(self, wanted: Json) -> None:
        """Make a pod with secrets in it."""
        await self.admin.create(PODS, planted_secrets.in_pod(wanted))

    async def seen(self, pod: str, wanted: Callable[[Json], Any]) -> Json:
        """Wait for a pod to be as wanted. Raises NotSeen."""
        query = {"fieldSelector": f"metadata.name={pod}"}
        return await seen(self.admin, PODS, lambda found: bool(wanted(found)), query, within_s=_SOON_S)

    async def run(self, name: str, *arguments: str) -> None:
        """Note what a command of the scheduler says; it is an administrator's."""
        line = [sys.executable, "-m", "scheduler.main", *arguments]
        line += ["--kubeconfig", str(self.node.cluster.kubeconfig_path())]
        given = environment(self.folder)
        ran = await asyncio.to_thread(
            subprocess.run, line, env=given, capture_output=True, text=True, timeout=_ENDS_WITHIN_S, check=False
        )
        self.said[name] = ran.stdout + ran.stderr

    async def run_on_node(self, name: str, *arguments: str) -> None:
        """Note what a command of the device plugin says there."""
        line = [sys.executable, "-m", "deviceplugin.main", *arguments]
        given = {"NODE_NAME": self.node.name, "PYTHONPATH": environment(self.folder)["PYTHONPATH"]}
        child = self.node.enter(name, line, given)
        await asyncio.to_thread(child.process.wait, _ENDS_WITHIN_S)
        self.said[name] = await asyncio.to_thread((self.node.folder / f"{name}.log").read_text)

    async def look(self) -> None:
        """Note pages, logs, Events, what the objects say that is ours, and the files of the plugin."""
        for program, process in (("scheduler", self.scheduler), ("device plugin", self.plugin)):
            for path in ("/readyz", "/readyz?verbose", "/livez", "/healthz", "/metrics", "/status", INSPECT):
                self.said[f"{program} {path}"] = await process.page(path)
        events = [one for one in await self.admin.items(_EVENTS) if one.get("reportingController") in _OURS]
        self.said["Events"] = json.dumps(events)
        for path in (PODS, NODES):
            for one in await self.admin.items(path):
                self.said[f"{path}/{one['metadata']['name']}"] = json.dumps(_ours(one))
        self.read_files()

    def read_files(self) -> None:
        """Note logs and files."""
        self.said["scheduler"] = self.scheduler.log.read_text(encoding="utf-8", errors="replace")
        self.said["device plugin"] = self.plugin.log.read_text(encoding="utf-8", errors="replace")
        for path in self.files():
            self.said[str(path)] = path.read_text(encoding="utf-8", errors="replace")

    @property
    def secrets(self) -> dict[str, str]:
        """Those that nobody planted, and what they are."""
        signatures = {text.rpartition(".")[2]: "a token" for text in self.tokens}
        return signatures | {self.between.header.removeprefix("Basic "): "the proxy's password"}

    async def refused(self) -> None:
        """Wait until the API server, which remembers whom it has let in, takes neither token. Raises TimeoutError."""
        tls = self.node.cluster.access().tls
        async with asyncio.timeout(_SOON_S):
            for one in self.tokens:
                access = Access(self.node.cluster.url, tls, f"Bearer {one}")
                while (await asyncio.to_thread(ask, access, PODS)).status != HTTPStatus.UNAUTHORIZED:  # noqa: ASYNC110 - its clock
                    await asyncio.sleep(0.2)

    @property
    def state(self) -> Path:
        """The plugin's own folder."""
        return self.node.device_plugins / "gpushare"

    def files(self) -> list[Path]:
        """What the plugin has written on its node."""
        return [path for folder in (self.state, self.node.cdi) for path in folder.rglob("*") if path.is_file()]


def _ours(found: Json) -> Json:
    """Conditions, nomination, and annotations that are ours."""
    status, annotations = found["status"], found["metadata"].get("annotations", {})
    own = {key: text for key, text in annotations.items() if not key.startswith(("example.com/", "kubectl."))}
    return {"conditions": status.get("conditions"), "nominated": status.get("nominatedNodeName"), "annotations": own}


@asynccontextmanager
async def secrets_site(node: LocalNode, folder: Path) -> AsyncIterator[SecretsSite]:
    """Both programs under the rights of the manifests, and ready."""
    async with Admin(node.cluster.access()) as admin, tunnel("proxy-user", secret("proxy")) as between:
        for document in (*manifests.documents("rbac.yaml"), *manifests.documents("device-plugin-rbac.yaml")):
            await manifests.apply(admin, document)
        await policy_site.apply(admin, policy_site.policies())
        await admin.create("/api/v1/namespaces/default/secrets", planted_secrets.the_secret())
        await admin.patch(f"{NODES}/{node.name}", {"metadata": {"annotations": planted_secrets.in_node()}})
        of_scheduler, of_plugin = await manifests.token(admin), await token(admin, node.name)
        scheduler = SchedulerProcess(
            _through(node, of_scheduler, between, "scheduler"), folder, {**NO_PREDECESSOR, "logLevel": "debug"}
        )
        # Never used: the API server is on this machine.
        scheduler.also_inherits["HTTPS_PROXY"] = between.url
        plugin = DevicePluginProcess(
            node,
            of_plugin,
            [CARD_UNITS * GIB],
            logLevel="debug",
            readingInterval="1s",
            clientConnection={"kubeconfig": str(_through(node, of_plugin, between, "plugin"))},
        )
        with scheduler, plugin:
            await asyncio.gather(scheduler.ready(), plugin.ready())
            yield SecretsSite(node, admin, scheduler, plugin, between, folder, (of_scheduler, of_plugin))


def _through(node: LocalNode, bearer: str, between: Tunnel, name: str) -> Path:
    direct = node.cluster.kubeconfig_for(bearer, name)
    document = json.loads(direct.read_text(encoding="utf-8"))
    document["clusters"][0]["cluster"]["proxy-url"] = between.url
    direct.write_text(commands.as_yaml(document), encoding="utf-8")
    return direct
