"""The plugin's socket, which translates between protobuf and values, and its registration.

serve ──▶ socket in the kubelet's directory ──▶ KubeletPlugin.allocate, .pre_start, .devices

Keeps the plugin registered across restarts of the kubelet.

    kubelet.sock appears ──▶ serve our socket ──▶ Register ──▶ REGISTERED ──▶ kubelet.sock appears again …
                                                   │ ▲             └ dropped: Register, with back-off
                                                   └─┘ silent or rejects: retry, with back-off

A kubelet that starts removes every socket, including ours, so each registration has its own server.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Protocol, TypeAlias

import grpc
from google.protobuf.message import Message

from deviceplugin.kubelet import client
from deviceplugin.kubelet.checkpoint import CheckpointError
from deviceplugin.kubelet.client import KubeletSilent, RegistrationRefused
from deviceplugin.kubelet.v1beta1 import deviceplugin_pb2 as wire

_GRACE_S: Final = 1.0
# GetPreferredAllocation is not offered, so the largest request names the IDs of one container.
_LARGEST_REQUEST: Final = 16 * 2**20
_READ_WRITE: Final = "rw"  # for a device node; the kubelet's other letter, m, creates nodes

_Context: TypeAlias = "grpc.aio.ServicerContext[Message, Message]"
Devices: TypeAlias = Sequence[tuple[str, bool]]


class CallRejected(Exception):
    """The call is rejected. At Allocate that fails the pod permanently; PreStartContainer is retried.

    kind: one of a few constants, for metrics.
    """

    def __init__(self, message: str, kind: str) -> None:
        super().__init__(message)
        self.kind = kind


@dataclass(frozen=True, slots=True)
class Mount:
    """A path of the host in the container."""

    container_path: str
    host_path: str
    read_only: bool = True


@dataclass(frozen=True, slots=True)
class ContainerResponse:
    """Allocate response for one container. cdi_devices: qualified names, `vendor/class=name`.

    device_nodes: path in the container -> path on the host.
    """

    environment: Mapping[str, str] = field(default_factory=dict)
    mounts: tuple[Mount, ...] = ()
    cdi_devices: tuple[str, ...] = ()
    device_nodes: Mapping[str, str] = field(default_factory=dict)


class KubeletPlugin(Protocol):
    """Port: the plugin behind the socket."""

    def devices(self) -> AsyncIterator[Devices]:
        """Yield (ID, healthy) of every fake device: now, and whenever that changes."""
        ...

    async def allocate(self, ids: frozenset[str]) -> ContainerResponse:
        """Return the answer for one container. Raises CallRejected with a message that appears on the pod."""
        ...

    async def pre_start(self, ids: frozenset[str]) -> None:
        """Prepare a start of the container that has these IDs. CallRejected makes the kubelet retry."""
        ...


@asynccontextmanager
async def serving(plugin: KubeletPlugin, socket: Path) -> AsyncIterator[None]:
    """Serve the plugin at `socket` while the context lasts; replaces an existing file."""
    server = grpc.aio.server(options=[("grpc.max_receive_message_length", _LARGEST_REQUEST)])
    server.add_generic_rpc_handlers((_handlers(plugin),))
    _remove(socket)
    # It may be cancelled while it starts, and again while it ends.
    try:
        server.add_insecure_port(f"unix:{socket}")
        await server.start()
        yield
    finally:
        try:
            await server.stop(_GRACE_S)
        finally:
            _remove(socket)


def _handlers(plugin: KubeletPlugin) -> grpc.GenericRpcHandler:
    service = _Service(plugin)
    return grpc.method_handlers_generic_handler(
        "v1beta1.DevicePlugin",
        {
            "GetDevicePluginOptions": _unary(service.options, wire.Empty),
            "Allocate": _unary(service.allocate, wire.AllocateRequest),
            "PreStartContainer": _unary(service.pre_start, wire.PreStartContainerRequest),
            "ListAndWatch": grpc.unary_stream_rpc_method_handler(
                service.list_and_watch,
                request_deserializer=wire.Empty.FromString,
                response_serializer=_serialize,
            ),
        },
    )


class _Service:
    def __init__(self, plugin: KubeletPlugin) -> None:
        self._plugin = plugin

    async def options(self, _: wire.Empty, __: _Context) -> wire.DevicePluginOptions:
        return wire.DevicePluginOptions(pre_start_required=True)

    async def allocate(self, request: wire.AllocateRequest, context: _Context) -> wire.AllocateResponse:
        """Answer for each container: the kubelet sends one (devicemanager/manager.go); the API allows several."""
        answers = []
        for container in request.container_requests:
            try:
                answers.append(await self._plugin.allocate(frozenset(container.devices_ids)))
            except CallRejected as refused:
                await context.abort(grpc.StatusCode.FAILED_PRECONDITION, str(refused))
        return wire.AllocateResponse(container_responses=[_encoded(answer) for answer in answers])

    async def pre_start(
        self, request: wire.PreStartContainerRequest, context: _Context
    ) -> wire.PreStartContainerResponse:
        try:
            await self._plugin.pre_start(frozenset(request.devices_ids))
        except CallRejected as refused:
            await context.abort(grpc.StatusCode.FAILED_PRECONDITION, str(refused))
        return wire.PreStartContainerResponse()

    async def list_and_watch(self, _: wire.Empty, __: _Context) -> AsyncIterator[wire.ListAndWatchResponse]:
        async for devices in self._plugin.devices():
            listed = [wire.Device(ID=name, health="Healthy" if healthy else "Unhealthy") for name, healthy in devices]
            yield wire.ListAndWatchResponse(devices=listed)


def _encoded(answer: ContainerResponse) -> wire.ContainerAllocateResponse:
    return wire.ContainerAllocateResponse(
        envs=dict(answer.environment),
        mounts=[
            wire.Mount(container_path=mount.container_path, host_path=mount.host_path, read_only=mount.read_only)
            for mount in answer.mounts
        ],
        devices=[
            wire.DeviceSpec(container_path=path, host_path=on_host, permissions=_READ_WRITE)
            for path, on_host in answer.device_nodes.items()
        ],
        cdi_devices=[wire.CDIDevice(name=name) for name in answer.cdi_devices],
    )


def _unary(
    behaviour: Callable[..., Awaitable[Message]], request: type[Message]
) -> "grpc.RpcMethodHandler[Message, Message]":
    return grpc.unary_unary_rpc_method_handler(
        behaviour, request_deserializer=request.FromString, response_serializer=_serialize
    )


def _remove(socket: Path) -> None:
    socket.unlink(missing_ok=True)


def _serialize(message: Message) -> bytes:
    return message.SerializeToString()


SOCKET_NAME: Final = "gpushare.sock"
# level, event and fields of a log line; structlog itself is slow to import.
Say: TypeAlias = Callable[[str, str, Mapping[str, object]], None]


class RegisteredPlugin(KubeletPlugin, Protocol):
    """Port: a plugin that follows its registration."""

    async def registering(self) -> None:
        """Called before each attempt. Postpones it by raising KubeletSilent or CheckpointError."""
        ...

    def on_registered(self) -> None:
        """Called after each success."""
        ...

    def on_unregistered(self) -> None:
        """Called when no kubelet follows the devices."""
        ...

    def on_problem(self, message: str) -> None:
        """Called with the reason of a failure; with "" after success."""
        ...


@dataclass(slots=True)
class Registration:
    """Registration of the plugin. backoff_s: seconds to wait, by consecutive failures. say: receives its log lines."""

    plugin: RegisteredPlugin
    device_plugin_dir: Path
    resource: str
    backoff_s: Callable[[int], float]
    say: Say
    _dropped: asyncio.Event = field(default_factory=asyncio.Event)

    def dropped(self) -> None:
        """Record that no kubelet follows the devices; register again if one is still running."""
        self._dropped.set()

    async def run(self) -> None:
        """Serve and register forever; cancelling removes the socket.

        Raises a group with the errors of serving and client.DirectoryGone.
        """
        life: asyncio.Task[None] | None = None
        # If one task fails (for example, because the socket cannot be created), all end: the plugin would not be
        # served.
        async with asyncio.TaskGroup() as lives:
            async for _ in client.restarts(self.device_plugin_dir):
                await _ended(life)
                life = lives.create_task(self._one_life())

    async def _one_life(self) -> None:
        """Serve from one start of the kubelet to the next, which cancels this."""
        self.plugin.on_unregistered()
        async with serving(self.plugin, self.device_plugin_dir / SOCKET_NAME):
            drops = 0
            while True:
                self._dropped.clear()
                await self._register()
                await self._dropped.wait()
                drops += 1
                self.say("warning", "kubelet.disconnected", {"resource": self.resource, "times": drops})
                # A kubelet that ends also drops us: its successor cuts this short.
                await asyncio.sleep(self.backoff_s(drops))

    async def _register(self) -> None:
        failures = 0
        while True:
            try:
                await self.plugin.registering()
                await client.register(self.device_plugin_dir, SOCKET_NAME, self.resource)
            except (KubeletSilent, RegistrationRefused, CheckpointError) as error:
                failures += 1
                self.plugin.on_problem(str(error))
                self.say("warning", "register.failed", {"reason": str(error), "attempt": failures})
                await asyncio.sleep(self.backoff_s(failures))
            else:
                self.say("info", "registered", {"resource": self.resource, "socket": SOCKET_NAME})
                self.plugin.on_problem("")
                self.plugin.on_registered()
                return


async def _ended(life: "asyncio.Task[None] | None") -> None:
    if life is not None:
        life.cancel()
        # Not `await life`: a cancellation during it would be mistaken for the end of that task, and ignored.
        await asyncio.wait({life})
