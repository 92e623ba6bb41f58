"""Engines with gangs, for their tests."""

from collections.abc import Iterator

from config.settings.scheduler import SchedulerConfiguration
from scheduler.core.build import build_engine
from scheduler.core.effects import Bind, Effect, Unschedulable
from scheduler.core.engine import Engine
from scheduler.pods.pod import Pod
from tests.support.builders import pod, wire_node
from tests.support.placing import NOW_NS


def site(**cards: int) -> Engine:
    """Return an engine with nodes that have this many cards of 16 units."""
    built, _ = build_engine(SchedulerConfiguration())
    for name, count in cards.items():
        built.node_changed(wire_node(name, [16] * count))
    return built


def member(name: str, gang: str = "g", *, minimum: int, units: int = 16, priority: int = 0) -> Pod:
    """Return a waiting pod of a gang in the default namespace."""
    annotations = {"gpushare/gang": gang, "gpushare/gang-min": str(minimum)}
    return pod(name, units, annotations=annotations, priority=priority)


def come(built: Engine, *pods: Pod, now_s: float = 0.0) -> None:
    """Show waiting pods to the engine."""
    for each in pods:
        built.pod_waiting(each, now_s)


def effects(built: Engine, now_s: float = 0.0) -> Iterator[Effect]:
    """Run the engine until it has nothing to do."""
    while (step := built.step(now_s, NOW_NS)) is not None:
        yield from step.effects


def placed(built: Engine, now_s: float = 0.0) -> set[str]:
    """Return the names of the pods that are bound until the engine has nothing to do."""
    return {one.placement.pod.key.name for one in effects(built, now_s) if isinstance(one, Bind)}


def messages(built: Engine, now_s: float = 0.0) -> dict[str, str]:
    """Return the messages of the pods that are told until the engine has nothing to do."""
    found = (one for one in effects(built, now_s) if isinstance(one, Unschedulable))
    return {one.pod.key.name: one.diagnosis.message for one in found}
