"""The legacy extender's HTTP inspect API: which pod holds how much of which card, from the tables, as JSON.

    request ──▶ node after node, in slices ──▶ cached for a second, for all clients
                └ 3 ms of work, 27 ms of rest: requests delay no decision

docs/inspect.md, "Over HTTP", describes paths and format; numbers are the scheduler's bookings.
"""

import asyncio
import time
from collections.abc import Callable, Iterator, Sequence
from http import HTTPStatus
from typing import Final

import msgspec

from scheduler.process.documents import HttpBody, SharedAnswer
from scheduler.state.tables import Tables

PATH: Final = "/gpushare-scheduler/inspect"
_KEPT_S: Final = 1.0
_SLICE_S: Final = 0.003
_RESTS: Final = 9
# Time between two readings of the clock.
_PODS: Final = 64
# Pieces of a large answer are sent one at a time.
_NODES_OF_A_PIECE: Final = 64


class _Pod(msgspec.Struct):
    name: str
    namespace: str
    used: int = msgspec.field(name="usedGPU")


class _Device(msgspec.Struct):
    id: int
    total: int = msgspec.field(name="totalGPU")
    used: int = msgspec.field(name="usedGPU")
    pods: list[_Pod]


class _Node(msgspec.Struct):
    name: str
    total: int = msgspec.field(name="totalGPU")
    used: int = msgspec.field(name="usedGPU")
    devs: list[_Device]


class _Failed(msgspec.Struct):
    error: str
    nodes: list[_Node] = []


_ENCODE: Final = msgspec.json.Encoder().encode


class InspectApi:
    """Inspect API of one scheduler, with cached answers. Owned by the event loop."""

    def __init__(self, tables: Tables, not_ready: Callable[[], str]) -> None:
        """not_ready: why the tables do not match the cluster; "" if they do."""
        self._tables = tables
        self._not_ready = not_ready
        self._all = SharedAnswer(self._nodes, _KEPT_S)

    async def answer(self, node: str) -> HttpBody:
        """Return the answer for one node, or for all nodes if `node` is ""."""
        if reason := self._not_ready():
            return _failed(reason, HTTPStatus.SERVICE_UNAVAILABLE)
        if not node:
            return HttpBody(await self._all.get())
        if node not in self._tables.row_of:
            return _failed(f"there is no node {node}", HTTPStatus.NOT_FOUND)
        found = await _in_slices(_node(self._tables, node))
        return HttpBody([b'{"nodes":[', *found, b"]}"])

    async def _nodes(self) -> Sequence[bytes]:
        bodies = await _in_slices(part for name in list(self._tables.row_of) for part in _node(self._tables, name))
        pieces = [b",".join(bodies[at : at + _NODES_OF_A_PIECE]) for at in range(0, len(bodies), _NODES_OF_A_PIECE)]
        between = [part for piece in pieces for part in (b",", piece)]
        return [b'{"nodes":[', *between[1:], b"]}"]


def _failed(error: str, status: HTTPStatus) -> HttpBody:
    return HttpBody([_ENCODE(_Failed(error))], status)


async def _in_slices(parts: Iterator[bytes]) -> list[bytes]:
    """Collect all non-empty parts. An empty part only gives a chance to read the clock."""
    found, began_s = list[bytes](), time.perf_counter()
    for part in parts:
        if part:
            found.append(part)
        worked_s = time.perf_counter() - began_s
        if worked_s >= _SLICE_S:
            await asyncio.sleep(worked_s * _RESTS)
            began_s = time.perf_counter()
    return found


def _node(tables: Tables, name: str) -> Iterator[bytes]:
    """Yield the JSON of a node with cards; nothing for another node or a deleted one."""
    row = tables.row_of.get(name)
    if row is None or not tables.cards.slots[row]:
        return
    slots = list(tables.cards.slots[row])
    units = tables.cards.stored.units[: len(slots), row].tolist()
    pods: list[list[_Pod]] = [[] for _ in slots]
    for count, record in enumerate(tables.records_on(name)):
        if count % _PODS == _PODS - 1:
            yield b""
        if record.held is None or record.nominated:
            continue
        for slot, own in record.held.places:
            if slot < len(pods):  # the node lost cards during a pause
                pods[slot].append(_Pod(record.pod.key.name, record.pod.key.namespace, own))
    devices = [
        _Device(slot.card.index, total, sum(pod.used for pod in on), on)
        for slot, total, on in zip(slots, units, pods, strict=True)
    ]
    yield _ENCODE(_Node(name, sum(units), sum(device.used for device in devices), devices))
