"""`port.Cluster` for a real API server."""

import math
import random
import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from http import HTTPMethod, HTTPStatus
from typing import Final
from urllib.parse import quote

import msgspec

from scheduler.kube import objects, port
from scheduler.kube.port import Kind, LastScheduled, PodKey, T, WatchEvent
from scheduler.kube.resource_versions import version_number
from scheduler.kube.rest import decoding, version, writing
from scheduler.kube.rest.bare_connections import JSON
from scheduler.kube.rest.client_config.connect import Connection
from scheduler.kube.rest.decoding import Decoder
from scheduler.kube.rest.failures import MALFORMED
from scheduler.kube.rest.reviews import NEEDED, Right, missing_rights
from scheduler.kube.rest.transport import STRATEGIC_MERGE_PATCH, Transport
from scheduler.kube.rest.watching import Watching, WatchOptions
from scheduler.kube.versions import ServerVersion

_PAGE: Final = 500
_SCHEDULED: Final = "PodScheduled"
# The API server itself writes this reason into a pod with a gate.
_GATED: Final = "SchedulingGated"


class _Meta(msgspec.Struct, rename="camel"):
    resource_version: str = ""


class _Condition(msgspec.Struct, rename="camel"):
    type: str = ""
    reason: str = ""
    last_transition_time: str | None = None


class _Status(msgspec.Struct):
    conditions: list[_Condition] = []


class _Pod(msgspec.Struct):
    metadata: _Meta
    status: _Status = msgspec.field(default_factory=_Status)


_DECODER: Final = msgspec.json.Decoder(_Pod)


async def last_scheduled(transport: Transport, scheduler_name: str, timeout_s: float) -> LastScheduled:
    """See `port.Cluster.last_scheduled`. timeout_s: per page."""
    selector = quote(f"spec.schedulerName={scheduler_name}", safe="")
    moment, version, rest = "", 0, ""
    while True:
        path = f"{port.PODS.path}?fieldSelector={selector}&limit={_PAGE}{rest}"
        body = await transport.send(HTTPMethod.GET, path, answers=port.PODS.list_kind, timeout_s=timeout_s)
        page = decoding.page(body)
        for item in page.items or ():
            pod = _decoded(item)
            version = max(version, version_number(pod.metadata.resource_version))
            moment = max(moment, _moment(pod))
        if not page.metadata.rest:
            return LastScheduled(moment, str(version))
        rest = f"&continue={quote(page.metadata.rest, safe='')}"


def _decoded(item: msgspec.Raw) -> _Pod:
    try:
        return _DECODER.decode(item)
    except MALFORMED as error:
        raise port.ApiFailed(f"a pod that the server sent cannot be decoded: {error}") from error


def _moment(pod: _Pod) -> str:
    times = (c.last_transition_time for c in pod.status.conditions if c.type == _SCHEDULED and c.reason != _GATED)
    return max(filter(None, times), default="")


_UID_DIFFERS: Final = "metadata.uid: Invalid value"


@dataclass(frozen=True, slots=True)
class ClientOptions:
    """Options of the client. connections: maximum number, including those of watches.

    request_timeout_s: for requests that any replica may send.
    leaders_timeout_s: for requests that only the leader may send, except Bindings. Limits how late one can take effect.
    """

    connections: int = 64
    request_timeout_s: float = 30.0
    leaders_timeout_s: float = 30.0
    watch: WatchOptions = field(default_factory=WatchOptions)


class KubeCluster:
    """A client of one API server. Create, use and close it in one event loop.

    namespace: default for names without one. leads: called just before a leader-only request is sent, possibly long
    after the method was called, because a connection must first be free or established.
    """

    def __init__(self, connection: Connection, rng: random.Random, options: ClientOptions | None = None) -> None:
        """rng: spreads the ends of watches over time. options: None for the defaults."""
        options = options or ClientOptions()
        self._timeout_s = options.request_timeout_s
        self._leaders_timeout_s = options.leaders_timeout_s
        self.namespace = connection.namespace
        self.leads: Callable[[], bool] = lambda: True
        self._transport = Transport(connection, options.connections)
        self._watching = Watching(self._transport, options.watch, rng)
        self._pods = Decoder(port.PODS)
        self._volumes = Decoder(port.VOLUMES)
        self._claims = Decoder(port.CLAIMS)
        self._leases = Decoder(port.lease_kind("", ""))

    @property
    def has_answered(self) -> bool:
        """Whether the server has answered any request, with any status."""
        return self._transport.has_answered

    def watch(self, kind: Kind[T], since: str | None) -> AsyncIterator[list[WatchEvent[T]]]:
        """A watch. If the list restarts, another ListBegins follows."""
        return self._watching.watch(kind, since)

    async def bind(self, binding: port.Binding, timeout_s: float) -> None:
        """POST the binding as the leader, see `_as_leader`."""
        path = f"{writing.pod_path(binding.pod.namespace, binding.pod.name)}/binding"
        body = writing.binding_body(binding)
        await self._as_leader(HTTPMethod.POST, path, body, "Status", timeout_s=timeout_s)

    async def pod(self, namespace: str, name: str) -> objects.PodObject | None:
        """The pod, by a consistent read."""
        path = writing.pod_path(namespace, name)
        try:
            body = await self._transport.send(HTTPMethod.GET, path, answers="Pod", timeout_s=self._timeout_s)
        except port.ApiNotFound:
            return None
        return self._pods.object(body)

    async def bind_volume(self, wanted: port.VolumeForClaim) -> str:
        """Write the claim into the volume."""
        path, body = writing.volume_path(wanted.volume), writing.volume_patch(wanted)
        return self._volumes.object(
            await self._patch_as_leader(path, body, "PersistentVolume")
        ).metadata.resource_version

    async def select_node(self, wanted: port.NodeForClaim) -> str:
        """Write the node into the claim."""
        path, body = writing.claim_path(wanted.namespace, wanted.claim), writing.claim_patch(wanted)
        answer = await self._patch_as_leader(path, body, "PersistentVolumeClaim")
        return self._claims.object(answer).metadata.resource_version

    async def last_change(self, kind: Kind[T], since: str) -> str:
        return await self._watching.last_change(kind, since)

    async def last_scheduled(self, scheduler_name: str) -> port.LastScheduled:
        return await last_scheduled(self._transport, scheduler_name, self._timeout_s)

    async def write_lease(self, wanted: port.WantedLease, timeout_s: float) -> str:
        path, body = writing.leases_path(wanted.namespace), writing.lease_body(wanted)
        if wanted.version:
            answer = await self._patch(f"{path}/{wanted.name}", body, "Lease", timeout_s)
        else:
            answer = await self._transport.send(HTTPMethod.POST, path, body, answers="Lease", timeout_s=timeout_s)
        return self._leases.object(answer).metadata.resource_version

    async def set_pod_condition(self, pod: PodKey, condition: objects.PodCondition, *, changed: bool = True) -> None:
        """Patch one condition of the pod."""
        await self._patch_status(pod, writing.condition_patch(pod, condition, time.time() if changed else None))

    async def set_nominated_node(self, pod: PodKey, node: str) -> None:
        await self._patch_status(pod, writing.nomination_patch(pod, node))

    async def delete_pod(self, pod: PodKey) -> None:
        """Delete the pod with its grace period."""
        path, body = writing.pod_path(pod.namespace, pod.name), writing.deletion_body(pod)
        await self._as_leader(HTTPMethod.DELETE, path, body, "Pod")

    async def create_event(self, event: port.EventRecord) -> None:
        path, body = writing.events_path(event), writing.event_body(event)
        await self._transport.write(HTTPMethod.POST, path, body, answers="Event", timeout_s=self._timeout_s)

    async def update_event(self, event: port.EventRecord, series: port.EventSeries) -> None:
        """Update the series of the Event."""
        await self._patch(f"{writing.events_path(event)}/{event.name}", writing.series_patch(series), "Event")

    async def missing_rights(self, needed: Sequence[Right] = NEEDED) -> list[str]:
        """Needed rights that this account lacks, one readable line each. Raises ApiError."""
        return await missing_rights(self._transport, self._timeout_s, needed)

    async def server_version(self) -> ServerVersion:
        """Version of the API server. Raises ApiError."""
        return await version.read(self._transport, self._timeout_s)

    async def page_of_pod(self, namespace: str, name: str, port: int, page: str, timeout_s: float) -> str:
        """Answer of a pod's HTTP server, through the API server. page: its path, such as `metrics`. Raises ApiError."""
        path = f"{writing.pod_path(namespace, name)}:{port}/proxy/{page}"
        answer = await self._transport.send(HTTPMethod.GET, path, answers="", timeout_s=timeout_s)
        return answer.decode(errors="replace")

    async def annotate_node(self, name: str, annotations: Mapping[str, str | None], version: str) -> None:
        """Set these annotations of a node, and remove those that are None. Raises ApiError.

        version: `resourceVersion` that the node must have; otherwise raises ApiConflict. For commands of operators,
        with their rights: the scheduler's account cannot write nodes.
        """
        await self._patch(writing.node_path(name), writing.annotations_patch(annotations, version), "Node")

    async def evict_pod(self, pod: PodKey) -> None:
        """Ask the API server to evict the pod. For commands of operators, like `annotate_node`.

        Raises ApiThrottled if a disruption budget does not allow it now, ApiNotFound if the pod is already deleted,
        ApiConflict if it has another UID now.
        """
        path = f"{writing.pod_path(pod.namespace, pod.name)}/eviction"
        body = writing.eviction_body(pod)
        await self._transport.send(HTTPMethod.POST, path, body, answers="Status", timeout_s=self._timeout_s)

    async def close(self) -> None:
        await self._transport.close()

    async def _patch_status(self, pod: PodKey, body: bytes) -> None:
        try:
            await self._patch_as_leader(f"{writing.pod_path(pod.namespace, pod.name)}/status", body, "Pod")
        except port.ApiRejected as error:
            # In a patch, another UID is not a failed precondition but a change to an immutable field.
            if error.status == HTTPStatus.UNPROCESSABLE_ENTITY and _UID_DIFFERS in error.message:
                raise port.ApiConflict(error.message, error.status) from error
            raise

    async def _patch_as_leader(self, path: str, body: bytes, kind: str) -> bytes:
        return await self._as_leader(HTTPMethod.PATCH, path, body, kind, content_type=STRATEGIC_MERGE_PATCH)

    async def _as_leader(
        self,
        method: HTTPMethod,
        path: str,
        body: bytes,
        answers: str,
        *,
        timeout_s: float | None = None,
        content_type: str = JSON,
    ) -> bytes:
        """Send a leader-only request and return the body of the answer. Raises NotSent if `leads` returns False.

        answers: kind of the expected object. The request tells the API server the remaining time, so that the server
        does not continue after the client has given up.
        """
        timeout_s = timeout_s or self._leaders_timeout_s
        until_s = time.monotonic() + timeout_s

        def with_time_left() -> str:
            if not self.leads():
                raise port.NotSent
            return f"{path}?timeout={max(1, math.ceil(until_s - time.monotonic()))}s"

        return await self._transport.write(
            method, with_time_left, body, answers=answers, timeout_s=timeout_s, content_type=content_type
        )

    async def _patch(self, path: str, body: bytes, kind: str, timeout_s: float | None = None) -> bytes:
        return await self._transport.send(
            HTTPMethod.PATCH,
            path,
            body,
            answers=kind,
            timeout_s=timeout_s or self._timeout_s,
            content_type=STRATEGIC_MERGE_PATCH,
        )
