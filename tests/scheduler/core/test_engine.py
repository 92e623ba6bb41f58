"""The engine: decisions, wake-ups, and the state after a rejected or undone placement."""

from collections.abc import Sequence
from typing import ClassVar

import numpy as np
from msgspec.structs import replace

from scheduler.core.engine import Engine
from scheduler.core.scheduling_cycle import NoFit, Placement, SchedulingCycle
from scheduler.framework.cycle_state import CycleState
from scheduler.framework.plugin import Allow, FilterPlugin, PermitPlugin, PermitResult, Rejected, Rejection, Wait
from scheduler.framework.profile import Profile
from scheduler.framework.runtime import Runtime
from scheduler.plugins.card.gpu_share import GpuShare
from scheduler.pods.pod import Pod
from scheduler.queue.entry import PodState
from scheduler.queue.scheduling_queue import SchedulingQueue
from scheduler.state.changes import Change
from scheduler.state.columns.arrays import Rows
from scheduler.state.tables import Tables
from tests.support.builders import bound, cluster, engine, pod

NAME = "gpushare-scheduler"


class Gatekeeper(PermitPlugin):
    """Gives scripted answers."""

    name: ClassVar[str] = "Gatekeeper"

    def __init__(self, answer: PermitResult) -> None:
        self.answer = answer

    def permit(self, pod: Pod, node: str) -> PermitResult:
        assert node
        assert pod.key.uid
        return self.answer


def guarded(answer: PermitResult, **nodes: list[int]) -> Engine:
    """An engine with GpuShare and a Permit plugin."""
    tables = cluster(**nodes)
    rule = GpuShare()
    profile = Profile(filter=(rule,), pre_filter=(rule,), reserve=(rule,), permit=(Gatekeeper(answer),))
    built = Engine(tables, SchedulingQueue(), {NAME: SchedulingCycle(Runtime(profile, tables))})
    assert not built.run_hint(0.0)
    return built


def decided(built: Engine, now_s: float = 0.0) -> Placement | NoFit:
    decision = built.decide(now_s, 1)
    assert decision is not None
    return decision.outcome


def test_a_pod_that_permit_rejects_leaves_nothing_behind_and_is_not_tried_in_a_hot_loop() -> None:
    built = guarded(Rejected("over quota"), a=[16])
    built.pod_waiting(pod("p", 3), 0.0)
    outcome = decided(built)
    assert isinstance(outcome, NoFit)
    assert outcome.diagnosis.message == "0/1 nodes are available: over quota."
    assert built.tables.cards.free[0, 0] == 16
    tries = 0
    while built.run_hint(0.1) or built.decide(0.1, 1):
        tries += 1
        assert tries < 10


def test_a_pod_that_permit_holds_keeps_its_place() -> None:
    built = guarded(Wait(30.0), a=[16])
    built.pod_waiting(pod("p", 3), 0.0)
    outcome = decided(built)
    assert isinstance(outcome, Placement)
    assert [(wait.plugin, wait.timeout_s) for wait in outcome.permit_waits] == [("Gatekeeper", 30.0)]
    assert built.tables.cards.free[0, 0] == 13


def test_a_pod_that_permit_allows_has_nothing_to_wait_for() -> None:
    built = guarded(Allow.ALLOW, a=[16])
    built.pod_waiting(pod("p", 3), 0.0)
    outcome = decided(built)
    assert isinstance(outcome, Placement)
    assert outcome.permit_waits == ()


def test_freed_memory_wakes_as_many_pods_as_it_holds() -> None:
    built = engine(a=[16])
    old = bound(pod("old", 16, annotations={"ALIYUN_COM_GPU_MEM_IDX": "0", "gpushare/unit-mib": "1024"}), "a")
    built.tables.add(old)
    for number in range(10):
        built.pod_waiting(pod(f"p{number}", 5), 0.0)
        assert isinstance(decided(built), NoFit)
    built.tables.remove(old.key.uid)
    placed = [decided(built, 0.01) for _ in range(3)]
    assert [p.pod.key.name for p in placed if isinstance(p, Placement)] == ["p0", "p1", "p2"]
    assert built.decide(0.01, 1) is None


def test_pods_that_permit_rejects_do_not_wake_each_other() -> None:
    built = guarded(Rejected("over quota"), a=[16])
    for number in range(3):
        built.pod_waiting(pod(f"p{number}", 3), 0.0)
    tries = 0
    while built.decide(0.1, 1) is not None:
        tries += 1
        assert tries <= 3
    assert built.queue.lengths()["backoff"] == 3


class Fickle(FilterPlugin):
    """Takes every pod when asked about some nodes, and none when asked about all. A bug, of course."""

    name: ClassVar[str] = "Fickle"
    depends: ClassVar[Change] = Change.INVENTORY | Change.DOMAINS

    def filter(self, pod: Pod, tables: Tables, state: CycleState, rows: Rows) -> Sequence[Rejection]:  # noqa: ARG002
        shape = tables.valid[rows].shape
        return (Rejection(np.ones(shape, dtype=np.bool_), "fickle"),) if isinstance(rows, slice) else ()


def test_a_pod_whose_place_a_rule_shows_and_then_refuses_is_not_tried_in_a_hot_loop() -> None:
    tables, rule = cluster(a=[16]), GpuShare()
    profile = Profile(filter=(rule, Fickle()), pre_filter=(rule,), reserve=(rule,))
    built = Engine(tables, SchedulingQueue(), {NAME: SchedulingCycle(Runtime(profile, tables))})
    built.pod_waiting(pod("p", 3), 0.0)
    assert isinstance(decided(built), NoFit)
    for indexes in (frozenset({0}), frozenset[int]()):
        built.cards_marked_unhealthy("a", indexes)
    assert isinstance(decided(built), NoFit)
    assert built.decide(0.1, 1) is None
    assert built.queue.lengths()["backoff"] == 1


def test_a_refused_pod_backs_off_and_gives_its_place_back() -> None:
    built = engine(a=[16])
    built.pod_waiting(pod("p", 3), 0.0)
    outcome = decided(built)
    assert isinstance(outcome, Placement)
    built.bind_failed(outcome, 0.0)
    assert built.tables.cards.free[0, 0] == 16
    assert built.queue.state(outcome.pod.key.uid) is PodState.BACKING_OFF
    assert built.decide(0.5, 1) is None
    assert isinstance(decided(built, 1.0), Placement)


def test_a_pod_that_changes_while_it_is_being_bound_is_tried_in_its_new_form_when_the_bind_fails() -> None:
    built = engine(a=[16])
    built.pod_waiting(pod("p", 3), 0.0)
    outcome = decided(built)
    assert isinstance(outcome, Placement)
    changed = replace(pod("p", 3, annotations={"gpushare/card-models": "none"}), key=outcome.pod.key)
    built.pod_waiting(changed, 0.1)
    built.bind_failed(outcome, 0.2)
    assert isinstance(decided(built, 2.0), NoFit)


def test_a_pod_that_somebody_else_bound_meanwhile_is_no_longer_ours_to_place() -> None:
    built = engine(a=[16], b=[16])
    built.pod_waiting(pod("p", 3), 0.0)
    outcome = decided(built)
    assert isinstance(outcome, Placement)
    theirs = bound(
        outcome.pod, "b" if outcome.node == "a" else "a", {"ALIYUN_COM_GPU_MEM_IDX": "0", "gpushare/unit-mib": "1024"}
    )
    built.pod_assigned(theirs)
    built.tables.add(theirs)
    built.bind_failed(outcome, 0.2)
    assert outcome.pod.key.uid not in built.queue
    assert built.tables.cards.free[0, built.tables.row_of[outcome.node]] == 16
    assert built.tables.cards.free[0, built.tables.row_of[theirs.node_name]] == 13
