"""Keeps the plugin's announcements on the node object: writes differences, and restores removed values.

want, seen ──▶ differs? ──▶ PATCH node (annotations), PATCH node/status (capacity) ──▶ the watch shows it: done
                             └ fails: retry, with back-off

The plugin writes to the API server: annotations and capacity of its own node, Events, evictions.
All use the scheduler's transport: raw paths and bodies, errors of `scheduler.kube.port`.
"""

import asyncio
import contextlib
from collections.abc import Callable, Mapping
from http import HTTPMethod
from typing import Final, Protocol

import msgspec
import structlog

from config.protocol import quantity
from deviceplugin.node.inventory import NodePatch
from scheduler.kube import objects
from scheduler.kube.port import ApiConflict, ApiError, PodKey
from scheduler.kube.rest.client_config.connect import Connection
from scheduler.kube.rest.transport import STRATEGIC_MERGE_PATCH, Transport

_CONFIRMED_WITHIN_S: Final = 5.0
log = structlog.get_logger()


class _NodeWriter(Protocol):
    """Port: writes to our own node. Both methods raise ApiError."""

    async def annotate(self, annotations: Mapping[str, str | None], version: str) -> None:
        """Set these annotations, remove those that are None, and keep all others.

        version: the node's `resourceVersion` as seen; raises ApiConflict if it is different now.
        """
        ...

    async def set_capacity(self, capacity: Mapping[str, int]) -> None:
        """Set these resources of the capacity; the kubelet makes them allocatable (nodestatus/setters.go)."""
        ...


def differing(node: objects.Node, wanted: NodePatch) -> NodePatch:
    """Return the part of `wanted` that the node object lacks."""
    annotations, capacity = node.metadata.annotations or {}, node.status.capacity or {}
    return NodePatch(
        {key: text for key, text in wanted.annotations.items() if annotations.get(key) != text},
        {name: amount for name, amount in wanted.capacity.items() if _amount(capacity.get(name)) != amount},
    )


class NodePublisher:
    """Announcements on one node. Call `want` and `seen` at any time; `run` writes.

    problem: the API server's error for the last write; "" after a success.
    """

    def __init__(self, writer: _NodeWriter, backoff_s: Callable[[int], float]) -> None:
        """backoff_s: seconds to wait, by the number of consecutive failures."""
        self._writer = writer
        self._backoff_s = backoff_s
        self._wanted = NodePatch()
        self._node: objects.Node | None = None
        self._moved = asyncio.Event()
        self._news = asyncio.Event()
        self.problem = ""

    def want(self, wanted: NodePatch) -> None:
        """Announce this from now on."""
        if wanted != self._wanted:
            self._wanted = wanted
            self._moved.set()

    def want_also(self, annotations: Mapping[str, str | None]) -> None:
        """Announce these in addition to the current ones; None removes one."""
        self.want(NodePatch({**self._wanted.annotations, **annotations}, self._wanted.capacity))

    def seen(self, node: objects.Node | None) -> None:
        """Record the node as the watch shows it now; None if it does not exist."""
        self._node = node
        self._moved.set()
        self._news.set()

    @property
    def announced(self) -> bool:
        """Whether the node object is up to date."""
        return self._node is not None and bool(self._wanted) and not differing(self._node, self._wanted)

    async def settled(self) -> None:
        """Wait until the node object has the annotations wanted at the time of the call."""
        while not self.announced:
            self._news.clear()
            await self._news.wait()

    async def run(self) -> None:
        """Write forever."""
        failures = 0
        while True:
            await self._moved.wait()
            self._moved.clear()
            node = self._node
            missing = NodePatch() if node is None else differing(node, self._wanted)
            if node is None or not missing:
                continue
            try:
                await self._write(missing, node.metadata.resource_version)
            except ApiError as error:
                failures += 1
                if not isinstance(error, ApiConflict):  # The next try has the newer version.
                    self.problem = f"the node object cannot be written: {error.status} {error.message}"
                log.warning("announce.failed", reason=error.message, status=error.status, attempt=failures)
                await asyncio.sleep(self._backoff_s(failures))
                self._moved.set()
                continue
            failures, self.problem = 0, ""
            await self._confirmed(node)

    async def _write(self, missing: NodePatch, version: str) -> None:
        if missing.annotations:
            # People also write to the node: their newer changes must not be lost.
            await self._writer.annotate(missing.annotations, version)
        if missing.capacity:
            await self._writer.set_capacity(missing.capacity)
        log.info("announced", annotations=sorted(missing.annotations), capacity=dict(missing.capacity))

    async def _confirmed(self, before: objects.Node) -> None:
        """Wait until the watch shows a newer node than `before`: until then a write would be rejected as outdated."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_CONFIRMED_WITHIN_S):
                while self._node is before:
                    self._news.clear()
                    await self._news.wait()
        self._moved.set()


def _amount(text: str | float | None) -> int | None:
    if text is None:
        return None
    try:
        return quantity.whole(str(text))
    except quantity.QuantityError:
        return None


_CONNECTIONS: Final = 4
_TIMEOUT_S: Final = 30.0
_ENCODE: Final = msgspec.json.Encoder().encode


class NodeApi:
    """Client with which one node's plugin writes to the API server. Create it inside the event loop that uses it."""

    def __init__(self, connection: Connection, node: str) -> None:
        """node: our own; the API server permits no other."""
        self._transport = Transport(connection, _CONNECTIONS)
        self._path = f"/api/v1/nodes/{node}"

    async def annotate(self, annotations: Mapping[str, str | None], version: str = "") -> None:
        """Set these annotations of the node, remove those that are None, keep all others. Raises ApiError.

        version: required `resourceVersion` of the node, otherwise ApiConflict; "" for any.
        """
        metadata: dict[str, object] = {"annotations": dict(annotations)}
        if version:
            metadata["resourceVersion"] = version
        await self._patch(self._path, {"metadata": metadata}, "Node")

    async def set_capacity(self, capacity: Mapping[str, int]) -> None:
        """Set these resources of the node's capacity. Raises ApiError."""
        amounts = {name: str(amount) for name, amount in capacity.items()}
        await self._patch(f"{self._path}/status", {"status": {"capacity": amounts}}, "Node")

    async def forget_resource(self, name: str) -> None:
        """Remove this resource from the node's capacity and allocatable. Raises ApiError.

        The kubelet leaves resources that it does not know unchanged (nodestatus/setters.go).
        """
        await self._patch(
            f"{self._path}/status", {"status": {"capacity": {name: None}, "allocatable": {name: None}}}, "Node"
        )

    async def evict(self, pod: PodKey) -> None:
        """Request the eviction of exactly this pod. Raises ApiThrottled if a disruption budget forbids it now."""
        path = f"/api/v1/namespaces/{pod.namespace}/pods/{pod.name}"
        body = {
            "apiVersion": "policy/v1",
            "kind": "Eviction",
            "metadata": {"name": pod.name, "namespace": pod.namespace},
            "deleteOptions": {"preconditions": {"uid": pod.uid}},
        }
        sent = _ENCODE(body)
        await self._transport.send(HTTPMethod.POST, f"{path}/eviction", sent, answers="Status", timeout_s=_TIMEOUT_S)

    async def mark_assigned(self, pod: PodKey, annotations: Mapping[str, str]) -> None:
        """Set annotations on exactly this pod. Raises ApiError; ApiRejected if its name now has another UID."""
        body = {"metadata": {"uid": pod.uid, "annotations": dict(annotations)}}
        await self._patch(f"/api/v1/namespaces/{pod.namespace}/pods/{pod.name}", body, "Pod")

    async def close(self) -> None:
        await self._transport.close()

    async def _patch(self, path: str, body: object, kind: str) -> None:
        await self._transport.send(
            HTTPMethod.PATCH,
            path,
            _ENCODE(body),
            answers=kind,
            timeout_s=_TIMEOUT_S,
            content_type=STRATEGIC_MERGE_PATCH,
        )
