"""The engine alone: how many pods per second are read, queued, decided, assumed and confirmed, without any server.

    python -m e2e.bench.engine              the standard rows, into docs/benchmarks.md
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
from typing import Any, Final

import msgspec
from rich.console import Console
from rich.table import Table

from config.settings.scheduler import SchedulerConfiguration, resolve
from e2e.bench import collector, document, rule_pods, workload
from e2e.bench.workload import Size, WorkloadTemplate
from scheduler.core.build import build_engine, resource_names
from scheduler.core.engine import Engine
from scheduler.core.scheduling_cycle import Placement
from scheduler.framework.runtime import Runtime
from scheduler.intake.event_handlers import EventHandlers
from scheduler.kube import objects
from scheduler.kube.port import Changed
from scheduler.plugins import registry
from scheduler.state.changes import Change

_PODS: Final = 3000
_LONGEST_PAUSE_MS: Final = 20
_CONFIRMED_AFTER: Final = 64  # as many binds are in flight
_MIXED: Final = Size(nodes=1213, pods=6000, templates=35)  # as many requests as cover 95 % of a trace: docs/packing.md
_SLOWEST_DECISION_MS: Final = 1.0
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
    judged_us = [_judged_again_us() for _ in range(runs)]
    decided_ms = [_decided_ms(_MIXED) for _ in range(runs)]
    pauses_ms = [collector.longest_pause_ms(_handlers) for _ in range(runs)]
    lines = list(_lines(rates, judged_us, decided_ms, pauses_ms))
    text = _markdown(lines)
    Console().print(_table(lines))
    if not chosen.quick:
        path = document.PATH
        body = f"## The engine alone\n\n{text}\n\n{runs} runs each, {document.today()}. {document.description()}."
        path.write_text(document.with_section(path.read_text() if path.exists() else "", "engine", body))
    return 0


def _measure_alone(name: str, runs: int) -> int:
    (row,) = (row for row in ROWS if row.name == name)
    for _ in range(runs):
        Console().print(f"{row.name}: {_rate(row, _PODS):,.0f} /s")
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


def _engine_and_handlers(configuration: SchedulerConfiguration) -> tuple[Engine, EventHandlers]:
    engine, reader = build_engine(configuration)
    return engine, EventHandlers(engine, reader, now_s=time.monotonic, report=lambda problem: sys.exit(str(problem)))


def _handlers() -> EventHandlers:
    return _engine_and_handlers(SchedulerConfiguration())[1]


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


def _judged_again_us() -> float:
    """Microseconds to bring a class of pods up to date after one booking, at 5,000 nodes with the default profile."""
    configuration = SchedulerConfiguration()
    engine, reader = build_engine(configuration)
    for node in workload.nodes(Size(nodes=5000, pods=1, templates=1)):
        engine.node_changed(msgspec.convert(node, objects.Node))
    profile = registry.build(resolve(configuration)[0], resource_names(configuration))
    runtime, changes = Runtime(profile, engine.tables), engine.tables.changes
    pod = reader.read(next(_same_template(1)))
    signature = runtime.signature(pod)
    runtime.evaluate(pod, signature)
    began_s = time.perf_counter()
    for number in range(_PODS):
        changes.note(number, int(Change.BOOKINGS))
        runtime.evaluate(pod, signature)
    return (time.perf_counter() - began_s) / _PODS * 1e6


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
    with collector.as_in_the_process():
        _drive(engine, handlers, pods, took_ms)
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


def _lines(
    rates: dict[str, list[float]],
    judged_us: list[float],
    decided_ms: list[tuple[float, float]],
    pauses_ms: list[float],
) -> Iterator[tuple[str, str, str]]:
    for row in ROWS:
        found = sorted(rates[row.name])
        middle = statistics.median(found)
        goal = (
            "" if row.least is None else f"≥ {row.least:,.0f} /s, {'reached' if middle >= row.least else '**missed**'}"
        )
        yield row.name, f"{middle:,.0f} /s ({found[0]:,.0f} - {found[-1]:,.0f})", goal
    small, large = (statistics.median(rates[name]) for name in (_SMALL, _LARGE))
    least, most = min(judged_us), max(judged_us)
    yield (
        "one row judged again after a booking",
        f"{statistics.median(judged_us):.1f} µs ({least:.1f} - {most:.1f})",
        "",
    )
    middle, slowest = (statistics.median(each) for each in zip(*decided_ms, strict=True))
    limit_ms = _SLOWEST_DECISION_MS
    yield (
        f"one decision of {_MIXED.templates} templates mixed, {_MIXED.nodes:,} nodes, fragmentation",
        f"{middle:.2f} ms, p99 {slowest:.2f} ms",
        f"p99 ≤ {limit_ms:g} ms, {'reached' if slowest <= limit_ms else '**missed**'}",
    )
    longest, limit = max(pauses_ms), _LONGEST_PAUSE_MS
    yield (
        "longest pause of the garbage collector, 100,000 pods",
        f"{statistics.median(pauses_ms):.1f} ms ({min(pauses_ms):.1f} - {longest:.1f})",
        f"≤ {limit} ms, {'reached' if longest <= limit else '**missed**'}",
    )
    ratio = small / large
    yield "one decision at 15,000 nodes ÷ at 5,000", f"{ratio:.2f}", f"≤ 2, {'reached' if ratio <= 2 else '**missed**'}"  # noqa: PLR2004


def _markdown(lines: list[tuple[str, str, str]]) -> str:
    head = ["| pods | median (minimum - maximum) | must reach |", "|---|---:|---|"]
    return "\n".join([*head, *(f"| {' | '.join(cells)} |" for cells in lines)])


def _table(lines: list[tuple[str, str, str]]) -> Table:
    table = Table("pods", "median (minimum - maximum)", "must reach", title="The engine alone")
    for cells in lines:
        table.add_row(*cells)
    return table


if __name__ == "__main__":
    sys.exit(main())
