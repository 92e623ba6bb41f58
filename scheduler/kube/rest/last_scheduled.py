"""Time when a pod of one scheduler name was last bound or evaluated, from a consistent list of these pods."""

from http import HTTPMethod
from typing import Final
from urllib.parse import quote

import msgspec

from scheduler.kube import port
from scheduler.kube.port import LastScheduled
from scheduler.kube.resource_versions import version_number
from scheduler.kube.rest import decoding
from scheduler.kube.rest.failures import MALFORMED
from scheduler.kube.rest.transport import Transport

_PAGE: Final = 500
_SCHEDULED: Final = "PodScheduled"
# Written by the API server itself into a pod with a gate.
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
    """See `port.Cluster.last_scheduled`. timeout_s: of each page."""
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
