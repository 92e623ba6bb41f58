"""How near the scheduler comes to what its own client can do: pods bound per second, ours ÷ bare Binding POSTs.

    python -m e2e.bench.ceiling                             1,000 and 5,000 nodes, into docs/benchmarks.md
    python -m e2e.bench.ceiling --nodes 200 --pods 1000     a size of your own, printed only

Both on fresh servers, in turn.
"""

import argparse
import asyncio
import statistics
import sys
from collections.abc import Sequence
from typing import Final

import uvloop

from e2e.bench import figures, race, report, workload
from e2e.bench.contenders import OURS
from e2e.bench.observer import PODS, Observer
from e2e.bench.rows import Row
from e2e.bench.workload import NAMESPACE, Size
from e2e.control_plane import binaries
from e2e.control_plane.admin import Admin
from e2e.control_plane.cluster import ControlPlane
from e2e.control_plane.processes import start
from e2e.programs.scheduler_process import environment

_SIZES: Final = (Size(nodes=1000, pods=5000, templates=1), Size(nodes=5000, pods=5000, templates=1))
_RUNS: Final = 2
_AT_LEAST: Final = 0.85
_BOUND_WITHIN_S: Final = 120.0
_LOOK_EVERY_S: Final = 0.02
_TITLE: Final = "Beside bare Binding POSTs"
_EXPLANATION: Final = """\
The same backlog as in the races, bound by the scheduler, and by a process that only sends Bindings with the scheduler's
client: no watch, no decision, no Event, 64 in flight. Rate: from the first pod that a separate watch sees with a node
to the last. On fresh servers in turn, medians of {runs} runs each (minimum - maximum).
"""


def main(arguments: list[str] | None = None) -> int:
    """Measure, print the table, write it where asked. Exit code: 1 when what the scheduler did is wrong."""
    parser = argparse.ArgumentParser(prog="python -m e2e.bench.ceiling", description="Ours ÷ bare Binding POSTs.")
    parser.add_argument("--nodes", type=int, help="a size of your own, printed only")
    parser.add_argument("--pods", type=int, default=5000, help="with --nodes")
    parser.add_argument("--runs", type=int, default=_RUNS)
    chosen = parser.parse_args(arguments)
    binaries.ensure(["etcd", "kube-apiserver"])
    sizes = [Size(chosen.nodes, chosen.pods, 1)] if chosen.nodes else [*_SIZES]
    measured: list[tuple[str, str, str]] = []
    wrong: list[str] = []
    for size in sizes:
        ours, bare = [], []
        for _ in range(chosen.runs):
            bare.append(bare_rate(size))
            run = race.run(OURS, Row(size=size))
            wrong += report.problems(run)
            ours.append(run.pods_per_s)
        measured += rows(size, ours, bare)
    figures.show(_TITLE, figures.MUST_REACH, measured)
    if chosen.nodes is None:
        figures.write("ceiling", _TITLE, _EXPLANATION.format(runs=chosen.runs), figures.MUST_REACH, measured)
    for problem in wrong:
        sys.stderr.write(f"WRONG: {problem}\n")
    return 1 if wrong else 0


def rows(size: Size, ours: Sequence[float], bare: Sequence[float]) -> list[tuple[str, str, str]]:
    """Figure, measured, must reach. ours, bare: pods per second of each run."""
    ratio = statistics.median(ours) / statistics.median(bare)
    said = "reached" if ratio >= _AT_LEAST else "**missed**"
    return [
        (f"{size.nodes:,} nodes: the scheduler, pods per second", _spread(ours), ""),
        (f"{size.nodes:,} nodes: bare Binding POSTs, per second", _spread(bare), ""),
        (f"{size.nodes:,} nodes: ours ÷ bare", f"{ratio:.2f}", f"≥ {_AT_LEAST}, {said}"),
    ]


def _spread(rates: Sequence[float]) -> str:
    return f"{statistics.median(rates):,.0f} ({min(rates):,.0f} - {max(rates):,.0f})"


def bare_rate(size: Size) -> float:
    """Pods per second, on a fresh control plane. Raises TimeoutError."""
    with (
        ControlPlane(load_tuned=True) as cluster,
        asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner,
    ):
        return runner.run(_bare(cluster, size))


async def _bare(cluster: ControlPlane, size: Size) -> float:
    observer = Observer(size.pods)
    async with Admin(cluster.access()) as admin:
        await admin.create("/api/v1/namespaces", {"metadata": {"name": NAMESPACE}})
        await admin.create_all("/api/v1/nodes", workload.nodes(size))
        await admin.create_all(PODS, workload.pods(size))
        async with asyncio.TaskGroup() as tasks:
            watching = tasks.create_task(observer.watch_pods(admin))
            await observer.caught_up.wait()
            what = [str(cluster.kubeconfig_path()), *map(str, (size.nodes, size.pods, size.templates))]
            command = [sys.executable, "-m", "e2e.bench.bare_binder", *what]
            child = start("bare_binder", command, cluster.folder / "bare.log", environment(cluster.folder))
            try:
                async with asyncio.timeout(_BOUND_WITHIN_S):
                    while len(observer.bound) < size.pods:  # noqa: ASYNC110 - looks on from outside
                        await asyncio.sleep(_LOOK_EVERY_S)
            finally:
                child.stop()
            watching.cancel()
    return (size.pods - 1) / (observer.last_s - observer.first_s)


if __name__ == "__main__":
    sys.exit(main())
