"""Keeps on the node object what the plugin announces there: written when it differs, put back when removed.

want, seen ──▶ differs? ──▶ PATCH node (annotations), PATCH node/status (capacity) ──▶ the watch shows it: done
                             └ fails: again, with back-off

Writes of the plugin to the API server: annotations and capacity of its own node, Events, evictions.
All through the scheduler's transport: raw paths and bodies, errors of `scheduler.kube.port`.
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


class NodeWriter(Protocol):
    """Writes on our own node. Both methods raise ApiError."""

    async def annotate(self, annotations: Mapping[str, str | None], version: str) -> None:
        """Set these annotations, remove those that are None, and keep all others.

        version: `resourceVersion` of the node as it was seen; refused with ApiConflict when it has another one.
        """
        ...

    async def set_capacity(self, capacity: Mapping[str, int]) -> None:
        """Set these resources of the capacity; the kubelet makes them allocatable (nodestatus/setters.go)."""
        ...


def differing(node: objects.Node, wanted: NodePatch) -> NodePatch:
    """The part of `wanted` that the node object does not have yet."""
    annotations, capacity = node.metadata.annotations or {}, node.status.capacity or {}
    return NodePatch(
        {key: text for key, text in wanted.annotations.items() if annotations.get(key) != text},
        {name: amount for name, amount in wanted.capacity.items() if _amount(capacity.get(name)) != amount},
    )


class NodePublisher:
    """One per node. `want` and `seen` may be called at any time; `run` writes.

    problem: what the API server said to the last write; "" once one has succeeded.
    """

    def __init__(self, writer: NodeWriter, backoff_s: Callable[[int], float]) -> None:
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
        """Take note of the node as the watch shows it now; None when it does not exist."""
        self._node = node
        self._moved.set()
        self._news.set()

    @property
    def announced(self) -> bool:
        """Whether the node object is up to date."""
        return self._node is not None and bool(self._wanted) and not differing(self._node, self._wanted)

    async def settled(self) -> None:
        """Return once the node object has the annotations wanted at this time."""
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
            # People write on the node too: what they have said since must not be lost.
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
    """Writes of one node's plugin; make it inside the event loop that uses it."""

    def __init__(self, connection: Connection, node: str) -> None:
        """node: our own; the API server lets us touch no other."""
        self._transport = Transport(connection, _CONNECTIONS)
        self._path = f"/api/v1/nodes/{node}"

    async def annotate(self, annotations: Mapping[str, str | None], version: str = "") -> None:
        """Set these annotations of the node, remove those that are None, keep all others. Raises ApiError.

        version: `resourceVersion` that the node has to have, or it is ApiConflict; "": any.
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
        """Take this resource off the node's capacity and allocatable. Raises ApiError.

        The kubelet keeps those that it does not know as they are (nodestatus/setters.go).
        """
        await self._patch(
            f"{self._path}/status", {"status": {"capacity": {name: None}, "allocatable": {name: None}}}, "Node"
        )

    async def evict(self, pod: PodKey) -> None:
        """Ask for the eviction of this very pod; ApiThrottled when a disruption budget forbids it now."""
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
        """Set annotations of this very pod. Raises ApiError; ApiRejected when it has another uid now."""
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
