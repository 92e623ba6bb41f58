"""Every change of every node and pod, and of the Lease, one by one and in order, from etcd itself.

    what there is at revision r --watch r+1--> changes in order --connection lost--> the same from the last one + 1

Not from the API server: one that starts again has forgotten what happened before, and answers 410; a watch cache has
faults of its own; and nodes and pods would be two watches without an order between them. etcd has one order for both,
and keeps every revision until it is compacted. The keys of all lie in one range. Objects must be stored as JSON
(not so with `ControlPlane(load_tuned=True)`). Source of the protocol: etcd.io/docs/v3.6/dev-guide/api_grpc_gateway.
"""

import asyncio
import base64
from collections.abc import AsyncGenerator, Callable
from typing import Final

import aiohttp
import msgspec

from e2e.fire.witness import Change, Witness

_LEASE: Final = b"/registry/leases/kube-system/gpushare-scheduler"
_NODES: Final = b"/registry/minions/"
_PODS: Final = b"/registry/pods/"
_END: Final = b"/registry/pods0"
_AGAIN_AFTER_S: Final = 0.05


class SetUpFailed(Exception):
    """The recording is not complete: nothing that the witness says counts."""


class _KeyValue(msgspec.Struct):
    key: str = ""
    value: str = ""
    mod_revision: str = "0"


class _Event(msgspec.Struct):
    kv: _KeyValue
    type: str = "PUT"
    prev_kv: _KeyValue | None = None


class _Result(msgspec.Struct):
    events: list[_Event] = []
    canceled: bool = False
    compact_revision: str = "0"


class _Header(msgspec.Struct):
    revision: str = "0"


class _Range(msgspec.Struct):
    header: _Header
    kvs: list[_KeyValue] = []


class _Line(msgspec.Struct):
    result: _Result | None = None
    error: object = None


class Recording:
    """Hands the witness every change while `follow` runs. happened: how many there were."""

    def __init__(self, etcd_url: str, witness: Witness) -> None:
        self.witness = witness
        self.happened = 0
        self._url = etcd_url
        self._next = 0
        self._changed = asyncio.Condition()

    async def follow(self) -> None:
        """Take what there is, then watch; go on where it was after a connection is lost. Raises SetUpFailed."""
        decoder = msgspec.json.Decoder(_Line)
        while True:
            try:
                if not self._next:
                    await self._begin()
                async for line in self._lines():
                    await self._take(decoder.decode(line))
            except (aiohttp.ClientError, OSError):
                await asyncio.sleep(_AGAIN_AFTER_S)

    async def until(self, holds: Callable[[], bool], *, within_s: float) -> None:
        """Return as soon as it holds. Raises TimeoutError."""
        async with asyncio.timeout(within_s), self._changed:
            await self._changed.wait_for(holds)

    async def _begin(self) -> None:
        async with (
            aiohttp.ClientSession() as session,
            session.post(f"{self._url}/v3/kv/range", json=_all()) as response,
        ):
            found = msgspec.json.decode(await response.read(), type=_Range)
        for stored in sorted(found.kvs, key=lambda kv: int(kv.mod_revision)):
            self._hand_on(_Event(stored))
        self._next = int(found.header.revision) + 1

    async def _lines(self) -> AsyncGenerator[bytes, None]:
        asked = {**_all(), "start_revision": str(self._next), "prev_kv": True}
        timeout = aiohttp.ClientTimeout(total=None, sock_connect=5.0)
        async with (
            aiohttp.ClientSession(timeout=timeout) as session,
            session.post(f"{self._url}/v3/watch", json={"create_request": asked}) as response,
        ):
            unfinished: list[bytes] = []
            async for chunk in response.content.iter_any():
                first, *others = chunk.split(b"\n")
                unfinished.append(first)
                if others:
                    yield b"".join(unfinished)
                    *whole, last = others
                    unfinished = [last]
                    for line in whole:
                        yield line

    async def _take(self, line: _Line) -> None:
        if line.error is not None or line.result is None:
            raise aiohttp.ClientError(str(line.error))
        if line.result.canceled or line.result.compact_revision != "0":
            message = f"etcd does not have everything since {self._next}: {line.result}"
            raise SetUpFailed(message)
        for event in line.result.events:
            self._hand_on(event)
            self._next = int(event.kv.mod_revision) + 1
        async with self._changed:
            self._changed.notify_all()

    def _hand_on(self, event: _Event) -> None:
        if (change := _change(event)) is not None:
            self.witness.take(change)
            self.happened += 1


def _all() -> dict[str, object]:
    return {"key": base64.b64encode(_LEASE).decode(), "range_end": base64.b64encode(_END).decode()}


def _change(event: _Event) -> Change | None:
    key, gone = base64.b64decode(event.kv.key), event.type == "DELETE"
    kind = "lease" if key == _LEASE else "node" if key.startswith(_NODES) else "pod"
    if kind == "pod" and not key.startswith(_PODS):
        return None
    stored = event.prev_kv if gone else event.kv
    if stored is None:
        message = f"etcd does not say what {key.decode()} was before it went"
        raise SetUpFailed(message)
    return Change(int(event.kv.mod_revision), kind, gone, msgspec.json.decode(base64.b64decode(stored.value)))
