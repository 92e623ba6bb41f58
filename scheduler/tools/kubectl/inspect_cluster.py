"""Nodes and pods that `inspect` shows, read page by page with the rights of a kubeconfig's user."""

from collections.abc import AsyncIterator, Collection, Mapping
from http import HTTPMethod
from typing import Final
from urllib.parse import quote, urlencode

import msgspec

from config.protocol.shallow import decoded
from scheduler.kube import port
from scheduler.kube.rest.client_config.connect import ConnectError, connect
from scheduler.kube.rest.transport import Transport
from scheduler.tools.inspect import wire

_NODES: Final = "/api/v1/nodes"
_PODS: Final = "/api/v1/pods"
_PAGE: Final = 500
_RAW_PAGE: Final = msgspec.json.Decoder(wire.RawPage)
_ANSWER_S: Final = 60.0
# The view leaves out finished pods anyway; this avoids fetching them.
_LIVE: Final = "status.phase!=Succeeded,status.phase!=Failed"


class CannotRead(Exception):
    """The cluster cannot be read. The message says why."""


async def read(
    environment: Mapping[str, str], kubeconfig: str | None, context: str | None, names: Collection[str]
) -> tuple[list[msgspec.Raw], list[msgspec.Raw]]:
    """Read the nodes with these names, or all nodes if `names` is empty, with their pods. Raises CannotRead.

    Uses a kubeconfig like kubectl, never a pod's service account.
    """
    try:
        connection = await connect(environment, kubeconfig=kubeconfig, context=context, service_account=None)
    except ConnectError as error:
        raise CannotRead(str(error)) from error
    transport = Transport(connection, connections=1)
    try:
        if not names:
            nodes = [node async for node in _listed(transport, _NODES, "NodeList")]
            return nodes, [pod async for pod in _pods(transport, f"spec.nodeName!=,{_LIVE}")]
        nodes = [
            msgspec.Raw(await _got(transport, f"{_NODES}/{quote(name, safe='')}", "Node")) for name in sorted(names)
        ]
        selectors = [f"spec.nodeName={name},{_LIVE}" for name in sorted(names)]
        return nodes, [pod for selector in selectors async for pod in _pods(transport, selector)]
    except (port.ApiError, msgspec.MsgspecError) as error:
        raise CannotRead(str(error)) from error
    finally:
        await transport.close()


def _pods(transport: Transport, selector: str) -> AsyncIterator[msgspec.Raw]:
    return _listed(transport, _PODS, "PodList", {"fieldSelector": selector})


async def _listed(
    transport: Transport, path: str, kind: str, selected: Mapping[str, str] | None = None
) -> AsyncIterator[msgspec.Raw]:
    """Yield every item of a list, fetched in pages."""
    query = {"limit": str(_PAGE), **(selected or {})}
    while True:
        page = decoded(_RAW_PAGE.decode, await _got(transport, f"{path}?{urlencode(query)}", kind))
        for item in page.items or ():
            yield item
        if not page.metadata.rest:
            return
        query["continue"] = page.metadata.rest


async def _got(transport: Transport, path: str, kind: str) -> bytes:
    return await transport.send(HTTPMethod.GET, path, answers=kind, timeout_s=_ANSWER_S)
