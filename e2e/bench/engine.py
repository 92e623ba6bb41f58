"""The engine alone: how many pods per second are read, queued, decided, assumed and confirmed, without any server.

    python -m e2e.bench.engine              the standard rows, into docs/evidence/benchmarks.md
    python -m e2e.bench.engine --quick      one short run of each, printed only
    python -m e2e.bench.engine --row "preferred affinity, 5,000 nodes"     one of them, printed only

One process, one core. Each pod comes in as the object that the watch has decoded, and comes back bound, through
the same event handlers as in the scheduler.
"""

import argparse
import gc
import random
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any, Final, NoReturn

import msgspec

from config.settings.scheduler import SchedulerConfiguration
from e2e.bench import figures, workload
from e2e.bench.race import rule_pods
from e2e.bench.workload import Size, WorkloadTemplate
from scheduler.core.build import build_engine
from scheduler.core.engine import Engine
from scheduler.core.scheduling_cycle import Placement
from scheduler.intake.event_handlers import EventHandlers
from scheduler.intake.reports import ProblemReports
from scheduler.kube import objects
from scheduler.kube.port import Changed
from scheduler.kube.problem import Problem
from scheduler.process.clock import Clock

_PODS: Final = 3000
_CONFIRMED_AFTER: Final = 64  # as many binds are in flight
_MIXED: Final = Size(
    nodes=1213, pods=6000, templates=35
)  # as many requests as cover 95 % of a trace: docs/evidence/packing.md
_SLOWEST_DECISION_MS: Final = 1.0
_MOST_OF_LARGE: Final = 2.0
_TITLE: Final = "The engine alone"
_EXPLANATION: Final = "Decisions per second without any server: medians of {runs} runs (minimum - maximum).\n"
Wire = objects.PodObject


@dataclass(frozen=True, slots=True)
class EngineBenchmark:
    """One benchmark. least: pods per second that it must reach; None where only a ratio of rows is asked.

    policy: of GpuShare, for nodes and cards.
    """

    name: str
    nodes: int
    pods: Callable[[int], Iterator[Wire]]
    least: float | None
    policy: str = "binpack"

    @property
    def configuration(self) -> SchedulerConfiguration:
        """The default one with this policy."""
        args = {"nodePolicy": self.policy, "cardPolicy": self.policy}
        return SchedulerConfiguration.model_validate(
            {"profiles": [{"pluginConfig": [{"name": "GpuShare", "args": args}]}]}
        )


def main(arguments: list[str] | None = None) -> int:
    """Measure every row, print the table, write it where asked."""
    parser = argparse.ArgumentParser(prog="python -m e2e.bench.engine", description="Measure the engine alone.")
    parser.add_argument("--quick", action="store_true", help="500 pods, one run, printed only")
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--row", choices=[row.name for row in ROWS], help="this row alone, printed only")
    chosen = parser.parse_args(arguments)
    if chosen.row:
        return _measure_alone(chosen.row, chosen.runs)
    runs, count = (1, 500) if chosen.quick else (chosen.runs, _PODS)
    rates = {row.name: [_rate(row, count) for _ in range(runs)] for row in ROWS}
    decided_ms = [_decided_ms(_MIXED) for _ in range(runs)]
    lines = list(_lines(rates, decided_ms))
    figures.report("engine", _TITLE, _EXPLANATION.format(runs=runs), lines, written=not chosen.quick)
    return 0


def _measure_alone(name: str, runs: int) -> int:
    (row,) = (row for row in ROWS if row.name == name)
    for _ in range(runs):
        sys.stdout.write(f"{row.name}: {_rate(row, _PODS):,.0f} /s\n")
    return 0


def _same_template(count: int) -> Iterator[Wire]:
    yield from decoded(workload.pods(Size(nodes=0, pods=count, templates=1)))


def _fifty_templates(count: int) -> Iterator[Wire]:
    yield from decoded(workload.pods(Size(nodes=0, pods=count, templates=50)))


def _stateful_sets(count: int) -> Iterator[Wire]:
    for number, pod in enumerate(_fifty_templates(count)):
        own = {"statefulset.kubernetes.io/pod-name": pod.metadata.name, "apps.kubernetes.io/pod-index": str(number)}
        meta = msgspec.structs.replace(pod.metadata, labels={**(pod.metadata.labels or {}), **own})
        yield msgspec.structs.replace(pod, metadata=meta)


def _all_different(count: int) -> Iterator[Wire]:
    for number, pod in enumerate(_same_template(count)):
        first, *others = pod.spec.containers
        resources = first.resources or objects.ResourceRequirements()
        asked = objects.ResourceRequirements(
            {**(resources.requests or {}), "memory": str(2**20 + number)}, resources.limits
        )
        containers = (msgspec.structs.replace(first, resources=asked), *others)
        yield msgspec.structs.replace(pod, spec=msgspec.structs.replace(pod.spec, containers=containers))


def _of_ten_templates(pods: Callable[[Size], Iterator[dict[str, Any]]]) -> Callable[[int], Iterator[Wire]]:
    """The pods of a row of the races."""
    return lambda count: decoded(pods(Size(nodes=0, pods=count, templates=10)))


_SMALL, _LARGE = "same template, 5,000 nodes", "same template, 15,000 nodes"
ROWS: Final = (
    EngineBenchmark(_SMALL, 5000, _same_template, 6000),
    EngineBenchmark("50 templates mixed, 5,000 nodes", 5000, _fifty_templates, 3000),
    EngineBenchmark("50 StatefulSets (unique labels), 5,000 nodes", 5000, _stateful_sets, 3000),
    EngineBenchmark("every pod another spec, 5,000 nodes", 5000, _all_different, 500),
    EngineBenchmark("hard topology spread over zones, 5,000 nodes", 5000, _of_ten_templates(rule_pods.spread), 1500),
    EngineBenchmark("required anti-affinity by hostname, 5,000 nodes", 5000, _of_ten_templates(rule_pods.apart), 1500),
    EngineBenchmark("preferred affinity, 5,000 nodes", 5000, _of_ten_templates(rule_pods.preferring), 1500),
    EngineBenchmark(_LARGE, 15_000, _same_template, None),
    EngineBenchmark("same template, 5,000 nodes, fragmentation", 5000, _same_template, 3000, "fragmentation"),
    EngineBenchmark("50 templates mixed, 5,000 nodes, fragmentation", 5000, _fifty_templates, None, "fragmentation"),
)


class NoProblems(ProblemReports):
    """Ends the benchmark at the first invalid object."""

    def problem(self, problem: Problem) -> NoReturn:
        sys.exit(str(problem))


def _engine_and_handlers(configuration: SchedulerConfiguration) -> tuple[Engine, EventHandlers]:
    engine, reader = build_engine(configuration)
    return engine, EventHandlers(engine, reader, NoProblems(), Clock())


def _rate(row: EngineBenchmark, count: int) -> float:
    """Pods per second."""
    engine, handlers = _engine_and_handlers(row.configuration)
    for node in workload.nodes(Size(nodes=row.nodes, pods=count, templates=1)):
        handlers.nodes([Changed(msgspec.convert(node, objects.Node))])
    pods = list(row.pods(count))
    gc.collect()
    gc.freeze()
    began_s = time.perf_counter()
    placed = _drive(engine, handlers, pods)
    took_s = time.perf_counter() - began_s
    gc.unfreeze()
    if placed != count:
        message = f"{row.name}: placed {placed} of {count} pods"
        raise SystemExit(message)
    return count / took_s


def _decided_ms(size: Size) -> tuple[float, float]:
    """Milliseconds of a decision with `fragmentation`, when every template asks something else: (median, p99)."""
    row = EngineBenchmark("", size.nodes, _same_template, None, "fragmentation")
    engine, handlers = _engine_and_handlers(row.configuration)
    for node in workload.nodes(size):
        handlers.nodes([Changed(msgspec.convert(node, objects.Node))])
    drawn, templates = random.Random(1), [_asking_another(number) for number in range(size.templates)]  # noqa: S311
    pods = list(decoded(workload.pod(number, drawn.choice(templates)) for number in range(size.pods)))
    took_ms: list[float] = []
    gc.collect()
    gc.freeze()
    _drive(engine, handlers, pods, took_ms)
    gc.unfreeze()
    return statistics.median(took_ms), statistics.quantiles(took_ms, n=100)[-1]


def _asking_another(number: int) -> WorkloadTemplate:
    return replace(workload.template(number), gpu_mem=6 + 2 * number, cpu_millis=500 + 100 * (number % 7))


def _drive(engine: Engine, handlers: EventHandlers, pods: list[Wire], took_ms: list[float] | None = None) -> int:
    """How many were placed. took_ms: of each decision, as they are made."""
    by_uid = {pod.metadata.uid: pod for pod in pods}
    for start in range(0, len(pods), 256):
        handlers.pods([Changed(pod) for pod in pods[start : start + 256]])
    unconfirmed: list[Placement] = []
    placed = 0
    while True:
        began_s = time.perf_counter()
        decision = engine.decide(time.monotonic(), time.time_ns())
        if decision is None:
            break
        if took_ms is not None:
            took_ms.append((time.perf_counter() - began_s) * 1e3)
        if isinstance(decision.outcome, Placement):
            placed += 1
            unconfirmed.append(decision.outcome)
        if len(unconfirmed) == _CONFIRMED_AFTER:
            _confirm(engine, handlers, unconfirmed, by_uid)
    _confirm(engine, handlers, unconfirmed, by_uid)
    return placed


def _confirm(engine: Engine, handlers: EventHandlers, placed: list[Placement], by_uid: dict[str, Wire]) -> None:
    for placement in placed:
        engine.bound(placement)
    handlers.pods([Changed(bound(by_uid[placement.pod.key.uid], placement)) for placement in placed])
    placed.clear()


def bound(pod: Wire, placement: Placement) -> Wire:
    """The pod as the watch shows it once it is bound there."""
    meta = msgspec.structs.replace(
        pod.metadata, annotations={**(pod.metadata.annotations or {}), **placement.annotations}
    )
    return msgspec.structs.replace(pod, metadata=meta, spec=msgspec.structs.replace(pod.spec, node_name=placement.node))


def decoded(manifests: Iterator[dict[str, Any]]) -> Iterator[Wire]:
    """As the watch shows them, with uids `uid-N`."""
    for number, manifest in enumerate(manifests):
        pod = msgspec.json.decode(msgspec.json.encode(manifest), type=objects.PodObject)
        meta = msgspec.structs.replace(pod.metadata, uid=f"uid-{number}", namespace="default")
        yield msgspec.structs.replace(pod, metadata=meta)


def _lines(rates: dict[str, list[float]], decided_ms: list[tuple[float, float]]) -> Iterator[tuple[str, str, str]]:
    for row in ROWS:
        found = sorted(rates[row.name])
        middle = statistics.median(found)
        goal = "" if row.least is None else figures.at_least(middle, row.least, " /s")
        yield row.name, f"{middle:,.0f} /s ({found[0]:,.0f} - {found[-1]:,.0f})", goal
    small, large = (statistics.median(rates[name]) for name in (_SMALL, _LARGE))
    middle, slowest = (statistics.median(each) for each in zip(*decided_ms, strict=True))
    yield (
        f"one decision of {_MIXED.templates} templates mixed, {_MIXED.nodes:,} nodes, fragmentation",
        f"{middle:.2f} ms, p99 {slowest:.2f} ms",
        f"p99 {figures.at_most(slowest, _SLOWEST_DECISION_MS, ' ms')}",
    )
    ratio = small / large
    yield "one decision at 15,000 nodes ÷ at 5,000", f"{ratio:.2f}", figures.at_most(ratio, _MOST_OF_LARGE)


if __name__ == "__main__":
    sys.exit(main())
