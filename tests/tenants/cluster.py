"""The cluster that tenants share, and the scheduler's connection to it.

What the scheduler is told comes as bytes, so that it reads and decodes them as it does those of an API server; what the
cluster itself works takes no time.
"""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import aclosing
from typing import Any, Final, cast

import msgspec

from e2e.bench import workload
from scheduler.kube import objects
from scheduler.kube.port import STORAGE_CLASSES, Binding, Changed, Deleted, Kind, T, WatchEvent
from scheduler.kube.rest.decoding import Decoder
from scheduler.testing.cluster.cluster import MemoryCluster
from scheduler.testing.cluster.faults import RequestFault
from scheduler.testing.cluster.world import World
from tests.support.clocks.working_time import working_loop
from tests.support.service.process import EPOCH_S
from tests.support.service.wire import CountedWrites
from tests.support.volumes import storage_class

# Of an API server with its etcd on an SSD: from a request to its answer, and from a write to those who watch.
ANSWERS_AFTER_S: Final = 0.01
TELLS_AFTER_S: Final = 0.002
# A storage class whose provisioner makes no volume, ever.
SLOW: Final = "slow"


def cluster(nodes: int) -> World:
    """So many nodes of eight cards of 79 units each, and the class `SLOW`."""
    loop = working_loop()
    of = World(lambda: EPOCH_S + loop.time())
    for manifest in workload.nodes(workload.Size(nodes=nodes, pods=1, templates=1)):
        of.nodes.add(msgspec.convert(manifest, objects.Node))
    of.storage.create(STORAGE_CLASSES, storage_class(SLOW))
    return of


class Connection(MemoryCluster):
    """The scheduler's client; `faults` counts its writes. bound: bindings that were answered well, by uid."""

    faults: CountedWrites

    def __init__(self, world: World) -> None:
        super().__init__(world, faults=CountedWrites(), latency_s=ANSWERS_AFTER_S)
        self.bound: dict[str, Binding] = {}

    async def watch(self, kind: Kind[T], since: str | None) -> AsyncIterator[list[WatchEvent[T]]]:
        decoder, loop = Decoder(kind), working_loop()
        async with aclosing(cast("Any", super().watch(kind, since))) as batches:
            async for batch in batches:
                await asyncio.sleep(TELLS_AFTER_S)
                with loop.paused():
                    lines = [_line(event) for event in batch]
                yield [
                    event if line is None else decoder.watched(line) for event, line in zip(batch, lines, strict=True)
                ]

    async def bind(self, binding: Binding, timeout_s: float) -> None:
        await super().bind(binding, timeout_s)
        self.bound[binding.pod.uid] = binding

    async def _answer(
        self, fault: RequestFault | None, act: Callable[[], Any], timeout_s: float, binding: Binding | None = None
    ) -> Any:  # noqa: ANN401 - of whatever request
        def executed() -> Any:  # noqa: ANN401 - as above
            with working_loop().paused():
                return act()

        return await super()._answer(fault, executed, timeout_s, binding)


def _line(event: WatchEvent[Any]) -> bytes | None:
    """As a watch of an API server sends it; None for what is no object."""
    match event:
        case Changed(found):
            return msgspec.json.encode({"type": "MODIFIED", "object": found})
        case Deleted(gone):
            return msgspec.json.encode({"type": "DELETED", "object": gone})
    return None
