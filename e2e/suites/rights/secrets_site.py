"""A node with both programs at their most talkative, secrets wherever they look, and a proxy with a password between.

    scheduler ──HTTPS_PROXY──▶ Tunnel ──▶ API server
    device plugin ──proxy-url──▲

The proxy stands for one between a scheduler and the API server of another network:

    OPEN --fails_with(answer)--> every tunnel ends, and each new one is answered so --open--> OPEN
"""

import asyncio
import base64
import json
import subprocess
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
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
from e2e.support import planted_secrets, policy_site
from e2e.support.gpu_site import NODES
from e2e.support.planted_secrets import secret
from e2e.support.shared_node import GIB
from scheduler.legacy.inspect_api import PATH as INSPECT

_ESTABLISHED: Final = b"HTTP/1.1 200 Connection established\r\n\r\n"
_WRONG_PASSWORD: Final = b"HTTP/1.1 407 Proxy Authentication Required\r\nContent-Length: 0\r\n\r\n"
_CHUNK: Final = 2**16


@dataclass(slots=True)
class Tunnel:
    """user, password: whom it lets through. opened: tunnels so far."""

    user: str
    password: str
    port: int = 0
    opened: int = 0
    _answer: bytes = b""
    _clients: dict[asyncio.Task[None], asyncio.StreamWriter] = field(default_factory=dict)

    @property
    def url(self) -> str:
        """With the password, as people write it into HTTPS_PROXY and `proxy-url`."""
        return f"http://{self.user}:{self.password}@127.0.0.1:{self.port}"

    @property
    def header(self) -> str:
        """What a client shows."""
        return "Basic " + base64.b64encode(f"{self.user}:{self.password}".encode()).decode()

    def fails_with(self, answer: bytes) -> None:
        """End every tunnel, and open no other."""
        self._answer = answer
        for writer in self._clients.values():
            writer.transport.abort()

    def open(self) -> None:
        """Let everybody through again who knows the password."""
        self._answer = b""

    async def end(self) -> None:
        """End every tunnel, and wait for that."""
        self.fails_with(_WRONG_PASSWORD)
        if self._clients:
            await asyncio.wait([*self._clients])

    def accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """One client."""
        client = asyncio.get_running_loop().create_task(self._served(reader, writer))
        self._clients[client] = writer
        client.add_done_callback(self._clients.pop)

    async def _served(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            with suppress(OSError, asyncio.IncompleteReadError):
                await self._serve(reader, writer)
        finally:
            writer.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = (await reader.readuntil(b"\r\n\r\n")).decode()
        right = f"Proxy-Authorization: {self.header}\r\n" in head
        if self._answer or not right:
            writer.write(self._answer or _WRONG_PASSWORD)
            await writer.drain()
            return
        host, _, port = head.split(" ", 2)[1].partition(":")
        to_reader, to_writer = await asyncio.open_connection(host, int(port))
        self.opened += 1
        writer.write(_ESTABLISHED)
        try:
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(_pump(reader, to_writer))
                tasks.create_task(_pump(to_reader, writer))
        finally:
            to_writer.close()


async def _pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with suppress(OSError):
        while chunk := await reader.read(_CHUNK):
            writer.write(chunk)
            await writer.drain()
    # The other direction has nobody left to talk to.
    writer.close()


@asynccontextmanager
async def tunnel(user: str, password: str) -> AsyncIterator[Tunnel]:
    """One that listens, open."""
    made = Tunnel(user, password)
    server = await asyncio.start_server(made.accept, "127.0.0.1", 0)
    made.port = server.sockets[0].getsockname()[1]
    try:
        yield made
    finally:
        server.close()
        await made.end()


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
        await manifests.apply(admin, *manifests.documents("rbac.yaml", "device-plugin-rbac.yaml"))
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
