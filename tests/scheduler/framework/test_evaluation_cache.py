"""Decisions with and without the evaluation cache are the same, on random histories of the tables."""

import random
import tracemalloc
from collections import Counter
from dataclasses import replace
from typing import Final

import msgspec
import numpy as np
import pytest

from config.settings.scheduler import SchedulerConfiguration, resolve
from scheduler.core.build import resource_names
from scheduler.core.scheduling_cycle import NoFit, Outcome, Placement, SchedulingCycle
from scheduler.framework.cycle_state import CycleState
from scheduler.framework.evaluation_cache import ClassRules, Evaluation, EvaluationCache
from scheduler.framework.profile import Profile
from scheduler.framework.runtime import FORGOTTEN_AFTER_CHANGES, Runtime
from scheduler.plugins import registry
from scheduler.pods.gpu_request import ResourceNames
from scheduler.pods.pod import Pod
from scheduler.state.changes import Change
from scheduler.state.tables import Tables
from tests.support.builders import READER, bound, wire_node, wire_pod
from tests.support.without_cache import decision, evaluation
from tests.system.histories.node_plans import CHANGES, PLANS, ZONE, NodePlan
from tests.system.histories.pod_templates import OTHERS, OURS, WRITTEN, annotations

STEPS: Final = 1500
CONFIGURATION: Final = SchedulerConfiguration()
PROFILE: Final = registry.build(resolve(CONFIGURATION)[0], resource_names(CONFIGURATION))
NAMESPACES: Final = ("default", "team")


class Histories:
    """One history. happened: what each step did, for the proof that nothing was left out."""

    def __init__(self, seed: int, copies: int = 1, profile: Profile = PROFILE) -> None:
        """copies: of each plan; more than ten make the tables grow."""
        self.rng = random.Random(seed)  # noqa: S311 - repeatable
        self.tables = Tables(ResourceNames())
        self.profile = profile
        self.runtime = Runtime(profile, self.tables)
        self.cycle = SchedulingCycle(self.runtime)
        self.first = {f"{name}-{n}": replace(PLANS[name], name=f"{name}-{n}") for n in range(copies) for name in PLANS}
        self.plans: dict[str, NodePlan] = {}
        self.pods: list[Pod] = []
        self.made = 0
        self.happened: Counter[str] = Counter()
        for name in self.first:
            self.node_comes(name)

    def step(self) -> None:
        """Change something, now and then much of it, then decide for one pod."""
        for _ in range(self.rng.choice([0, 1, 1, 2, 40])):
            self.rng.choice(
                [
                    self.node_changes,
                    self.node_is_as_at_first,
                    self.node_is_as_at_first,
                    self.node_goes,
                    self.cards_are_marked_unhealthy,
                    self.pod_goes,
                    self.pod_goes,
                    self.stranger,
                    self.namespace,
                ]
            )()
        for name in [name for name in self.first if name not in self.plans and self.rng.random() < 0.5]:
            self.node_comes(name)
        self.decide(self.pod())

    def decide(self, pod: Pod) -> None:
        now_ns = self.made * 1000
        expected = decision(self.profile, self.tables, pod, now_ns)
        # Not always: what was worked out on the way is there for the decision only if nobody has asked before it.
        if self.rng.random() < 0.5:
            self.same_columns(pod)
        outcome = self.cycle.schedule(pod, now_ns)
        self.same_outcome(outcome, expected)
        self.happened[type(outcome).__name__] += 1
        if isinstance(outcome, Placement):
            self.binding_ends(pod, outcome)

    def same_outcome(self, outcome: Outcome, expected: Outcome) -> None:
        """What wakes a pod may be more than is needed: it is what has rejected the class at any time."""
        if isinstance(outcome, NoFit) and isinstance(expected, NoFit):
            assert outcome.wakes_on & expected.wakes_on == expected.wakes_on
            outcome = replace(outcome, wakes_on=expected.wakes_on)
        assert outcome == expected

    def same_columns(self, pod: Pod) -> None:
        """Whatever is remembered of the class is what is found when every row is judged now."""
        self.happened["remembered"] += self.runtime.cache.get(self.runtime.signature(pod)) is not None
        kept = self.runtime.evaluate(pod)
        again, fresh = evaluation(self.profile, self.tables, pod)
        assert kept.unschedulable == fresh.unschedulable
        assert np.array_equal(kept.feasible, fresh.feasible)
        assert np.array_equal(self.runtime.feasible(pod, kept), again.feasible(pod, fresh))
        assert np.array_equal(kept.total, fresh.total)
        for raw, now in zip(kept.raw, fresh.raw, strict=True):
            assert np.array_equal(raw[kept.feasible], now[kept.feasible])

    def binding_ends(self, pod: Pod, placement: Placement) -> None:
        """Bound as assumed, refused, or not known yet."""
        ends = self.rng.random()
        if ends < 0.7:
            self.tables.add(bound(pod, placement.node, placement.annotations))
            self.pods.append(pod)
        elif ends < 0.9:
            self.cycle.unreserve(pod)
        else:
            self.pods.append(pod)

    def node_comes(self, name: str) -> None:
        self.plans[name] = self.first[name]
        self.tables.upsert_node(self.plans[name].wire())

    def node_is_as_at_first(self) -> None:
        self.node_comes(self.rng.choice(list(self.first)))

    def node_changes(self) -> None:
        if not self.plans:
            return
        name, change = self.rng.choice(list(self.plans)), self.rng.choice(list(CHANGES))
        self.plans[name] = CHANGES[change](self.plans[name])
        self.tables.upsert_node(self.plans[name].wire())
        self.happened[change] += 1

    def cards_are_marked_unhealthy(self) -> None:
        indexes = self.rng.choice([frozenset(), frozenset(), frozenset({0}), frozenset({0, 1})])
        self.tables.mark_unhealthy(self.rng.choice(list(self.first)), indexes)

    def node_goes(self) -> None:
        if len(self.plans) > 2 and self.rng.random() < 0.2:
            name = self.rng.choice(list(self.plans))
            del self.plans[name]
            self.tables.remove_node(name)

    def namespace(self) -> None:
        name = self.rng.choice(NAMESPACES)
        self.tables.set_namespace(name, self.rng.choice([None, {}, {"team": "red"}]))

    def pod_goes(self) -> None:
        if self.pods:
            self.tables.remove(self.pods.pop(self.rng.randrange(len(self.pods))).key.uid)

    def stranger(self) -> None:
        """A pod that another scheduler has placed somewhere."""
        self.made += 1
        template, plan = self.rng.choice(list(OTHERS)), self.rng.choice(list(self.first.values()))
        namespace = self.rng.choice(NAMESPACES)
        waiting = READER.read(wire_pod(f"s{self.made}", namespace=namespace, **OTHERS[template]))
        written = annotations(self.rng.choice(WRITTEN), waiting.template.gpu_units, plan, self.rng.randrange(2))
        self.tables.add(bound(waiting, plan.name, written))
        self.pods.append(waiting)
        self.happened[f"stranger {template}"] += 1

    def pod(self) -> Pod:
        self.made += 1
        template = self.rng.choice(list(OURS))
        self.happened[f"pod {template}"] += 1
        # As of a StatefulSet: a label that differs from pod to pod, which no rule reads.
        read = READER.read(wire_pod(f"p{self.made}", namespace=self.rng.choice(NAMESPACES), **OURS[template]))
        return msgspec.structs.replace(read, labels={**read.labels, "pod-index": str(self.made)})


@pytest.mark.parametrize(("seed", "copies"), [(1, 1), (2, 1), (3, 3), (4, 12), (5, 12)])
def test_a_decision_with_the_cache_is_the_one_without_it(seed: int, copies: int) -> None:
    histories = Histories(seed, copies)

    for _ in range(STEPS):
        histories.step()

    missing = [*CHANGES, *(f"pod {name}" for name in OURS), *(f"stranger {name}" for name in OTHERS)]
    assert not [what for what in missing if not histories.happened[what]]
    assert histories.happened["Placement"] > STEPS // 10
    assert histories.happened[NoFit.__name__] > STEPS // 10
    assert histories.happened["remembered"] > STEPS // 4


def test_the_next_pod_of_a_class_has_only_the_changed_rows_judged_again() -> None:
    tables = Tables(ResourceNames())
    for number in range(40):
        tables.upsert_node(replace(PLANS["twin"], name=f"n{number}", labels={ZONE: "a"}).wire())
    cycle = SchedulingCycle(runtime := Runtime(PROFILE, tables))
    first, second = (READER.read(wire_pod(f"p{i}", 2)) for i in range(2))
    placed = cycle.schedule(first, 1)
    assert isinstance(placed, Placement)
    kept = runtime.cache.get(runtime.signature(second))
    assert kept is not None
    assert tables.changes.since(kept.version).rows == [tables.row_of[placed.node]]  # type: ignore[union-attr]

    cycle.schedule(second, 2)

    assert runtime.cache.get(runtime.signature(second)) is kept


def test_the_cache_counts_all_that_it_holds_also_beside_a_node_of_256_cards() -> None:
    tables = Tables(ResourceNames())
    tables.upsert_node(wire_node("wide", [1] * 256))
    for number in range(1000):
        tables.upsert_node(replace(PLANS["twin"], name=f"n{number}", labels={ZONE: str(number)}).wire())
    cycle = SchedulingCycle(runtime := Runtime(PROFILE, tables))
    terms = [{"matchExpressions": [{"key": ZONE, "operator": "NotIn", "values": [str(term)]}]} for term in range(20)]
    affinity = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}}
    pods = [READER.read(wire_pod(f"p{i}", 1 + i, affinity=affinity)) for i in range(21)]
    cycle.schedule(pods.pop(), 1)
    tracemalloc.start()
    before, counted = tracemalloc.get_traced_memory()[0], runtime.cache.size_bytes
    for waiting in pods:
        cycle.schedule(waiting, 1)
    held = tracemalloc.get_traced_memory()[0] - before
    tracemalloc.stop()

    assert held < 1.5 * (runtime.cache.size_bytes - counted)


def test_a_class_is_forgotten_when_nobody_asks_for_it_while_all_rows_change_again_and_again() -> None:
    tables = Tables(ResourceNames())
    tables.upsert_node(PLANS["twin"].wire())
    runtime = Runtime(PROFILE, tables)
    classes = [READER.read(wire_pod(f"p{units}", units)) for units in range(1, 9)]
    # As one is that no node will ever take.
    classes.append(READER.read(wire_pod("never", 1, annotations={"aliyun.com/gpu-count": "none"})))
    first = classes[0]
    for pod in classes:
        runtime.evaluate(pod)
    assert runtime.evaluate(classes[-1]).unschedulable

    for _ in range(FORGOTTEN_AFTER_CHANGES * tables.capacity + 1):
        tables.changes.note(0, int(Change.PODS))
        # Asked again and again: it stays.
        if not tables.changes.version % 100:
            runtime.evaluate(first)
    for units in range(11, 17):
        pod = READER.read(wire_pod(f"p{units}", units))
        runtime.evaluate(pod)

    remembered = [pod.key.name for pod in classes if runtime.cache.get(runtime.signature(pod)) is not None]
    assert remembered == ["p1"]
    assert runtime.cache.get(runtime.signature(pod)) is not None


def of_columns(rows: int = 0) -> Evaluation:
    return Evaluation(state=CycleState(), rules=ClassRules(), total=np.zeros(rows, dtype=np.int64))


def test_the_least_recently_used_classes_leave_when_there_is_no_room() -> None:
    cache = EvaluationCache(10 * of_columns().size_bytes)
    for number in range(10):
        cache.keep(number, of_columns(), 0)
    cache.get(0)
    cache.keep(1, of_columns(), 0)

    cache.keep("large", of_columns(300), 0)
    cache.keep("too large", of_columns(10_000), 0)

    kept = [key for key in (*range(10), "large", "too large") if cache.get(key) is not None]
    assert kept == [0, 1, *range(5, 10), "large"]
