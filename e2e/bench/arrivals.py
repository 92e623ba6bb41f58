"""Pods that arrive one by one: how long each waits from its creation to its node, beside kube-scheduler.

    python -m e2e.bench.arrivals                                1,000 and 5,000 nodes, into docs/evidence/benchmarks.md
    python -m e2e.bench.arrivals --nodes 200 --seconds 5        a size of your own, printed only

100 pods a second, for half a minute.
"""

import argparse
import asyncio
import itertools
import statistics
import sys
import time
from dataclasses import dataclass
from typing import Final

import uvloop

from e2e.bench import figures, probed, workload
from e2e.bench.contenders import CONTENDERS, OURS, YARDSTICK, start_ours
from e2e.bench.observer import PODS, Observer, observing
from e2e.bench.probed import Holds
from e2e.bench.workload import NAMESPACE, Json, Size
from e2e.control_plane import binaries
from e2e.control_plane.admin import Admin
from e2e.control_plane.cluster import ControlPlane
from e2e.control_plane.processes import Child

PER_SECOND: Final = 100
_NODES: Final = (1000, 5000)
_SECONDS: Final = 30
_STARTED_WITHIN_S: Final = 60.0
_BOUND_WITHIN_S: Final = 60.0
_LOOK_EVERY_S: Final = 0.02
_TITLE: Final = "Pods that arrive one by one"
_EXPLANATION: Final = """\
{per_second} pods a second arrive for {seconds} s at a scheduler that runs; from the request that creates a pod to the
watch event that shows it with a node, as a third process sees both. Fresh servers for each run, one run each. How long
the event loop is held is time of the processor, with a probe of 1 ms in the loop.
"""


@dataclass(frozen=True, slots=True)
class Waits:
    """Milliseconds from creation to node. holds: of the event loop, where it was probed."""

    p50: float
    p99: float
    holds: Holds | None = None

    def __str__(self) -> str:
        return f"{self.p50:.0f} / {self.p99:.0f}"


def main(arguments: list[str] | None = None) -> int:
    """Measure, print the table, write it where asked."""
    parser = argparse.ArgumentParser(prog="python -m e2e.bench.arrivals", description="Measure pods that arrive.")
    parser.add_argument("--nodes", type=int, help="a size of your own, printed only")
    parser.add_argument("--seconds", type=int, default=_SECONDS)
    chosen = parser.parse_args(arguments)
    binaries.ensure(["etcd", "kube-apiserver", "kube-scheduler"])
    sizes = [chosen.nodes] if chosen.nodes else [*_NODES]
    measured = list(itertools.chain.from_iterable(rows(nodes, chosen.seconds) for nodes in sizes))
    explained = _EXPLANATION.format(per_second=PER_SECOND, seconds=chosen.seconds)
    figures.report("arrivals", _TITLE, explained, measured, written=chosen.nodes is None)
    return 0


def rows(nodes: int, seconds: int) -> list[tuple[str, str, str]]:
    """Measure, and say it."""
    ours, theirs = (measure(name, nodes, seconds) for name in (OURS, YARDSTICK))
    p50, p99 = ours.p50 / theirs.p50, ours.p99 / theirs.p99
    return [
        (f"{nodes:,} nodes, {OURS}: p50 / p99, ms", str(ours), ""),
        (f"{nodes:,} nodes, {YARDSTICK}: p50 / p99, ms", str(theirs), ""),
        (f"{nodes:,} nodes, p50: ours ÷ kube-scheduler's", f"{p50:.2f}", figures.at_most(p50, 1.0)),
        (f"{nodes:,} nodes, p99: ours ÷ kube-scheduler's", f"{p99:.2f}", figures.at_most(p99, 1.0)),
        *([ours.holds.row(f"{nodes:,} nodes, {OURS}")] if ours.holds else []),
    ]


def measure(scheduler: str, nodes: int, seconds: int) -> Waits:
    """One run on a fresh control plane. Raises TimeoutError."""
    with (
        ControlPlane(load_tuned=True) as cluster,
        asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner,
    ):
        return runner.run(_measured(cluster, scheduler, Size(nodes, PER_SECOND * seconds, 1)))


async def _measured(cluster: ControlPlane, scheduler: str, size: Size) -> Waits:
    holds = cluster.folder / "holds.json"
    async with Admin(cluster.access()) as admin:
        await admin.create("/api/v1/namespaces", {"metadata": {"name": NAMESPACE}})
        await admin.create_all("/api/v1/nodes", workload.nodes(size))
        is_ours = scheduler == OURS
        child = start_ours(cluster, holds=holds) if is_ours else CONTENDERS[scheduler](cluster)
        try:
            async with observing(admin, 0) as observer:
                await admin.create(PODS, workload.cpu_pod("first"))
                await _until_bound(child, observer, 1, _STARTED_WITHIN_S)
                created = await _arrive(admin, size)
                await _until_bound(child, observer, size.pods + 1, _BOUND_WITHIN_S)
        finally:
            child.stop()
    waits_ms = [(observer.bound[name] - at_s) * 1e3 for name, at_s in created.items()]
    p50, p99 = statistics.median(waits_ms), statistics.quantiles(waits_ms, n=100)[-1]
    return Waits(p50, p99, probed.read(holds) if is_ours else None)


async def _arrive(admin: Admin, size: Size) -> dict[str, float]:
    """Create the pods at their times; when each request was sent, by name."""
    created: dict[str, float] = {}

    async def create(pod: Json) -> None:
        created[pod["metadata"]["name"]] = time.monotonic()
        await admin.create(PODS, pod)

    began_s = time.monotonic()
    async with asyncio.TaskGroup() as tasks:
        for number, pod in enumerate(workload.pods(size)):
            await asyncio.sleep(max(0.0, began_s + number / PER_SECOND - time.monotonic()))
            tasks.create_task(create(pod))
    return created


async def _until_bound(child: Child, observer: Observer, pods: int, within_s: float) -> None:
    async with asyncio.timeout(within_s):
        while len(observer.bound) < pods:
            child.check_alive()
            await asyncio.sleep(_LOOK_EVERY_S)


if __name__ == "__main__":
    sys.exit(main())
