"""What our engine says of the same objects, in the words of `wire`."""

from collections.abc import Callable, Generator, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any, Final

import msgspec
import numpy as np

from config.settings.scheduler import SchedulerConfiguration, resolve
from scheduler.core.build import build_engine, resource_names
from scheduler.core.scheduling_cycle import NoFit, SchedulingCycle
from scheduler.framework.diagnosis import Resolvable
from scheduler.framework.evaluation_cache import Evaluation
from scheduler.framework.plugin import Plugin, ScorePlugin
from scheduler.framework.post_filter import post_filters
from scheduler.framework.preemption import NoPreemption, PostFilterResult
from scheduler.framework.profile import Profile
from scheduler.framework.runtime import Runtime
from scheduler.framework.what_if import RowMemo, WhatIf
from scheduler.intake.event_handlers import EventHandlers
from scheduler.intake.volume_handlers import VolumeHandlers
from scheduler.kube import objects, port
from scheduler.kube.port import Changed, ListEnds
from scheduler.plugins import registry
from scheduler.pods.pod import Pod
from scheduler.state.available_after_preemption import AvailabilityByPriority
from tests.differential.wire import Recorded
from tests.support.reported import STANDING, Reported

# Each kind that our scheduler watches, and where its events go. The other kinds of a scenario are left out.
_WATCHED: Final[Mapping[str, tuple[type[Any], Callable[[EventHandlers], Callable[[Any], None]]]]] = {
    "Node": (objects.Node, lambda handlers: handlers.nodes),
    "Pod": (objects.PodObject, lambda handlers: handlers.pods),
    "Namespace": (objects.Namespace, lambda handlers: handlers.namespaces),
    "PodDisruptionBudget": (objects.PodDisruptionBudget, lambda handlers: handlers.disruption_budgets),
}
_SELECTING: Final = {kind.api_kind: kind for kind in port.SELECTING}
_OF_STORAGE: Final = {kind.api_kind: kind for kind in port.OF_STORAGE}
# Nodes and what pods refer to come first.
_LAST: Final = "Pod"


@dataclass(frozen=True, slots=True)
class RuleRejection:
    """The first plugin of ours that rejects a node, and all its reasons, sorted."""

    plugin: str
    reasons: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Verdicts:
    """About one probe. unschedulable: the reason of a PreFilter that rejects the pod on every node, or "".

    resolvable: of the nodes that are rejected, those where pods that leave may make room.
    scores: plugin -> feasible node -> thousandths of a point, 0..100,000; without the plugins that skip the pod.
    """

    message: str
    unschedulable: str
    rejected: Mapping[str, RuleRejection]
    feasible: tuple[str, ...]
    resolvable: frozenset[str]
    scores: Mapping[str, Mapping[str, int]]


@dataclass(frozen=True, slots=True)
class Choice:
    """What preemption does for a probe. node: "" where it does nothing: message says why.

    victims: namespace/name, the most important one first. violations: of disruption budgets.
    """

    node: str = ""
    victims: tuple[str, ...] = ()
    violations: int = 0
    message: str = ""


class _Kind(msgspec.Struct):
    kind: str


class Ours:
    """Our engine with the default configuration, having seen the objects of one scenario."""

    def __init__(self, scenario: Recorded, plugins: tuple[type[Plugin], ...] = registry.PLUGINS) -> None:
        """plugins: a mutation may change one."""
        configuration = SchedulerConfiguration()
        engine, self._reader = build_engine(configuration, plugins)
        self._engine, self._tables = engine, engine.tables
        (resolved,) = resolve(configuration)
        profile = registry.build(resolved, resource_names(configuration), plugins)
        self._runtime = Runtime(profile, engine.tables)
        self._cycle = SchedulingCycle(self._runtime)
        self._alone = {plugin: Runtime(_only(profile, plugin), engine.tables) for plugin, _ in profile.score}
        reports = Reported()
        handlers = EventHandlers(engine, self._reader, reports, STANDING)
        volume_handlers = VolumeHandlers(engine.tables, reports)
        found = _show(handlers, volume_handlers, scenario.objects)
        self.problems = [problem.message for problem in reports.problems]
        handlers.disruption_budgets([ListEnds("")])
        nodes = [each for each in found if isinstance(each, objects.Node)]
        # Each node twice, with a label of no meaning that differs.
        self._nodes = [[_marked(node, mark) for node in nodes] for mark in "ab"]

    def verdicts(self, raw: bytes) -> Verdicts:
        """About a probe, as the API server has stored it."""
        with self._seen_by(raw) as pod:
            return self._verdicts(pod)

    def choice(self, raw: bytes) -> Choice:
        """Of preemption, about a probe that fits nowhere."""
        with self._seen_by(raw) as pod:
            steps = self._cycle.post_filter(pod, self._engine.nominations, AvailabilityByPriority(self._tables))
            return _told(next((sought.result for sought in steps if sought is not None), None))

    def choices(self, raw: bytes) -> dict[str, Choice]:
        """The same of each node alone, of those where pods that leave may make room."""
        found: dict[str, Choice] = {}
        with self._seen_by(raw) as pod:
            evaluation = self._runtime.evaluate(pod)
            for name in self._resolvable(pod, evaluation):
                row = np.array([self._tables.row_of[name]], dtype=np.intp)
                what_if = WhatIf(
                    self._runtime,
                    pod,
                    Resolvable(row, row[~evaluation.allowed[row]]),
                    nominations=self._engine.nominations,
                    after_preemption=AvailabilityByPriority(self._tables).of(pod.priority),
                    memo=RowMemo(self._tables),
                )
                for plugin in post_filters(self._runtime.profile):
                    found[name] = _told(_result(plugin.post_filter(pod, what_if)))
        return found

    @contextmanager
    def _seen_by(self, raw: bytes) -> Iterator[Pod]:
        """The tables as they are for a probe, for which a place may be kept."""
        pod, nominations = self._reader.read(msgspec.json.decode(raw, type=objects.PodObject)), self._engine.nominations
        if pod.nominated_node:
            nominations.nominate(pod, pod.nominated_node, None)
        with nominations.seen_by(pod):
            yield pod
        nominations.remove(pod.key.uid)

    def _verdicts(self, pod: Pod) -> Verdicts:
        runtime = self._runtime
        evaluation = self._evaluated_by_row(pod)
        if evaluation.unschedulable:
            return Verdicts(self._message(pod), evaluation.unschedulable, {}, (), frozenset(), {})
        feasible = self._names(runtime.feasible(pod, evaluation))
        rejected: dict[str, RuleRejection] = {}
        for plugin, group in zip(evaluation.rules.filters, runtime.rejections(pod, evaluation), strict=True):
            reasons: dict[str, list[str]] = {}
            for rejection in group:
                for name in self._names(rejection.rejected):
                    reasons.setdefault(name, []).append(rejection.reason)
            rejected |= {
                name: RuleRejection(plugin.name, tuple(sorted(found)))
                for name, found in reasons.items()
                if name not in rejected
            }
        scores = {plugin.name: self._scores(plugin, pod) for plugin in self._alone if feasible and plugin.scores(pod)}
        resolvable = self._resolvable(pod, evaluation)
        return Verdicts(self._message(pod), "", rejected, feasible, resolvable, scores)

    def _resolvable(self, pod: Pod, evaluation: Evaluation) -> frozenset[str]:
        if evaluation.unschedulable:
            return frozenset()
        groups = list(self._runtime.rejections(pod, evaluation))
        rows = self._runtime.resolvable(evaluation, groups).rows
        return frozenset(self._tables.names[row] for row in rows.tolist())

    def _evaluated_by_row(self, pod: Pod) -> Evaluation:
        """Over all nodes, then each node again alone, as while a cluster runs: both have to come to the same."""
        evaluation = self._runtime.evaluate(pod)
        self._nodes.reverse()
        for node in self._nodes[0]:
            self._engine.node_changed(node)
            evaluation = self._runtime.evaluate(pod)
        return evaluation

    def _message(self, pod: Pod) -> str:
        outcome = self._cycle.schedule(pod, 0)
        if isinstance(outcome, NoFit):
            return outcome.diagnosis.message
        self._cycle.unreserve(pod)
        return ""

    def _scores(self, plugin: ScorePlugin, pod: Pod) -> dict[str, int]:
        runtime = self._alone[plugin]
        totals = runtime.totals(pod, runtime.evaluate(pod))
        return {name: int(totals[row]) for name, row in self._tables.row_of.items() if totals[row] >= 0}

    def _names(self, mask: np.ndarray[Any, np.dtype[np.bool_]]) -> tuple[str, ...]:
        return tuple(sorted(name for row in np.flatnonzero(mask).tolist() if (name := self._tables.names[row])))


def _only(profile: Profile, scorer: ScorePlugin) -> Profile:
    """The same, with one plugin that scores, weight 1."""
    return replace(profile, score=((scorer, 1),))


def _result(steps: Generator[None, None, PostFilterResult]) -> PostFilterResult:
    while True:
        try:
            next(steps)
        except StopIteration as end:
            found: PostFilterResult = end.value
            return found


def _told(result: PostFilterResult | None) -> Choice:
    if result is None:
        return Choice()
    if isinstance(result, NoPreemption):
        return Choice(message=result.message)
    return Choice(result.node, tuple(str(victim.key) for victim in result.victims), result.violations)


def _marked(node: objects.Node, mark: str) -> objects.Node:
    labels = {**(node.metadata.labels or {}), "differential.example/mark": mark}
    return msgspec.structs.replace(node, metadata=msgspec.structs.replace(node.metadata, labels=labels))


def _show(handlers: EventHandlers, volume_handlers: VolumeHandlers, raws: tuple[msgspec.Raw, ...]) -> list[object]:
    """What was shown."""
    kinds, shown = msgspec.json.Decoder(_Kind), []
    found = [(kinds.decode(raw).kind, raw) for raw in raws]
    for kind, raw in sorted(found, key=lambda pair: pair[0] == _LAST):
        if kind in _WATCHED:
            struct, handle = _WATCHED[kind]
            shown.append(msgspec.json.decode(raw, type=struct))
            handle(handlers)([Changed(shown[-1])])
        elif kind in _SELECTING:
            of = _SELECTING[kind]
            handlers.selecting(of, [Changed(msgspec.json.decode(raw, type=of.type))])
        elif kind in _OF_STORAGE:
            of = _OF_STORAGE[kind]
            volume_handlers.handle(of, [Changed(msgspec.json.decode(raw, type=of.type))])
    return shown
