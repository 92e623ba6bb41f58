"""Writes of the plugin to the API server: annotations and capacity of its own node, Events, evictions.

All through the scheduler's transport: raw paths and bodies, errors of `scheduler.kube.port`.
"""

from collections.abc import Mapping
from http import HTTPMethod
from typing import Final

import msgspec

from scheduler.kube.port import PodKey
from scheduler.kube.rest.client_config.connect import Connection
from scheduler.kube.rest.transport import STRATEGIC_MERGE_PATCH, Transport

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
        """Set these annotations of the node, remove those that are None, leave the others alone. Raises ApiError.

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
        """End every connection."""
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
