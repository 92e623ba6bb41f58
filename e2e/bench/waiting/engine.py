"""Many pods wait while others end: what one pod that ends costs, and one heartbeat that says nothing new.

5,000 full nodes; 50,000 pods of 500 templates wait. Pods end one at a time, and each place is taken by one that waits.
Everything goes through the same event handlers as in the scheduler; times are of the processor, in this process.
"""

import gc
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

import msgspec

from config.protocol import names
from config.settings.scheduler import SchedulerConfiguration
from e2e.bench import workload
from e2e.bench.engine import NoProblems, bound, decoded
from e2e.bench.workload import CARDS_PER_NODE, UNITS_PER_CARD, Size
from scheduler.core.build import build_engine
from scheduler.core.scheduling_cycle import Placement
from scheduler.intake.event_handlers import EventHandlers
from scheduler.kube import objects
from scheduler.kube.port import Changed, Deleted
from scheduler.process.clock import Clock

TEMPLATES: Final = 500
# A new state of the node's Ready condition, and nothing else: what the kubelet reports every five minutes at least.
_HEARTBEATS: Final = 1000
Wire = objects.PodObject


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineFigures:
    """cpu_ms: of the processor, per pod that ends. attempts: per place that came free.

    longest_ms: the longest that one batch of events, one question or one decision took. heartbeat_us: per heartbeat
    without news. asked_by_heartbeats: questions that all of those heartbeats led to.
    """

    cpu_ms: float
    attempts: float
    longest_ms: float
    heartbeat_us: float
    asked_by_heartbeats: int


class _Cluster:
    """Full, and with pods that wait."""

    def __init__(self, nodes: int, waiting: int) -> None:
        self.engine, reader = build_engine(SchedulerConfiguration())
        self.handlers = EventHandlers(self.engine, reader, NoProblems(), Clock())
        size = Size(nodes=nodes, pods=waiting, templates=TEMPLATES)
        self.nodes = [msgspec.convert(node, objects.Node) for node in workload.nodes(size)]
        for node in self.nodes:
            self.handlers.nodes([Changed(node)])
        self.running = []
        for number, node in enumerate(self.nodes):
            *fillers, last = filling(number, node)
            self.handlers.pods([Changed(pod) for pod in (*fillers, last)])
            self.running.append(last)
        self.waiting = {pod.metadata.uid: pod for pod in decoded(workload.pods(size))}
        self.handlers.pods([Changed(pod) for pod in self.waiting.values()])
        self.attempts = self.placed = 0
        self.longest_s = 0.0
        self.settle()

    def settle(self) -> None:
        """Until no pod is ready."""
        while self._timed(lambda: self.engine.run_hint(time.monotonic())) or self._decide():
            pass

    def ends(self, pod: Wire) -> None:
        """A pod is gone; what it leaves is taken."""
        self._timed(lambda: self.handlers.pods([Deleted(pod)]))
        self.settle()

    def _decide(self) -> bool:
        decision = self._timed(lambda: self.engine.decide(time.monotonic(), time.time_ns()))
        if decision is None:
            return False
        self.attempts += 1
        if isinstance(decision.outcome, Placement):
            self.placed += 1
            self.engine.bound(decision.outcome)
            shown = bound(self.waiting[decision.outcome.pod.key.uid], decision.outcome)
            self._timed(lambda: self.handlers.pods([Changed(shown)]))
        return True

    def _timed(self, step: Any) -> Any:  # noqa: ANN401 - whatever the step returns
        began_s = time.perf_counter()
        result = step()
        self.longest_s = max(self.longest_s, time.perf_counter() - began_s)
        return result


def measure(nodes: int, waiting: int, ends: int) -> EngineFigures:
    """Fill, let pods end, let heartbeats come."""
    cluster = _Cluster(nodes, waiting)
    gc.collect()
    gc.freeze()
    cluster.attempts = cluster.placed = 0
    cluster.longest_s = 0.0
    began_s = time.process_time()
    for pod in cluster.running[:ends]:
        cluster.ends(pod)
    cpu_s = time.process_time() - began_s
    heartbeat_s, asked = _heartbeats(cluster)
    gc.unfreeze()
    return EngineFigures(
        cpu_ms=cpu_s / ends * 1e3,
        attempts=cluster.attempts / max(cluster.placed, 1),
        longest_ms=cluster.longest_s * 1e3,
        heartbeat_us=heartbeat_s * 1e6,
        asked_by_heartbeats=asked,
    )


def _heartbeats(cluster: _Cluster) -> tuple[float, int]:
    """(seconds of the processor per heartbeat, questions)."""
    asked = 0
    again = [
        _reported(msgspec.convert(msgspec.to_builtins(node), objects.Node)) for node in cluster.nodes[:_HEARTBEATS]
    ]
    began_s = time.process_time()
    for node in again:
        cluster.handlers.nodes([Changed(node)])
        while cluster.engine.run_hint(0.0):
            asked += 1
    return (time.process_time() - began_s) / len(again), asked


def _reported(node: objects.Node) -> objects.Node:
    """The kubelet has nothing new to say at this time."""
    ready = objects.NodeCondition("Ready", "2026-01-01T00:00:00Z")
    return msgspec.structs.replace(node, status=msgspec.structs.replace(node.status, conditions=(ready,)))


def filling(number: int, node: objects.Node) -> Iterator[Wire]:
    """Pods that leave no card of the node with anything free; the last asks what some template asks."""
    asked = workload.template(number % TEMPLATES).gpu_mem
    for card in range(CARDS_PER_NODE):
        units = UNITS_PER_CARD - (asked if card == 0 else 0)
        yield _running(f"filler-{number}-{card}", node.metadata.name, card, units)
    yield _running(f"ends-{number}", node.metadata.name, 0, asked)


def _running(name: str, node: str, card: int, units: int) -> Wire:
    return msgspec.convert(
        {
            "metadata": {
                "name": name,
                "namespace": "default",
                "uid": name,
                "annotations": {names.MEM_IDX: str(card), names.MEM_POD: str(units), names.UNIT_MIB: "1024"},
            },
            "spec": {
                "nodeName": node,
                "containers": [{"name": "c", "resources": {"limits": {names.GPU_MEM: str(units)}}}],
            },
            "status": {"phase": "Running"},
        },
        Wire,
    )
