"""Events and conditions: aggregated, bounded, trickling while a backlog is bound, never blocking."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import cast

import pytest
import uvloop
from msgspec.structs import replace

from scheduler.dispatch.pod_messages import PodMessage, PodMessages
from scheduler.dispatch.recorder import Recorder
from scheduler.framework.diagnosis import Diagnosis, ReasonCount
from scheduler.framework.plugin import Numbers
from scheduler.kube import objects
from scheduler.kube.events import QUIET_S
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
from scheduler.state.cards.booking import CardShare
from tests.support.builders import pod


@dataclass
class Written:
    """An API server that stores Events and conditions, or answers with the next of `answers`."""

    events: list[EventRecord] = field(default_factory=list)
    names: set[str] = field(default_factory=set)
    series: list[EventSeries] = field(default_factory=list)
    conditions: list[objects.PodCondition] = field(default_factory=list)
    changed: list[bool] = field(default_factory=list)
    answers: list[ApiError] = field(default_factory=list)
    wrote: asyncio.Event = field(default_factory=asyncio.Event)

    def _answer(self) -> None:
        if self.answers:
            raise self.answers.pop(0)

    async def create_event(self, event: EventRecord) -> None:
        self._answer()
        self.events.append(event)
        self.names.add(event.name)
        self.wrote.set()

    async def update_event(self, event: EventRecord, series: EventSeries) -> None:
        self._answer()
        assert event.name in self.names or not self.events
        self.series.append(series)

    async def set_pod_condition(self, pod: PodKey, condition: objects.PodCondition, *, changed: bool = True) -> None:
        self._answer()
        assert pod.uid
        self.conditions.append(condition)
        self.changed.append(changed)


class Desk:
    """A recorder with a clock of its own."""

    def __init__(self, busy: Callable[[], bool] = lambda: False) -> None:
        self.now_s = 1000.0
        self.set_s = 0.0  # by so much somebody has set the clock
        self.written = Written()
        self.lost: list[tuple[str, str]] = []
        self.gone: set[str] = set()
        self.recorder = Recorder(
            cast("Cluster", self.written),
            controller="gpushare-scheduler",
            instance="gpushare-scheduler-host-1",
            now_s=lambda: self.now_s,
            unix_ns=lambda: int((self.now_s + self.set_s) * 1e9),
            busy=busy,
            waits=lambda _uid: True,
            known=lambda uid: uid not in self.gone,
            on_lost=lambda what, why: self.lost.append((what, why)),
        )

    async def flush(self) -> Written:
        await self.recorder.flush(5.0)
        return self.written


@pytest.fixture
def desk() -> Desk:
    return Desk()


OTHER = Diagnosis(1, (ReasonCount("node(s) were unschedulable", 1),))


def no_fit(most_free: int) -> Diagnosis:
    return Diagnosis(1, (ReasonCount("Insufficient GPU memory on one card", 1, Numbers(12, most_free, 16)),))


async def test_a_bound_pod_gets_one_normal_event_in_kube_schedulers_words(desk: Desk) -> None:
    desk.recorder.scheduled(pod("web"), "n1")
    (event,) = (await desk.flush()).events
    assert (event.type, event.reason, event.action) == ("Normal", "Scheduled", "Binding")
    assert event.note == "Successfully assigned default/web to n1"


async def test_the_event_of_a_bound_pod_names_its_cards(desk: Desk) -> None:
    desk.recorder.scheduled(pod("p", 3), "n1", (CardShare(1, "GPU-b", 3),))
    desk.recorder.scheduled(pod("q", 8), "n1", (CardShare(0, "GPU-a", 4), CardShare(1, "GPU-b", 4)))
    assert [event.note for event in (await desk.flush()).events] == [
        "Successfully assigned default/p to n1, card 1 (3)",
        "Successfully assigned default/q to n1, card 0 (4) and 1 (4)",
    ]


async def test_a_pod_that_fits_nowhere_gets_an_event_and_a_condition(desk: Desk) -> None:
    desk.recorder.failed_scheduling(pod("p", 12), no_fit(8))
    written = await desk.flush()
    words = "0/1 nodes are available: 1 Insufficient GPU memory on one card: wants 12, most free 8 (of 16)."
    assert [(e.type, e.reason, e.note) for e in written.events] == [("Warning", "FailedScheduling", words)]
    assert [(c.status, c.reason, c.message) for c in written.conditions] == [("False", "Unschedulable", words)]


async def test_what_is_quoted_in_a_message_is_text_alone(desk: Desk) -> None:
    desk.recorder.scheduler_error(pod("p", 12), "a webhook said \x1b[2J\nno", ("no",))
    written = await desk.flush()
    assert [(e.note, c.message) for e, c in zip(written.events, written.conditions, strict=True)] == [
        ("a webhook said ?[2J?no", "a webhook said ?[2J?no")
    ]


async def test_numbers_alone_change_the_condition_only_after_a_while(desk: Desk) -> None:
    waiting = pod("p", 12)
    for most_free in (8, 7, 6):
        desk.recorder.failed_scheduling(waiting, no_fit(most_free))
    assert len((await desk.flush()).conditions) == 1
    desk.now_s += QUIET_S
    desk.recorder.failed_scheduling(waiting, no_fit(5))
    assert len((await desk.flush()).conditions) == 2


async def test_a_condition_whose_status_stays_keeps_the_time_of_its_transition(desk: Desk) -> None:
    for diagnosis in (no_fit(8), OTHER):
        desk.recorder.failed_scheduling(pod("p", 12), diagnosis)
        await desk.flush()
    assert desk.written.changed == [True, False]


@pytest.mark.parametrize(("status", "changed"), [("False", False), ("True", True)])
async def test_what_another_process_has_written_counts_for_the_time_of_transition(
    desk: Desk, status: str, *, changed: bool
) -> None:
    shown = objects.PodCondition("PodScheduled", status, "Unschedulable", "another message")
    desk.recorder.failed_scheduling(replace(pod("p", 12), condition=shown), no_fit(8))
    assert (await desk.flush()).changed == [changed]


async def test_another_reason_changes_the_condition_at_once(desk: Desk) -> None:
    waiting = pod("p", 12)
    desk.recorder.failed_scheduling(waiting, no_fit(8))
    await desk.flush()
    desk.recorder.failed_scheduling(waiting, OTHER)
    assert len((await desk.flush()).conditions) == 2


async def test_of_two_conditions_that_wait_to_be_written_only_the_newer_is(desk: Desk) -> None:
    waiting = pod("p", 12)
    desk.recorder.failed_scheduling(waiting, no_fit(8))
    desk.recorder.failed_scheduling(waiting, OTHER)
    assert [condition.message for condition in (await desk.flush()).conditions] == [OTHER.message]


async def test_a_condition_that_the_pod_has_already_is_not_written_again(desk: Desk) -> None:
    shown = objects.PodCondition("PodScheduled", "False", "Unschedulable", no_fit(8).message)
    desk.recorder.failed_scheduling(replace(pod("p", 12), condition=shown), no_fit(8))
    assert (await desk.flush()).conditions == []


async def test_a_repeated_event_becomes_a_series(desk: Desk) -> None:
    for _ in range(5):
        desk.recorder.failed_scheduling(pod("p", 12), no_fit(8))
        written = await desk.flush()
        desk.now_s += QUIET_S
    assert len(written.events) == 1
    assert [series.count for series in written.series] == [2, 3, 4, 5]


async def test_a_series_whose_first_event_has_expired_begins_anew(desk: Desk) -> None:
    desk.recorder.failed_scheduling(pod("p", 12), no_fit(8))
    await desk.flush()
    desk.now_s += QUIET_S
    desk.recorder.failed_scheduling(pod("p", 12), no_fit(8))
    desk.written.answers = [ApiNotFound("expired", 404)]
    assert len((await desk.flush()).events) == 2


async def test_a_throttled_entry_is_sent_again_and_a_refused_one_is_counted_as_lost(desk: Desk) -> None:
    desk.recorder.scheduled(pod("p", 3), "n1")
    desk.written.answers = [ApiThrottled("slow", 0.001)]
    assert len((await desk.flush()).events) == 1
    desk.recorder.scheduled(pod("q", 3), "n1")
    desk.written.answers = [ApiForbidden("no right", 403)]
    await desk.flush()
    assert desk.lost == [("event Scheduled on default/q", "no right")]


async def test_a_full_event_queue_drops_the_oldest_entry_and_says_so(desk: Desk) -> None:
    for number in range(20_001):
        desk.recorder.scheduled(pod(f"p{number}", 3), "n1")
    assert desk.recorder.pending == 20_000
    assert [what for what, _ in desk.lost] == ["event Scheduled on default/p0"]


async def test_however_many_pods_wait_their_events_are_series_and_none_is_lost(desk: Desk) -> None:
    waiting = [pod(f"p{number}", 12) for number in range(20_500)]
    for most_free in (8, 7):
        for one in waiting:
            desk.recorder.failed_scheduling(one, no_fit(most_free))
        written = await desk.flush()
        desk.now_s += QUIET_S
    assert (len(written.events), len(written.series), len(written.conditions)) == (20_500, 20_500, 41_000)
    assert desk.lost == []


async def test_messages_that_nobody_has_written_yet_are_replaced_by_the_latest(desk: Desk) -> None:
    for most_free in range(100):
        for number in range(10):
            desk.recorder.failed_scheduling(pod(f"p{number}", 12), no_fit(most_free))
    assert desk.recorder.pending == 10
    written = await desk.flush()
    assert {event.note for event in written.events} == {no_fit(99).message}
    assert (len(written.events), len(written.conditions), desk.lost) == (10, 10, [])


async def test_when_another_replica_schedules_nothing_is_said_of_pods_that_wait(desk: Desk) -> None:
    desk.recorder.failed_scheduling(pod("waits", 12), no_fit(8))
    desk.recorder.scheduled(pod("p", 3), "n1")
    desk.recorder.forget_waiting()
    written = await desk.flush()
    assert ([event.reason for event in written.events], written.conditions) == (["Scheduled"], [])


async def test_a_pod_that_is_bound_is_not_told_first_that_it_waits(desk: Desk) -> None:
    desk.recorder.failed_scheduling(pod("p", 12), no_fit(8))
    desk.recorder.scheduled(pod("p", 12), "n1")
    assert [event.reason for event in (await desk.flush()).events] == ["Scheduled"]


async def test_reasons_that_alternate_are_series_of_their_own(desk: Desk) -> None:
    for diagnosis in (no_fit(8), OTHER) * 3:
        desk.recorder.failed_scheduling(pod("p", 12), diagnosis)
        written = await desk.flush()
        desk.now_s += QUIET_S
    assert (len(written.events), [series.count for series in written.series]) == (2, [2, 2, 3, 3])


async def test_a_clock_that_is_set_back_delays_nothing(desk: Desk) -> None:

    async def is_tried(most_free: int) -> None:
        desk.recorder.failed_scheduling(pod("p", 12), no_fit(most_free))
        desk.recorder.about("Node", "n1", "uid-n1", "BadAnnotation", "says nothing")
        await desk.flush()
        desk.now_s += QUIET_S

    await is_tried(8)
    desk.set_s = -3600.0
    await is_tried(6)
    await is_tried(4)

    written = await desk.flush()
    assert [condition.message for condition in written.conditions] == [no_fit(n).message for n in (8, 6, 4)]
    first_s = written.events[0].time_s
    assert {(one.count, one.last_time_s - first_s) for one in written.series} == {
        (2, QUIET_S - 3600.0),
        (3, 2 * QUIET_S - 3600.0),
    }
    desk.recorder.scheduled(pod("p", 12), "n1")
    (bound,) = (await desk.flush()).events[2:]
    assert bound.time_s == first_s + 3 * QUIET_S - 3600.0


async def test_what_was_told_is_forgotten_with_the_pods() -> None:
    messages = PodMessages(lambda uid: uid.endswith("-stays"))
    for number in range(1000):
        messages.update(pod(f"p{number}", 12), PodMessage("R", "m", ("m",), 0.0, 0.0))
    messages.update(pod("stays", 12), PodMessage("R", "m", ("m",), 0.0, 0.0))
    for number in range(1000):
        messages.update(pod(f"q{number}", 12), PodMessage("R", "m", ("m",), 0.0, 0.0))
    assert len(messages) <= 4
    assert messages.find(pod("stays", 12).key.uid) is not None


async def test_entries_trickle_while_a_backlog_is_bound_and_all_go_out_afterwards() -> None:
    backlog = [True]
    desk = Desk(busy=lambda: backlog[0])
    for number in range(40):
        desk.recorder.scheduled(pod(f"p{number}", 3), "n1")
    running = asyncio.create_task(desk.recorder.run())
    async with asyncio.timeout(10):
        await desk.written.wrote.wait()
        assert len(desk.written.events) < 10
        backlog[0] = False
        while desk.recorder.pending:
            desk.written.wrote.clear()
            await desk.written.wrote.wait()
    running.cancel()
    assert len(desk.written.events) == 40


def test_pauses_shorter_than_the_programs_event_loop_counts_do_no_harm(monkeypatch: pytest.MonkeyPatch) -> None:
    # uvloop counts milliseconds; shorter delays have no time of their own.
    monkeypatch.setattr("scheduler.dispatch.recorder._TRICKLE_S", 0.0003)

    async def main() -> list[str]:
        desk = Desk(busy=lambda: True)
        running = asyncio.create_task(desk.recorder.run())
        await asyncio.sleep(0)
        for number in range(200):
            desk.recorder.scheduled(pod(f"p{number}", 3, namespace=f"n{number % 2}"), "n1")
        async with asyncio.timeout(10):
            while desk.recorder.pending:
                desk.written.wrote.clear()
                await desk.written.wrote.wait()
        running.cancel()
        return [event.object_name for event in desk.written.events]

    assert set(uvloop.run(main())) == {f"p{number}" for number in range(200)}
