"""The plugin's socket: protobuf on one side, values on the other, and nothing else.

serve ──▶ socket in the kubelet's directory ──▶ KubeletPlugin.allocate, .pre_start, .devices
"""

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Protocol, TypeAlias

import grpc
from google.protobuf.message import Message

from deviceplugin.kubelet.v1beta1 import deviceplugin_pb2 as wire

_GRACE_S: Final = 1.0
# GetPreferredAllocation is not offered, so the largest request names the ids of one container.
_LARGEST_REQUEST: Final = 16 * 2**20
_READ_WRITE: Final = "rw"  # of a device node; the kubelet's other letter, m, makes nodes

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

    device_nodes: of the host, under the same path.
    """

    environment: Mapping[str, str] = field(default_factory=dict)
    mounts: tuple[Mount, ...] = ()
    cdi_devices: tuple[str, ...] = ()
    device_nodes: tuple[str, ...] = ()


class KubeletPlugin(Protocol):
    """Port: the plugin behind the socket."""

    def devices(self) -> AsyncIterator[Devices]:
        """(id, healthy) of every fake device: now, and whenever that changes."""
        ...

    async def allocate(self, ids: frozenset[str]) -> ContainerResponse:
        """The answer for one container; CallRejected with a message that ends up on the pod."""
        ...

    async def pre_start(self, ids: frozenset[str]) -> None:
        """Called at every start of a container that has these ids; CallRejected has the kubelet try again."""
        ...


@asynccontextmanager
async def serving(plugin: KubeletPlugin, socket: Path) -> AsyncIterator[None]:
    """Serve the plugin at `socket` while the context lasts; what lay there before is replaced."""
    server = grpc.aio.server(options=[("grpc.max_receive_message_length", _LARGEST_REQUEST)])
    server.add_generic_rpc_handlers((_handlers(plugin),))
    _remove(socket)
    server.add_insecure_port(f"unix:{socket}")
    await server.start()
    try:
        yield
    finally:
        await server.stop(_GRACE_S)
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
        """One container each time (devicemanager/manager.go); the API allows several."""
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
            wire.DeviceSpec(container_path=path, host_path=path, permissions=_READ_WRITE)
            for path in answer.device_nodes
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
