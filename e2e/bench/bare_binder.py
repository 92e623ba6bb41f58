"""Binds pods by our client and does nothing else: what no scheduler that uses it can exceed.

    python -m e2e.bench.bare_binder KUBECONFIG NODES PODS TEMPLATES

The pods and nodes of `workload`, pod after pod to the next node, 64 requests in flight, with annotations as ours writes
them. No watch, no decision, no Event.
"""

import asyncio
import random
import sys
from collections.abc import Iterator
from http import HTTPMethod
from pathlib import Path
from typing import Final

import msgspec
import uvloop

from config.protocol import names
from e2e.bench.observer import PODS
from e2e.bench.workload import NAMESPACE, Size
from scheduler.kube import port
from scheduler.kube.rest.client import ClientOptions, KubeCluster
from scheduler.kube.rest.client_config.connect import connect
from scheduler.kube.rest.transport import Transport

_IN_FLIGHT: Final = 64
_TIMEOUT_S: Final = 30.0


class _Meta(msgspec.Struct):
    name: str
    uid: str


class _Item(msgspec.Struct):
    metadata: _Meta


class _List(msgspec.Struct):
    items: list[_Item]


async def bind_all(kubeconfig: Path, size: Size) -> None:
    """Bind every pod. Raises ApiError."""
    connection = await connect({}, kubeconfig=kubeconfig)
    transport = Transport(connection, 1)
    body = await transport.send(HTTPMethod.GET, PODS, answers="PodList", timeout_s=_TIMEOUT_S)
    await transport.close()
    pods = iter(msgspec.json.decode(body, type=_List).items)
    # The rng only spreads the ends of watches.
    cluster = KubeCluster(connection, random.Random(0), ClientOptions(connections=_IN_FLIGHT))  # noqa: S311
    nodes = _in_turn(size.nodes)

    async def one_after_the_other() -> None:
        for pod in pods:
            key = port.PodKey(NAMESPACE, pod.metadata.name, pod.metadata.uid)
            await asyncio.create_task(cluster.bind(port.Binding(key, next(nodes), _ANNOTATIONS), _TIMEOUT_S))

    async with asyncio.TaskGroup() as tasks:
        for _ in range(_IN_FLIGHT):
            tasks.create_task(one_after_the_other())
    await cluster.close()


def _in_turn(nodes: int) -> Iterator[str]:
    while True:
        yield from (f"gpu-node-{number:05d}" for number in range(nodes))


_ANNOTATIONS: Final = {
    names.MEM_IDX: "0",
    names.MEM_POD: "8",
    names.UNIT_MIB: "1024",
    names.CARDS: '{"0":"GPU-01234567-89ab-cdef-0123-456789abcdef"}',
    names.ALLOCATION: '{"server":{"0":8}}',
}


if __name__ == "__main__":
    uvloop.run(bind_all(Path(sys.argv[1]), Size(*map(int, sys.argv[2:5]))))
