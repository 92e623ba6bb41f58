"""A backlog of 50,000 pods: what a pod that waits takes of memory, and whether the last are bound as fast as the first.

    python -m e2e.bench.long_backlog                          2,000 nodes, 50,000 pods, into docs/evidence/benchmarks.md
    python -m e2e.bench.long_backlog --nodes 500 --pods 5000  a size of your own, printed only

One control plane, two starts of the scheduler. First there is no node: every pod is tried, and told so by a condition
and an Event; what the process has grown by meanwhile is what the pods take. Then the nodes are there, and every pod is
bound.
"""

import argparse
import asyncio
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, NamedTuple

import uvloop

from e2e.bench import document, figures, probed, process, workload
from e2e.bench.contenders import start_ours
from e2e.bench.observer import PODS, observing
from e2e.bench.probed import Holds
from e2e.bench.workload import NAMESPACE, Size
from e2e.control_plane import binaries
from e2e.control_plane.admin import Admin
from e2e.control_plane.cluster import ControlPlane
from e2e.control_plane.processes import Child

_SIZE: Final = Size(nodes=2000, pods=50_000, templates=50)
_LOOK_EVERY_S: Final = 0.05
_STALLED_AFTER_S: Final = 120.0
_SETTLED_S: Final = 2.0
_RATE_AT_LEAST: Final = 0.9
_TITLE: Final = "A backlog of {pods:,} pods"
_EXPLANATION: Final = """\
{pods:,} pods of {templates} templates wait on a real API server. First without any node: every pod is tried, and told
why it waits by a condition and an Event; memory is that of the scheduler's process, before the first pod was created
and when the last one was told. Then with {nodes:,} nodes, by a new process. A fifth is a fifth of the pods, by the
order in which they got a node. The CPU per pod is the scheduler's own.
"""


class Mark(NamedTuple):
    """So many pods had a node at that time, in `time.monotonic()`, and the process had used so much CPU."""

    bound: int
    at_s: float
    cpu_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class LongBacklogFigures:
    """MiB resident: empty_mib before the first pod, told_mib when all have been told why they wait."""

    pods: int
    empty_mib: float
    told_mib: float
    peak_mib: float
    marks: list[Mark] = field(repr=False)
    holds: Holds

    @property
    def kib_per_pod(self) -> float:
        """Memory per pod that waits."""
        return (self.told_mib - self.empty_mib) * 1024 / self.pods

    def fifth(self, number: int) -> tuple[float, float]:
        """(pods per second, milliseconds of CPU per pod) of the first fifth, 0, to the last, 4."""
        begin = next(mark for mark in self.marks if mark.bound >= max(1, self.pods * number // 5))
        end = next(mark for mark in self.marks if mark.bound >= self.pods * (number + 1) // 5)
        bound = end.bound - begin.bound
        return bound / (end.at_s - begin.at_s), (end.cpu_s - begin.cpu_s) / bound * 1e3


def main(arguments: list[str] | None = None) -> int:
    """Measure, print the table, write it where asked."""
    parser = argparse.ArgumentParser(prog="python -m e2e.bench.long_backlog", description="Measure a long backlog.")
    parser.add_argument("--nodes", type=int, help="a size of your own, printed only")
    parser.add_argument("--pods", type=int, default=5000, help="with --nodes")
    chosen = parser.parse_args(arguments)
    size = Size(chosen.nodes, chosen.pods, _SIZE.templates) if chosen.nodes else _SIZE
    binaries.ensure(["etcd", "kube-apiserver"])
    measured = rows(measure(size))
    title = _TITLE.format(pods=size.pods)
    explained = _EXPLANATION.format(pods=size.pods, templates=size.templates, nodes=size.nodes)
    figures.report("long-backlog", title, explained, measured, written=chosen.nodes is None)
    return 0


def rows(of: LongBacklogFigures) -> list[tuple[str, str, str]]:
    """Figure, measured, must reach."""
    (first, first_ms), (last, last_ms) = of.fifth(0), of.fifth(4)
    return [
        ("resident memory before the first pod", f"{of.empty_mib:,.0f} MiB", ""),
        ("when all have been told why they wait", f"{of.told_mib:,.0f} MiB", ""),
        ("per pod that waits", f"{of.kib_per_pod:.1f} KiB", ""),
        ("largest, while they are bound", f"{of.peak_mib:,.0f} MiB", ""),
        ("pods bound per second, first fifth", f"{first:,.0f}", ""),
        ("pods bound per second, last fifth", f"{last:,.0f}", ""),
        (
            "rate in the last fifth ÷ in the first",
            f"{last / first:.2f}",
            figures.at_least(last / first, _RATE_AT_LEAST),
        ),
        ("CPU of the scheduler per pod, first fifth", f"{first_ms:.2f} ms", ""),
        ("CPU of the scheduler per pod, last fifth", f"{last_ms:.2f} ms", ""),
        of.holds.row("while they are bound"),
    ]


def measure(size: Size) -> LongBacklogFigures:
    """Both starts, on one control plane. Raises TimeoutError when nothing moves any more."""
    with (
        ControlPlane(load_tuned=True) as cluster,
        asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner,
    ):
        return runner.run(_measured(cluster, size))


async def _measured(cluster: ControlPlane, size: Size) -> LongBacklogFigures:
    async with Admin(cluster.access()) as admin:
        await admin.create("/api/v1/namespaces", {"metadata": {"name": NAMESPACE}})
        empty_mib, told_mib = await _told(cluster, admin, size)
        document.tell(
            f"{size.pods:,} pods wait and have been told why: {empty_mib:,.0f} MiB before, {told_mib:,.0f} MiB now"
        )
        await admin.create_all("/api/v1/nodes", workload.nodes(size))
        marks, peak_mib = await _bound(cluster, admin, size)
        document.tell(f"all are bound, in {marks[-1].at_s - marks[0].at_s:,.1f} s")
    memory = {"empty_mib": empty_mib, "told_mib": told_mib, "peak_mib": peak_mib}
    return LongBacklogFigures(pods=size.pods, marks=marks, holds=probed.read(_holds_path(cluster)), **memory)


def _holds_path(cluster: ControlPlane) -> Path:
    return cluster.folder / "holds.json"


async def _told(cluster: ControlPlane, admin: Admin, size: Size) -> tuple[float, float]:
    """Resident memory without a pod, and with all of them waiting and told why."""
    child = start_ours(cluster)
    try:
        async with observing(admin, 0) as observer:
            await admin.create(PODS, workload.cpu_pod("first"))
            await _moving(child, lambda: len(observer.told), 1)
            await asyncio.sleep(_SETTLED_S)
            empty_mib = process.resident_mib(child.pid)
            await admin.create_all(PODS, workload.pods(size))
            await _moving(child, lambda: len(observer.told), size.pods + 1)
            await asyncio.sleep(_SETTLED_S)
            return empty_mib, process.resident_mib(child.pid)
    finally:
        child.stop()


async def _bound(cluster: ControlPlane, admin: Admin, size: Size) -> tuple[list[Mark], float]:
    """How it went, and the largest resident memory."""
    marks: list[Mark] = []
    async with observing(admin, size.pods) as observer:
        child = start_ours(cluster, holds=_holds_path(cluster))

        def bound() -> int:
            number = len(observer.bound)
            if number and (not marks or number > marks[-1].bound):
                marks.append(Mark(number, time.monotonic(), process.cpu_s(child.pid)))
            return number

        try:
            await _moving(child, bound, size.pods + 1)
            return marks, process.peak_mib(child.pid)
        finally:
            child.stop()


async def _moving(child: Child, number: Callable[[], int], wanted: int) -> None:
    """Wait for that number, as long as it grows. Raises TimeoutError."""
    last, moved_s = -1, time.monotonic()
    while (now := number()) < wanted:
        if now > last:
            last, moved_s = now, time.monotonic()
        elif time.monotonic() - moved_s > _STALLED_AFTER_S:
            message = f"{now} of {wanted} pods, then nothing moved"
            raise TimeoutError(message)
        child.check_alive()
        await asyncio.sleep(_LOOK_EVERY_S)


if __name__ == "__main__":
    sys.exit(main())
