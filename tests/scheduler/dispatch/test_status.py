"""Conditions and Events: written while what the pod shows differs, aggregated, bounded, never blocking."""

import asyncio
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import cast

import pytest
from msgspec.structs import replace

from scheduler.dispatch.sender import Sender
from scheduler.dispatch.status import Status
from scheduler.framework.diagnosis import Diagnosis, ReasonCount
from scheduler.framework.plugin import Numbers
from scheduler.kube import objects
from scheduler.kube.events import QUIET_S, Reporter
from scheduler.kube.port import (
    ApiError,
    ApiForbidden,
    ApiNotFound,
    ApiThrottled,
    Cluster,
    EventRecord,
    EventSeries,
    PodKey,
)
from scheduler.kube.reflector import Backoff
from scheduler.metrics.observer import ServiceObserver
from scheduler.pods.pod import Pod
from scheduler.process.clock import Clock
from scheduler.queue.scheduling_queue import SchedulingQueue
from scheduler.state.cards.booking import CardShare
from tests.support.builders import pod
from tests.support.clocks.virtual_time import now_s

A_MOMENT_S = 0.01


class Lost(ServiceObserver):
    """Observer that keeps what was lost."""

    def __init__(self) -> None:
        self.lost: list[tuple[str, str]] = []

    def record_lost(self, what: str, why: str) -> None:
        self.lost.append((what, why))


@dataclass
class Written:
    """An API server that stores Events and conditions, or answers with the next of `answers`.

    hangs: namespace whose requests get no answer. hanging: number of such requests. late_s: how long after the write of
    a condition its answer comes.
    """

    events: list[EventRecord] = field(default_factory=list)
    series: list[EventSeries] = field(default_factory=list)
    conditions: list[tuple[float, str]] = field(default_factory=list)
    changed: list[bool] = field(default_factory=list)
    answers: list[ApiError] = field(default_factory=list)
    tried_s: list[float] = field(default_factory=list)
    hangs: str = ""
    hanging: int = 0
    late_s: float = 0.0

    async def _answer(self, namespace: str) -> None:
        if namespace == self.hangs:
            self.hanging += 1
            await asyncio.Event().wait()
        if self.answers:
            raise self.answers.pop(0)

    async def create_event(self, event: EventRecord) -> None:
        await self._answer(event.namespace)
        self.events.append(event)

    async def update_event(self, event: EventRecord, series: EventSeries) -> None:
        await self._answer(event.namespace)
        assert event.name in {one.name for one in self.events}
        self.series.append(series)

    async def set_pod_condition(self, pod: PodKey, condition: objects.PodCondition, *, changed: bool = True) -> None:
        self.tried_s.append(round(now_s()))
        await self._answer(pod.namespace)
        self.conditions.append((round(now_s()), condition.message))
        self.changed.append(changed)
        await asyncio.sleep(self.late_s)


class Desk:
    """A status writer, and pods that wait. set_s: by so much somebody has set the clock."""

    def __init__(self) -> None:
        self.set_s = 0.0
        self.written, self.observer, self.queue = Written(), Lost(), SchedulingQueue()
        self.sender = Sender(16, Backoff(random.Random(0)), asyncio.Event())  # noqa: S311 - repeatable
        self.status = Status(
            cast("Cluster", self.written),
            self.sender,
            self.queue,
            self.observer,
            clock=Clock(now_s, lambda: int((now_s() + self.set_s) * 1e9)),
            reporter=Reporter("gpushare-scheduler", "gpushare-scheduler-host-1"),
        )

    def fails(self, *pods: Pod, because: Diagnosis) -> None:
        for one in pods:
            self.queue.add_or_update(one, now_s())
            self.status.failed(one, because)

    @property
    def messages(self) -> list[str]:
        return [message for _, message in self.written.conditions]


@asynccontextmanager
async def writing() -> AsyncIterator[Desk]:
    """Yield a desk that writes."""
    desk = Desk()
    task = asyncio.create_task(desk.status.run())
    yield desk
    task.cancel()
    await asyncio.wait({task})


async def a_moment() -> None:
    await asyncio.sleep(A_MOMENT_S)


WAITING = pod("p", 12)
OTHER = Diagnosis(1, (ReasonCount("node(s) were unschedulable", 1),))


def no_fit(most_free: int) -> Diagnosis:
    return Diagnosis(1, (ReasonCount("Insufficient GPU memory on one card", 1, Numbers(12, most_free, 16)),))


def showing(message: str, status: str = "False") -> Pod:
    return replace(WAITING, condition=objects.PodCondition("PodScheduled", status, "Unschedulable", message))


# Events


async def test_the_event_of_a_bound_pod_names_its_node_and_cards() -> None:
    async with writing() as desk:
        desk.status.bound(pod("web"), "n1")
        desk.status.bound(pod("q", 8), "n1", (CardShare(0, "GPU-a", 4), CardShare(1, "GPU-b", 4)))
        await a_moment()
    assert [(event.type, event.reason, event.action, event.note) for event in desk.written.events] == [
        ("Normal", "Scheduled", "Binding", "Successfully assigned default/web to n1"),
        ("Normal", "Scheduled", "Binding", "Successfully assigned default/q to n1, card 0 (4) and 1 (4)"),
    ]


async def test_a_repeated_event_becomes_a_series_for_each_set_of_reasons() -> None:
    async with writing() as desk:
        for diagnosis in (no_fit(8), OTHER) * 3:
            desk.fails(WAITING, because=diagnosis)
            await asyncio.sleep(QUIET_S / 2)
    assert (len(desk.written.events), [series.count for series in desk.written.series]) == (2, [2, 2, 3, 3])


async def test_a_series_whose_first_event_has_expired_begins_anew() -> None:
    async with writing() as desk:
        desk.status.events.about("Pod", "default/p", "uid", "Mistake", "a note")
        await asyncio.sleep(QUIET_S)
        desk.written.answers = [ApiNotFound("expired", 404)]
        desk.status.events.about("Pod", "default/p", "uid", "Mistake", "a note")
        await a_moment()
    assert (len(desk.written.events), desk.written.series) == (2, [])


async def test_a_throttled_event_is_sent_again_and_a_rejected_one_is_counted_as_lost() -> None:
    async with writing() as desk:
        desk.written.answers = [ApiThrottled("slow", 1.0)]
        desk.status.bound(pod("p", 3), "n1")
        await asyncio.sleep(2.0)
        assert len(desk.written.events) == 1
        desk.written.answers = [ApiForbidden("no right", 403)]
        desk.status.bound(pod("q", 3), "n1")
        await a_moment()
    assert desk.observer.lost == [("event Scheduled on default/q", "no right")]


async def test_of_too_many_events_the_oldest_is_dropped_and_counted() -> None:
    desk = Desk()
    for number in range(20_001):
        desk.status.bound(pod(f"p{number}", 3), "n1")
    assert desk.status.pending == 20_000
    assert [what for what, _ in desk.observer.lost] == ["event Scheduled on default/p0"]


async def test_a_clock_that_is_set_back_delays_nothing() -> None:
    async with writing() as desk:
        for set_s in (0.0, -3600.0):
            desk.set_s = set_s
            desk.fails(WAITING, because=no_fit(8))
            await asyncio.sleep(QUIET_S)
        desk.status.bound(WAITING, "n1")
        await a_moment()
    assert [one.last_time_s for one in desk.written.series] == [QUIET_S - 3600.0]
    assert [event.time_s for event in desk.written.events] == [0.0, 2 * QUIET_S - 3600.0]


# Conditions


async def test_a_pod_that_fits_nowhere_gets_an_event_and_a_condition() -> None:
    async with writing() as desk:
        desk.fails(WAITING, because=no_fit(8))
        await a_moment()
    words = "0/1 nodes are available: 1 Insufficient GPU memory on one card: wants 12, most free 8 (of 16)."
    assert [(e.type, e.reason, e.note) for e in desk.written.events] == [("Warning", "FailedScheduling", words)]
    assert desk.messages == [words]


async def test_what_is_quoted_in_a_message_is_text_alone() -> None:
    async with writing() as desk:
        desk.queue.add_or_update(WAITING, 0.0)
        desk.status.bind_failed(WAITING, "a webhook said \x1b[2J\nno", ("no",))
        await a_moment()
    assert ([event.note for event in desk.written.events], desk.messages) == (["a webhook said ?[2J?no"],) * 2


async def test_other_reasons_are_written_at_once_and_other_numbers_after_a_while() -> None:
    async with writing() as desk:
        for diagnosis in (no_fit(8), no_fit(7), OTHER, no_fit(6), no_fit(5)):
            desk.fails(WAITING, because=diagnosis)
            await a_moment()
        assert desk.messages == [no_fit(8).message, OTHER.message, no_fit(6).message]
        await asyncio.sleep(QUIET_S)
        assert len(desk.messages) == 3
        desk.fails(WAITING, because=no_fit(4))
        await a_moment()
    assert desk.messages[3:] == [no_fit(4).message]


async def test_only_the_latest_of_the_unwritten_messages_is_written() -> None:
    desk = Desk()
    for diagnosis in (OTHER, no_fit(8), no_fit(7)):
        desk.fails(WAITING, because=diagnosis)
    await desk.status.flush(1.0)
    assert desk.messages == [no_fit(7).message]


@pytest.mark.parametrize(("status", "changed"), [("False", False), ("True", True)])
async def test_a_condition_whose_status_stays_keeps_the_time_of_its_transition(status: str, *, changed: bool) -> None:
    async with writing() as desk:
        desk.fails(showing("another message", status), because=no_fit(8))
        await a_moment()
        desk.fails(WAITING, because=OTHER)
        await a_moment()
    assert desk.written.changed == [changed, False]


async def test_a_condition_that_the_pod_has_already_is_not_written_again() -> None:
    async with writing() as desk:
        desk.fails(showing(no_fit(8).message), because=no_fit(8))
        desk.fails(WAITING, because=no_fit(7))
        await asyncio.sleep(QUIET_S - 1)
    assert desk.messages == []


async def test_a_failed_write_is_repeated_with_a_growing_back_off_whatever_the_reasons() -> None:
    async with writing() as desk:
        desk.fails(pod("answered"), because=OTHER)
        await a_moment()
        desk.written.tried_s.clear()
        desk.written.answers = [ApiForbidden("no", 403)] * 7  # two of them to Events
        desk.fails(WAITING, because=no_fit(8))
        await asyncio.sleep(20.0)
        desk.fails(WAITING, because=no_fit(7))
        await asyncio.sleep(5.0)
        desk.fails(WAITING, because=OTHER)
        await asyncio.sleep(QUIET_S)
    assert desk.written.tried_s == [0, 1, 3, 7, 15, 31]
    assert desk.messages[1:] == [OTHER.message]


async def test_a_condition_that_was_overwritten_is_written_again() -> None:
    async with writing() as desk:
        desk.fails(WAITING, because=no_fit(8))
        await asyncio.sleep(10.0)
        desk.status.seen(showing("somebody else's"))
        await a_moment()
        desk.status.seen(showing("somebody else's again"))
        await asyncio.sleep(QUIET_S)
    assert [at_s for at_s, _ in desk.written.conditions] == [0, 10, 12]


async def test_a_condition_that_was_overwritten_before_its_answer_came_is_written_again() -> None:
    async with writing() as desk:
        desk.written.late_s = 1.0
        desk.fails(WAITING, because=no_fit(8))
        await a_moment()
        desk.status.seen(showing(no_fit(8).message))
        desk.status.seen(showing("somebody else's"))
        await asyncio.sleep(QUIET_S)
    assert [at_s for at_s, _ in desk.written.conditions] == [0, 1]


async def test_a_placed_pod_gets_no_message_and_one_that_is_gone_is_forgotten() -> None:
    async with writing() as desk:
        desk.fails(WAITING, because=no_fit(8))
        assert desk.queue.pop(0.0) is not None
        await a_moment()
        assert desk.messages == []
        desk.queue.failed(WAITING.key.uid, now_s())
        await asyncio.sleep(2.0)
        assert desk.messages == [no_fit(8).message]
        desk.fails(pod("q", 12), because=no_fit(8))
        desk.queue.delete("uid-default-q")
        await a_moment()
    assert (desk.messages, [one.pod.name for one in desk.status.all()]) == ([no_fit(8).message], ["p"])


async def test_messages_are_forgotten_with_their_pods() -> None:
    async with writing() as desk:
        desk.fails(WAITING, *(pod(f"p{number}", 12) for number in range(100)), because=no_fit(8))
        await a_moment()
        for number in range(100):
            desk.queue.delete(f"uid-default-p{number}")
        await asyncio.sleep(2.0)
        assert [one.pod for one in desk.status.all()] == [WAITING.key]


async def test_a_reevaluation_is_news_only_with_other_reasons() -> None:
    async with writing() as desk:
        desk.fails(WAITING, because=no_fit(8))
        assert not desk.status.reevaluated(WAITING, no_fit(7))
        assert desk.status.reevaluated(WAITING, OTHER)
        assert not desk.status.reevaluated(pod("q"), OTHER)
        await a_moment()
    assert desk.messages == [OTHER.message]


# Many pods, and the end


async def test_however_many_pods_wait_each_gets_its_condition_and_events_are_series() -> None:
    waiting = [pod(f"p{number}", 12) for number in range(2000)]
    async with writing() as desk:
        for most_free in (8, 7):
            desk.fails(*waiting, because=no_fit(most_free))
            await asyncio.sleep(QUIET_S)
    assert (len(desk.written.events), len(desk.written.series), len(desk.messages)) == (2000, 2000, 4000)
    assert (desk.observer.lost, desk.status.pending) == ([], 0)


async def test_a_namespace_without_answers_delays_no_other() -> None:
    async with writing() as desk:
        desk.written.hangs = "bad"
        desk.fails(*(pod(f"p{number}", 12, namespace="bad") for number in range(100)), because=no_fit(8))
        await a_moment()
        desk.fails(*(pod(f"p{number}", 12, namespace="good") for number in range(100)), because=no_fit(8))
        await a_moment()
    assert (len(desk.messages), len(desk.written.events), desk.written.hanging) == (100, 100, 2)


async def test_at_the_end_everything_is_written_although_the_sender_has_stopped() -> None:
    async with writing() as desk:
        desk.fails(WAITING, because=no_fit(8))
        desk.written.hangs = "default"
        desk.status.bound(pod("q", 3), "n1")
        await a_moment()
        desk.sender.stop()
        desk.status.bound(pod("r", 3), "n1")
        await a_moment()
    desk.written.hangs = ""
    await desk.status.flush(1.0)
    assert sorted(event.object_name for event in desk.written.events) == ["p", "q", "r"]
    assert desk.messages == [no_fit(8).message]


async def test_a_flush_ends_in_time() -> None:
    desk = Desk()
    desk.written.hangs = "default"
    desk.fails(WAITING, because=no_fit(8))
    await desk.status.flush(2.0)
    assert (now_s(), desk.messages) == (2.0, [])


async def test_when_another_replica_schedules_no_condition_is_written() -> None:
    desk = Desk()
    desk.fails(WAITING, because=no_fit(8))
    desk.status.bound(pod("q", 3), "n1")
    desk.status.forget_waiting()
    await desk.status.flush(1.0)
    assert [event.reason for event in desk.written.events] == ["FailedScheduling", "Scheduled"]
    assert desk.messages == []
