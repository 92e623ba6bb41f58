"""How long a scheduler takes to start in a big cluster that is in use, and what memory it then has.

    python -m e2e.bench.full_start                     5,000 nodes, 50,000 bound pods, into docs/evidence/benchmarks.md
    python -m e2e.bench.full_start --nodes 500 --pods 2000   a size of your own, printed only

The pods have their nodes and cards from the beginning. One more pod waits: a scheduler has started when that pod has a
node. Ours is also asked for `/readyz`, without a pause.
"""

import argparse
import asyncio
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

import uvloop

from config.protocol import names
from e2e.bench import figures, probed, process, workload
from e2e.bench.contenders import CONTENDERS, OURS, YARDSTICK, start_ours
from e2e.bench.observer import PODS
from e2e.bench.probed import Holds
from e2e.bench.workload import CARDS_PER_NODE, NAMESPACE, Size
from e2e.control_plane import binaries, readiness
from e2e.control_plane.admin import Admin, seen
from e2e.control_plane.cluster import ControlPlane
from e2e.control_plane.processes import Child, free_ports

_SIZE: Final = Size(nodes=5000, pods=50_000, templates=50)
_READY_WITHIN_S: Final = 6.0
_MEMORY_AT_MOST: Final = 0.8
_STARTED_WITHIN_S: Final = 120.0
_SETTLED_S: Final = 10.0
_TITLE: Final = "A start in a big cluster"
_EXPLANATION: Final = """\
{nodes:,} nodes with {pods:,} pods of {templates} templates on them, and one pod that waits. From the start of the
process to that pod's node, in seconds; ours also to the first 200 of `/readyz`. Memory: resident, {settled:.0f} s after
that. Both schedulers on the same servers, one run each. The event loop of ours has a probe of 1 ms in it; how long it
is held is time of the processor, from its first turn.
"""


@dataclass(frozen=True, slots=True)
class Start:
    """Seconds from the start of the process. ready_s: 0.0 where nobody asked. resident_mib: some time later."""

    ready_s: float
    bound_s: float
    resident_mib: float


def main(arguments: list[str] | None = None) -> int:
    """Measure, print the table, write it where asked."""
    parser = argparse.ArgumentParser(prog="python -m e2e.bench.full_start", description="Measure a start.")
    parser.add_argument("--nodes", type=int, help="a size of your own, printed only")
    parser.add_argument("--pods", type=int, default=2000, help="with --nodes")
    chosen = parser.parse_args(arguments)
    size = Size(chosen.nodes, chosen.pods, _SIZE.templates) if chosen.nodes else _SIZE
    binaries.ensure(["etcd", "kube-apiserver", "kube-scheduler"])
    measured = rows(*measure(size))
    explained = _EXPLANATION.format(nodes=size.nodes, pods=size.pods, templates=size.templates, settled=_SETTLED_S)
    figures.report("full-start", _TITLE, explained, measured, written=chosen.nodes is None)
    return 0


def rows(ours: Start, theirs: Start, holds: Holds) -> list[tuple[str, str, str]]:
    """Figure, measured, must reach."""
    memory = ours.resident_mib / theirs.resident_mib
    return [
        ("to `/readyz`, ours", f"{ours.ready_s:.1f} s", figures.at_most(ours.ready_s, _READY_WITHIN_S, " s")),
        ("to the first pod bound, ours", f"{ours.bound_s:.1f} s", ""),
        ("to the first pod bound, kube-scheduler", f"{theirs.bound_s:.1f} s", ""),
        ("ours ÷ kube-scheduler's", f"{ours.bound_s / theirs.bound_s:.2f}", ""),
        ("resident memory, ours", f"{ours.resident_mib:,.0f} MiB", ""),
        ("resident memory, kube-scheduler", f"{theirs.resident_mib:,.0f} MiB", ""),
        ("ours ÷ kube-scheduler's", f"{memory:.2f}", figures.at_most(memory, _MEMORY_AT_MOST)),
        holds.row("ours"),
    ]


def measure(size: Size) -> tuple[Start, Start, Holds]:
    """Ours and kube-scheduler, one after the other on the same control plane; how long ours held its event loop.

    Raises NotSeen.
    """
    with (
        ControlPlane(load_tuned=True) as cluster,
        asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner,
    ):
        return runner.run(_measured(cluster, size))


async def _measured(cluster: ControlPlane, size: Size) -> tuple[Start, Start, Holds]:
    async with Admin(cluster.access()) as admin:
        await admin.create("/api/v1/namespaces", {"metadata": {"name": NAMESPACE}})
        await admin.create_all("/api/v1/nodes", workload.nodes(size))
        await admin.create_all(PODS, running(size))
        (port,), holds = free_ports(1), cluster.folder / "holds.json"
        ours = await _started(admin, OURS, lambda: start_ours(cluster, port, holds), port)
        theirs = await _started(admin, YARDSTICK, lambda: CONTENDERS[YARDSTICK](cluster), None)
    return ours, theirs, probed.read(holds)


async def _started(admin: Admin, name: str, start: Any, port: int | None) -> Start:  # noqa: ANN401 - () -> Child
    await admin.create(PODS, workload.cpu_pod(f"first-{name}"))
    began_s = time.monotonic()
    child: Child = start()
    try:
        becoming_ready = asyncio.create_task(_ready_s(child, port))
        query = {"fieldSelector": f"metadata.name=first-{name}"}
        await seen(admin, PODS, lambda pod: "nodeName" in pod["spec"], query, within_s=_STARTED_WITHIN_S)
        bound_s = time.monotonic() - began_s
        ready_s = await becoming_ready - began_s if port is not None else 0.0
        await asyncio.sleep(_SETTLED_S)
        return Start(ready_s, bound_s, process.resident_mib(child.pid))
    finally:
        child.stop()


async def _ready_s(child: Child, port: int | None) -> float:
    if port is not None:
        await asyncio.to_thread(readiness.wait_until, child, readiness.missing_at_http(port, "/readyz"))
    return time.monotonic()


def running(size: Size) -> Iterator[dict[str, Any]]:
    """The pods of the workload, as bound: in turn over the nodes, card after card."""
    for number, pod in enumerate(workload.pods(size)):
        node, turn = number % size.nodes, number // size.nodes
        (units,) = _units(pod)
        pod["spec"]["nodeName"] = f"gpu-node-{node:05d}"
        pod["metadata"]["annotations"] |= {
            names.MEM_IDX: str(turn % CARDS_PER_NODE),
            names.MEM_POD: str(units),
            names.UNIT_MIB: "1024",
        }
        yield pod


def _units(pod: dict[str, Any]) -> list[int]:
    limits = [container["resources"].get("limits", {}) for container in pod["spec"]["containers"]]
    return [int(limit[names.GPU_MEM]) for limit in limits if names.GPU_MEM in limit]


if __name__ == "__main__":
    sys.exit(main())
