"""The engine: decisions, wake-ups, the state after a rejected or undone placement, and pods that wait for Permit."""

import asyncio
from collections.abc import Sequence
from typing import ClassVar

import numpy as np
import pytest
from msgspec.structs import replace

from scheduler.core.engine import Engine
from scheduler.core.scheduling_cycle import NoFit, PermitWait, Placement, SchedulingCycle
from scheduler.dispatch.binding_cycle import WaitingPods
from scheduler.framework.cycle_state import CycleState
from scheduler.framework.plugin import Allow, FilterPlugin, PermitPlugin, PermitResult, Rejected, Rejection, Wait
from scheduler.framework.profile import Profile
from scheduler.framework.runtime import Runtime
from scheduler.kube.bind_outcome import BindRejected
from scheduler.plugins.card.gpu_share import GpuShare
from scheduler.pods.pod import Pod
from scheduler.queue.entry import PodState
from scheduler.queue.scheduling_queue import SchedulingQueue
from scheduler.state.changes import Change
from scheduler.state.columns.arrays import Rows
from scheduler.state.tables import Tables
from tests.support.builders import bound, cluster, engine, pod
from tests.support.placing import decided, on_card

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


@pytest.mark.parametrize(
    ("answer", "waits"), [(Wait(30.0), [("Gatekeeper", 30.0)]), (Allow.ALLOW, [])], ids=["holds", "allows"]
)
def test_a_pod_that_permit_does_not_reject_keeps_its_place(
    answer: PermitResult, waits: list[tuple[str, float]]
) -> None:
    built = guarded(answer, a=[16])
    built.pod_waiting(pod("p", 3), 0.0)
    outcome = decided(built)
    assert isinstance(outcome, Placement)
    assert [(wait.plugin, wait.timeout_s) for wait in outcome.permit_waits] == waits
    assert built.tables.cards.free[0, 0] == 13


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
        built.tables.mark_unhealthy("a", indexes)
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
    theirs = bound(outcome.pod, "b" if outcome.node == "a" else "a", on_card(0, 3))
    built.pod_assigned(theirs)
    built.tables.add(theirs)
    built.bind_failed(outcome, 0.2)
    assert outcome.pod.key.uid not in built.queue
    assert built.tables.cards.free[0, built.tables.row_of[outcome.node]] == 16
    assert built.tables.cards.free[0, built.tables.row_of[theirs.node_name]] == 13


# Permit: a placed pod waits until every plugin has allowed it

WAITS = (PermitWait("Gang", 60.0), PermitWait("Quota", 30.0))


async def started(waiting: WaitingPods, *waits: PermitWait) -> asyncio.Task[None]:
    task = asyncio.create_task(waiting.wait("uid", waits))
    await asyncio.sleep(0)
    return task


async def test_a_pod_without_holds_goes_at_once() -> None:
    await WaitingPods().wait("uid", ())


async def test_a_pod_goes_when_every_plugin_has_allowed_it() -> None:
    waiting = WaitingPods()
    task = await started(waiting, *WAITS)
    waiting.allow("uid", "Gang")
    await asyncio.sleep(0)
    assert not task.done()
    waiting.allow("uid", "Quota")
    await task


async def test_one_rejection_is_enough() -> None:
    waiting = WaitingPods()
    task = await started(waiting, *WAITS)
    waiting.allow("uid", "Gang")
    waiting.reject("uid", "Quota", "over quota")
    with pytest.raises(BindRejected, match="Quota: over quota"):
        await task


async def test_the_shortest_time_counts() -> None:
    with pytest.raises(BindRejected, match=r"Quota did not allow it within 0\.001 s"):
        await WaitingPods().wait("uid", (PermitWait("Gang", 60.0), PermitWait("Quota", 0.001)))


async def test_decisions_on_a_pod_that_does_not_wait_change_nothing() -> None:
    waiting = WaitingPods()
    waiting.allow("uid", "Gang")
    waiting.reject("uid", "Gang", "late")
    task = await started(waiting, WAITS[0])
    waiting.allow("uid", "Gang")
    await task
