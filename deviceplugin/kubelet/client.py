"""Calls to the kubelet: to register the plugin, and to query which container has which device IDs.

Both use unix sockets on the node that belong to root. Source: pkg/kubelet/apis/podresources and
pkg/kubelet/cm/devicemanager/plugin of Kubernetes 1.36.
"""

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Iterable
from pathlib import Path
from typing import Final, TypeVar

import grpc
from google.protobuf.message import Message

from deviceplugin.kubelet.checkpoint import KubeletContainer
from deviceplugin.kubelet.v1beta1 import deviceplugin_pb2, podresources_pb2

SOCKET_NAME: Final = "kubelet.sock"
API_VERSION: Final = "v1beta1"
_REGISTER_S: Final = 5.0
_BREATH_S: Final = 0.02
_GONE_S: Final = 10.0
# A kubelet re-admits its pods about a second after it starts.
_LOOK_S: Final = 0.1
_RECONNECT_MS: Final = 100
_CONNECT_MS: Final = 5_000
# One entry per device ID: thousands of IDs make answers larger than gRPC's usual 4 MiB. The kubelet's own limit: 16.
_LARGEST_ANSWER: Final = 16 * 2**20

M = TypeVar("M", bound=Message)


class KubeletSilent(Exception):
    """The kubelet did not answer in time; the message names the request."""


class DirectoryGone(Exception):
    """The kubelet's directory is missing. A container sees a new directory only after it is restarted."""


class RegistrationRefused(Exception):
    """The kubelet rejected the plugin; the message has its answer."""


async def register(device_plugin_dir: Path, endpoint: str, resource: str) -> None:
    """Register `endpoint`, a socket in `device_plugin_dir`, with the kubelet.

    Raises KubeletSilent (it may be starting: retry) or RegistrationRefused.
    """
    request = deviceplugin_pb2.RegisterRequest(
        version=API_VERSION,
        endpoint=endpoint,
        resource_name=resource,
        options=deviceplugin_pb2.DevicePluginOptions(pre_start_required=True),
    )
    async with _channel(device_plugin_dir / SOCKET_NAME) as channel:
        call = _unary(channel, "/v1beta1.Registration/Register", deviceplugin_pb2.Empty)
        try:
            await call(request, timeout=_REGISTER_S)
        except grpc.aio.AioRpcError as error:
            message = f"registering {resource} with the kubelet: {_message(error)}"
            if error.code() in _SILENT:
                raise KubeletSilent(message) from error
            raise RegistrationRefused(message) from error


class PodResources:
    """Client of the kubelet's pod resources socket; create it inside the event loop that uses it."""

    def __init__(self, socket: Path, resource: str) -> None:
        """resource: the resource whose IDs are read; all others are skipped."""
        self._channel = _channel(socket)
        self._resource = resource
        self._get = _unary(self._channel, "/v1.PodResourcesLister/Get", podresources_pb2.GetPodResourcesResponse)
        self._list = _unary(self._channel, "/v1.PodResourcesLister/List", podresources_pb2.ListPodResourcesResponse)

    async def of_pod(self, namespace: str, name: str, *, timeout_s: float) -> list[KubeletContainer] | None:
        """Return the containers of one pod; None if the kubelet does not know it, or knows it as finished or rejected.

        Ordinary init containers are never listed. Raises KubeletSilent.
        """
        request = podresources_pb2.GetPodResourcesRequest(pod_name=name, pod_namespace=namespace)
        until_s = time.monotonic() + timeout_s
        while True:
            try:
                answer = await self._get(request, timeout=timeout_s)
            except grpc.aio.AioRpcError as error:
                # The kubelet (1.36) reports a missing pod only in the message: its status is UNKNOWN.
                if error.code() is grpc.StatusCode.NOT_FOUND or "not found" in (error.details() or ""):
                    return None
                # It answers 100 queries a second, for all clients together (apis/podresources).
                if error.code() is grpc.StatusCode.RESOURCE_EXHAUSTED and time.monotonic() + _BREATH_S < until_s:
                    await asyncio.sleep(_BREATH_S)
                    continue
                # Without its name: the kubelet may write this message into the status of another user's pod.
                raise KubeletSilent(f"asking the kubelet for a pod of this node: {_message(error)}") from error
            return self._held([answer.pod_resources])

    async def all(self, *, timeout_s: float) -> list[KubeletContainer]:
        """Return the containers of every pod. Disturbs a running Allocate (kubernetes pull 137534): only for reconcile.

        Raises KubeletSilent.
        """
        try:
            answer = await self._list(podresources_pb2.ListPodResourcesRequest(), timeout=timeout_s)
        except grpc.aio.AioRpcError as error:
            raise KubeletSilent(f"asking the kubelet for all pods: {_message(error)}") from error
        return self._held(answer.pod_resources)

    async def close(self) -> None:
        await self._channel.close()

    def _held(self, pods: Iterable[podresources_pb2.PodResources]) -> list[KubeletContainer]:
        return [
            KubeletContainer(pod.namespace, pod.name, container.name, self._ids(container))
            for pod in pods
            for container in pod.containers
        ]

    def _ids(self, container: "podresources_pb2.ContainerResources") -> frozenset[str]:
        # One entry per ID (cm/container_manager.go), or one with all of them: both are summed up.
        of_ours = (devices for devices in container.devices if devices.resource_name == self._resource)
        return frozenset(device_id for devices in of_ours for device_id in devices.device_ids)


async def restarts(device_plugin_dir: Path) -> AsyncIterator[None]:
    """Yield whenever a kubelet has created its socket: at once if it exists, then at each new one.

    A kubelet that starts removes every socket of the directory, ours too, and creates its own. The directory is polled:
    no event reports that a mounted directory was removed or created again.
    Raises DirectoryGone if it is missing for a while.
    """
    last, there_s = None, time.monotonic()
    while True:
        now = _identity(device_plugin_dir / SOCKET_NAME)
        if now is not None and now != last:
            yield
        last = now
        if now is not None or _identity(device_plugin_dir) is not None:
            there_s = time.monotonic()
        elif time.monotonic() > there_s + _GONE_S:
            raise DirectoryGone(
                f"{device_plugin_dir} has been missing for {_GONE_S:g} s, or was recreated outside this "
                "container's mount"
            )
        await asyncio.sleep(_LOOK_S)


def _identity(path: Path) -> tuple[int, int, int] | None:
    """Return device, inode and time (inodes are reused); None if it is missing or was removed."""
    try:
        found = path.stat()
    except OSError:
        return None
    return (found.st_dev, found.st_ino, found.st_mtime_ns) if found.st_nlink else None


_SILENT: Final = frozenset({grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.DEADLINE_EXCEEDED})


def _channel(socket: Path) -> grpc.aio.Channel:
    options = [
        ("grpc.max_receive_message_length", _LARGEST_ANSWER),
        ("grpc.enable_http_proxy", 0),
        # A starting kubelet creates its socket a moment before it listens. gRPC would retry after a second, later after
        # two minutes, and would apply an old channel's back-off to a new one.
        ("grpc.use_local_subchannel_pool", 1),
        ("grpc.initial_reconnect_backoff_ms", _RECONNECT_MS),
        # Despite its name, this limits one attempt: a busy kubelet accepts late.
        ("grpc.min_reconnect_backoff_ms", _CONNECT_MS),
        ("grpc.max_reconnect_backoff_ms", _RECONNECT_MS),
    ]
    return grpc.aio.insecure_channel(f"unix:{socket}", options=options)


def _unary(
    channel: grpc.aio.Channel, path: str, answer: type[M]
) -> "Callable[..., grpc.aio.UnaryUnaryCall[Message, M]]":
    call: Callable[..., grpc.aio.UnaryUnaryCall[Message, M]] = channel.unary_unary(
        path, request_serializer=_serialize, response_deserializer=answer.FromString
    )
    return call


def _serialize(message: Message) -> bytes:
    return message.SerializeToString()


def _message(error: grpc.aio.AioRpcError) -> str:
    return f"{error.code().name}: {error.details()}"
