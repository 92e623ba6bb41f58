"""A kubelet as a device plugin sees it: takes registrations, reads the device list, allocates."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, TypeVar

import grpc
from google.protobuf.message import Message

from deviceplugin.kubelet.v1beta1 import deviceplugin_pb2 as wire
from deviceplugin.kubelet.v1beta1 import podresources_pb2 as resources

M = TypeVar("M", bound=Message)
Context = Any  # grpc.aio.ServicerContext is generic in its stubs only
Containers = Mapping[str, Mapping[str, list[str]]]  # container -> resource -> IDs


class KubeletDouble:
    """A kubelet double. registered, listed: as received, listed by ID. refusal: of registrations."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.registered: asyncio.Queue[wire.RegisterRequest] = asyncio.Queue()
        self.listed: asyncio.Queue[dict[str, str]] = asyncio.Queue()
        self.pods: dict[tuple[str, str], Containers] = {}
        self.refusal = ""
        self.too_busy = 0  # this many queries about a pod are rejected by the rate limit
        self.refused: asyncio.Queue[str] = asyncio.Queue()
        self.options = wire.DevicePluginOptions()
        self._following: asyncio.Task[None] | None = None
        self._plugin: grpc.aio.Channel | None = None

    @asynccontextmanager
    async def running(self) -> AsyncIterator["KubeletDouble"]:
        """Run it once: sockets are created at the start and removed at the end."""
        server = grpc.aio.server()
        registration = {"Register": _unary(self._register, wire.RegisterRequest)}
        lister = {
            "Get": _unary(self._get, resources.GetPodResourcesRequest),
            "List": _unary(self._list, resources.ListPodResourcesRequest),
        }
        server.add_generic_rpc_handlers(
            (
                grpc.method_handlers_generic_handler("v1beta1.Registration", registration),
                grpc.method_handlers_generic_handler("v1.PodResourcesLister", lister),
            )
        )
        for name in ("kubelet.sock", "pod-resources.sock"):
            (self.folder / name).unlink(missing_ok=True)
            server.add_insecure_port(f"unix:{self.folder / name}")
        await server.start()
        try:
            yield self
        finally:
            if self._following is not None:
                self._following.cancel()
            if self._plugin is not None:
                await self._plugin.close()
            await server.stop(None)
            (self.folder / "kubelet.sock").unlink(missing_ok=True)

    async def allocate(self, ids: list[str]) -> wire.ContainerAllocateResponse:
        request = wire.AllocateRequest(container_requests=[wire.ContainerAllocateRequest(devices_ids=ids)])
        answer = await self._call("Allocate", wire.AllocateResponse)(request)
        return answer.container_responses[0]

    async def stop_following(self) -> None:
        """End ListAndWatch, and keep running."""
        assert self._following is not None
        self._following.cancel()
        await asyncio.wait({self._following})

    async def pre_start(self, ids: list[str]) -> None:
        await self._call("PreStartContainer", wire.PreStartContainerResponse)(
            wire.PreStartContainerRequest(devices_ids=ids)
        )

    def _call(self, method: str, answer: type[M]) -> Callable[[Message], Awaitable[M]]:
        assert self._plugin is not None
        call: Callable[[Message], Awaitable[M]] = self._plugin.unary_unary(
            f"/v1beta1.DevicePlugin/{method}", request_serializer=_bytes, response_deserializer=answer.FromString
        )
        return call

    async def _register(self, request: wire.RegisterRequest, context: Context) -> wire.Empty:
        if self.refusal:
            self.refused.put_nowait(self.refusal)
            await context.abort(grpc.StatusCode.INVALID_ARGUMENT, self.refusal)
        if self._plugin is not None:
            await self._plugin.close()
        self._plugin = grpc.aio.insecure_channel(f"unix:{self.folder / request.endpoint}")
        # As in the kubelet: it queries the options while the plugin still waits for the answer.
        self.options = await self._call("GetDevicePluginOptions", wire.DevicePluginOptions)(wire.Empty())
        self._following = asyncio.create_task(self._follow(self._plugin))
        self.registered.put_nowait(request)
        return wire.Empty()

    async def _follow(self, plugin: grpc.aio.Channel) -> None:
        stream: Any = plugin.unary_stream(
            "/v1beta1.DevicePlugin/ListAndWatch",
            request_serializer=_bytes,
            response_deserializer=wire.ListAndWatchResponse.FromString,
        )
        try:
            async for answer in stream(wire.Empty()):
                self.listed.put_nowait({device.ID: device.health for device in answer.devices})
        except grpc.aio.AioRpcError:
            return

    async def _get(
        self, request: resources.GetPodResourcesRequest, context: Context
    ) -> resources.GetPodResourcesResponse:
        key = (request.pod_namespace, request.pod_name)
        if self.too_busy:
            self.too_busy -= 1
            # As in pkg/kubelet/apis/grpc/ratelimit.go.
            await context.abort(grpc.StatusCode.RESOURCE_EXHAUSTED, "rejected by rate limit")
        if key not in self.pods:
            # The kubelet's own message and status (pkg/kubelet/apis/podresources/server_v1.go).
            await context.abort(
                grpc.StatusCode.UNKNOWN, f"pod {request.pod_name} in namespace {request.pod_namespace} not found"
            )
        return resources.GetPodResourcesResponse(pod_resources=_pod(key, self.pods[key]))

    async def _list(self, _: object, __: object) -> resources.ListPodResourcesResponse:
        return resources.ListPodResourcesResponse(pod_resources=[_pod(key, pod) for key, pod in self.pods.items()])


def _pod(key: tuple[str, str], containers: Containers) -> resources.PodResources:
    return resources.PodResources(
        namespace=key[0],
        name=key[1],
        containers=[
            resources.ContainerResources(
                name=name,
                # One entry per ID, as the kubelet writes them.
                devices=[
                    resources.ContainerDevices(resource_name=resource, device_ids=[one])
                    for resource, ids in held.items()
                    for one in ids
                ],
            )
            for name, held in containers.items()
        ],
    )


def _bytes(message: Message) -> bytes:
    return message.SerializeToString()


def _unary(behaviour: Callable[..., Awaitable[Message]], request: type[Message]) -> "grpc.RpcMethodHandler[Any, Any]":
    return grpc.unary_unary_rpc_method_handler(
        behaviour,
        request_deserializer=request.FromString,
        response_serializer=_bytes,
    )
