"""Work in the background, a few milliseconds at a time: stale messages are updated, and the ledger is audited."""

import asyncio
from collections.abc import Callable
from itertools import count

from config.settings.scheduler import SchedulerConfiguration
from scheduler.core.build import build_engine
from scheduler.core.engine import Engine
from scheduler.core.scheduling_cycle import NoFit
from scheduler.dispatch.ledger_audit import LedgerAudit
from scheduler.dispatch.reason_refresh import ReasonRefresh
from scheduler.dispatch.recorder import Recorder
from scheduler.framework.diagnosis import Diagnosis
from scheduler.kube.problem import Problem
from scheduler.metrics.metrics import Metrics
from scheduler.metrics.observer import ServiceObserver
from scheduler.pods.pod import Pod
from scheduler.queue.longest_waiting import EVERY_S
from scheduler.state.audit import AuditRound
from tests.support.builders import engine, pod, wire_node
from tests.support.placing import NOW_NS

# docs/develop/decisions/0014
CORRECTED_S = 30.0


class FakeRecorder(Recorder):
    """Latest message of each pod, with its time; sends nothing.

    unsent: entries that wait to be written. silent: every message is still true.
    """

    def __init__(self) -> None:
        self.said: dict[str, tuple[float, tuple[str, ...]]] = {}
        self.unsent = 0
        self.silent = False

    @property
    def pending_soon(self) -> int:
        return self.unsent

    def update_reasons(self, pod: Pod, diagnosis: Diagnosis) -> bool:
        name = f"{pod.key.namespace}/{pod.key.name}"
        if self.silent or (name in self.said and self.said[name][1] == diagnosis.constant_text):
            return False
        self.said[name] = asyncio.get_running_loop().time(), diagnosis.constant_text
        return True


def crowd(pods: dict[str, int]) -> Engine:
    """One node, and pods in each namespace, each of its own template; all are told to be unschedulable."""
    built, _ = build_engine(SchedulerConfiguration.model_validate({"reserveAfter": 0}))
    built.budgets_listed()
    built.node_changed(wire_node("n0", [8]))
    for namespace, many in pods.items():
        for number in range(many):
            built.pod_waiting(pod(f"p{number}", 16, namespace=namespace, requests={"cpu": f"{1 + number}m"}), 0.0)
    while (decision := built.decide(0.0, NOW_NS)) is not None:
        assert isinstance(decision.outcome, NoFit)
    return built


def metrics_of(built: Engine) -> Metrics:
    return Metrics(built.tables, built.queue.lengths, per_card=False)


def refresh(built: Engine, recorder: FakeRecorder, now_s: Callable[[], float] | None = None) -> ReasonRefresh:
    """now_s: default the clock of the loop."""
    clock = now_s or asyncio.get_running_loop().time
    return ReasonRefresh(built, recorder, ServiceObserver(metrics_of(built)), now_s=clock, wake=lambda: None)


async def test_a_thousand_pods_of_as_many_templates_are_corrected_in_time() -> None:
    recorder, built = FakeRecorder(), crowd({"mine": 1000})
    task = asyncio.create_task(refresh(built, recorder).run())
    await asyncio.sleep(CORRECTED_S)
    assert len(recorder.said) == 1000
    built.node_changed(wire_node("n0", [8], unschedulable=True))
    changed_s = asyncio.get_running_loop().time()
    await asyncio.sleep(CORRECTED_S)
    assert min(when_s for when_s, _ in recorder.said.values()) > changed_s
    assert max(when_s for when_s, _ in recorder.said.values()) <= changed_s + CORRECTED_S
    task.cancel()


async def test_fifteen_hundred_pods_of_a_namespace_keep_nobody_elses_reason_waiting() -> None:
    recorder, built = FakeRecorder(), crowd({"theirs": 1500, "mine": 1})
    task = asyncio.create_task(refresh(built, recorder).run())
    await asyncio.sleep(1)
    built.node_changed(wire_node("n0", [8], unschedulable=True))
    changed_s = asyncio.get_running_loop().time()
    await asyncio.sleep(EVERY_S + 1)
    assert recorder.said["mine/p0"][0] > changed_s
    assert len(recorder.said) < 80 * (EVERY_S + 2)
    task.cancel()


async def test_it_takes_a_twentieth_of_the_time() -> None:
    """Each reading of the clock is a tenth of a millisecond later."""
    recorder, built, ticks = FakeRecorder(), crowd({"mine": 200}), count(100_000)
    work = refresh(built, recorder, now_s=lambda: next(ticks) / 10_000)
    recorder.silent = True
    for _ in range(10):
        before = next(ticks)
        rest_s = work.slice()
        took_s = (next(ticks) - before) / 10_000
        assert 0.001 < took_s < 0.002
        assert rest_s > 0.9 * 19 * (took_s - 0.0002)


async def test_nothing_is_corrected_while_what_was_said_before_waits_to_be_written() -> None:
    recorder, built = FakeRecorder(), crowd({"mine": 3})
    task = asyncio.create_task(refresh(built, recorder).run())
    recorder.unsent = 8
    await asyncio.sleep(CORRECTED_S)
    assert recorder.said == {}
    recorder.unsent = 0
    await asyncio.sleep(1)
    assert len(recorder.said) == 3
    task.cancel()


async def test_a_pod_that_was_forgotten_is_counted_and_the_service_is_woken() -> None:
    built, woken = crowd({"mine": 1}), asyncio.Event()
    metrics, now_s = metrics_of(built), asyncio.get_running_loop().time
    observer = ServiceObserver(metrics)
    task = asyncio.create_task(ReasonRefresh(built, FakeRecorder(), observer, now_s=now_s, wake=woken.set).run())
    await asyncio.sleep(EVERY_S + 1)
    assert not woken.is_set()
    built.node_changed(wire_node("large", [16]))
    assert built.tables.take_cluster_events()
    await asyncio.sleep(EVERY_S + 1)
    assert woken.is_set()
    assert metrics.registry.get_sample_value("gpushare_scheduler_lost_wakeups_total") == 1
    task.cancel()


async def test_a_round_of_the_audit_holds_the_loop_for_a_few_milliseconds_at_a_time() -> None:
    """Each reading of the clock is a millisecond later: a slice ends after the third."""
    built = engine(**{f"n{i}": [16] for i in range(60)})
    clock, turns, done, reported = count(), 0, list[AuditRound](), list[Problem]()

    async def others() -> None:
        nonlocal turns
        while not done:
            turns += 1
            await asyncio.sleep(0)

    audit = LedgerAudit(
        built, period_s=600.0, now_s=lambda: next(clock) / 1000, report=reported.append, done=done.append
    )
    task = asyncio.create_task(others())
    done.append(await audit.round())
    await task

    assert done == [AuditRound(nodes=60)]
    assert reported == []
    assert turns >= 15
