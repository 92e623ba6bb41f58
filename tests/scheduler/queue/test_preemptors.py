"""Classes of waiting pods that cluster events make due for a search."""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace as replace_fields
from typing import Final

import numpy as np
import pytest
from msgspec.structs import replace

from scheduler.pods.pod import Pod
from scheduler.queue.preemptors import DueSearch, Preemptors
from scheduler.state.amounts import Amount, AvailableOnCards
from scheduler.state.changes import Change, ClusterEvents
from scheduler.state.columns.arrays import Int64Array, RowArray
from scheduler.state.minimum_request import NO_MINIMUM, MinimumRequest
from tests.support.builders import pod

PODS: Final = int(Change.PODS)
LABELS: Final = int(Change.LABELS)


class Left:
    """This much cpu remains on every row without pods of lower priority."""

    def __init__(self, cpu: int) -> None:
        self.cpu = cpu
        self.asked = 0

    def amounts(self, rows: RowArray) -> Int64Array:
        self.asked += 1
        found = np.zeros((len(Amount), len(rows)), dtype=np.int64)
        found[Amount.CPU_MILLIS] = self.cpu
        return found

    def cards(self, row: int) -> AvailableOnCards:
        raise AssertionError(row)

    @contextmanager
    def seen_by(self, _pod: Pod) -> Iterator["Left"]:
        yield self


class WithoutCards(Left):
    """Rows without cards."""

    def cards(self, row: int) -> AvailableOnCards:  # noqa: ARG002 - of each
        none = np.zeros(0, dtype=np.int64)
        return AvailableOnCards(none, none.astype(np.bool_), none, none, none)


def cpu(millis: int) -> MinimumRequest:
    minimum = NO_MINIMUM.amounts.copy()
    minimum[Amount.CPU_MILLIS] = millis
    return replace_fields(NO_MINIMUM, amounts=minimum)


def waiting(*names: str, priority: int = 10, minimum: MinimumRequest = NO_MINIMUM) -> Preemptors:
    preemptors = Preemptors()
    for name in names:
        add(preemptors, name, priority=priority, minimum=minimum)
    return preemptors


def add(preemptors: Preemptors, name: str, *, priority: int = 10, minimum: MinimumRequest = NO_MINIMUM) -> None:
    one = replace(pod(name), priority=priority)
    preemptors.add(name.partition("-")[0], one, wakes_on=PODS, minimum=minimum, unanswered=False)


def events_on(row: int = 3, kinds: int = PODS, **up_to: int) -> ClusterEvents:
    events = ClusterEvents()
    events.note(row, kinds, **up_to)
    return events


def questions(preemptors: Preemptors, left_for: Callable[[Pod], AbstractContextManager[Left]]) -> list[DueSearch]:
    preemptors.settle(left_for)
    found = []
    while (due := preemptors.take({})) is not None:
        found.append(due)
    return found


@pytest.mark.parametrize(
    ("events", "rows"),
    [
        pytest.param(events_on(), [frozenset({3})], id="a node changes"),
        pytest.param(events_on(up_to=10), [frozenset({3})], id="a pod of the same priority leaves"),
        pytest.param(events_on(up_to=9), [], id="a pod of lower priority leaves"),
        pytest.param(events_on(kinds=LABELS), [], id="nothing that rules look at"),
    ],
)
def test_a_class_is_asked_about_what_lower_pods_do_not_stand_for(
    events: ClusterEvents, rows: list[frozenset[int]]
) -> None:
    preemptors = waiting("a-1", "a-2")

    preemptors.note(events)

    assert [due.rows for due in questions(preemptors, Left(0).seen_by)] == rows


def test_classes_for_which_too_little_is_left_are_not_asked() -> None:
    preemptors = waiting("a-1", minimum=cpu(200))
    add(preemptors, "b-1", minimum=cpu(100))

    preemptors.note(events_on())

    assert [due.pod.key.name for due in questions(preemptors, Left(150).seen_by)] == ["b-1"]


@pytest.mark.parametrize("kinds", [Change.REJECTIONS, Change.VOLUMES])
def test_rows_that_are_allowed_by_now_are_asked_about(kinds: Change) -> None:
    preemptors, left = Preemptors(), WithoutCards(0)
    nowhere = replace_fields(NO_MINIMUM, rows=(0, 0))
    one = replace(pod("p"), priority=10)
    preemptors.add("p", one, wakes_on=PODS | int(kinds), minimum=nowhere, unanswered=False)
    everywhere = ClusterEvents()
    everywhere.note_everywhere(int(kinds))

    asked = []
    for events in (events_on(), everywhere, events_on()):
        preemptors.note(events)
        asked.append([due.rows for due in questions(preemptors, left.seen_by)])

    assert asked == [[], [None], [frozenset({3})]]


def test_after_a_pod_was_helped_the_others_are_held_against_what_is_left() -> None:
    preemptors, left = waiting("a-1", "a-2"), Left(100)
    add(preemptors, "b-1", priority=9, minimum=cpu(100))
    preemptors.note(events_on())
    preemptors.settle(left.seen_by)
    first = preemptors.take({})
    assert first is not None

    preemptors.again(first)
    preemptors.discard("uid-default-a-1")
    left.cpu = 50

    assert [due.pod.key.name for due in questions(preemptors, left.seen_by)] == ["a-2"]


def test_the_best_class_comes_first_and_a_pod_without_an_answer_before_the_others_of_its_class() -> None:
    preemptors = waiting("a-1", "a-2", priority=5)
    add(preemptors, "b-1", priority=7)
    preemptors.note(events_on())
    preemptors.add("a", replace(pod("a-2"), priority=5), wakes_on=PODS, minimum=NO_MINIMUM, unanswered=True)

    found = questions(preemptors, Left(0).seen_by)

    assert [(due.pod.key.name, due.unanswered) for due in found] == [("b-1", False), ("a-2", True)]


def test_a_class_that_is_turned_away_keeps_no_other_waiting() -> None:
    preemptors = waiting("a-1", "a-2", priority=7)
    preemptors.add(
        "a", replace(pod("other", namespace="few"), priority=7), wakes_on=PODS, minimum=NO_MINIMUM, unanswered=True
    )
    add(preemptors, "b-1", priority=5)
    preemptors.note(events_on())
    preemptors.settle(Left(0).seen_by)

    assert preemptors.first_priority({"default": 7}) == 7
    found = preemptors.take({"default": 7})
    assert found is not None
    assert found.pod.key.name == "other"
    preemptors.discard(found.pod.key.uid)
    asked: tuple[dict[str, float], ...] = (
        {"default": 7},
        {"default": 6},
        {"": 7},
        {"": 7, "default": 6},
        {"other": 9},
        {},
    )
    assert [preemptors.first_priority(closed) for closed in asked] == [None, 7, None, 7, 7, 7]


def test_fifty_thousand_pods_are_one_question_for_each_class() -> None:
    preemptors, left = Preemptors(), Left(0)
    template = pod("p")
    for number in range(50_000):
        key = replace(template.key, name=f"p{number}", uid=f"p{number}")
        one = replace(template, key=key, priority=10)
        preemptors.add(number % 500, one, wakes_on=PODS, minimum=NO_MINIMUM, unanswered=False)
    for row in range(8):
        preemptors.note(events_on(row))

    assert len(questions(preemptors, left.seen_by)) == 500
    assert left.asked == 1
    assert questions(preemptors, left.seen_by) == []


def test_who_has_left_leaves_nothing_behind() -> None:
    preemptors = waiting("a-1", "a-2")
    for name in ("a-1", "a-2", "a-2"):
        preemptors.discard(f"uid-default-{name}")

    preemptors.note(events_on())

    assert len(preemptors) == 0
    assert not preemptors.any_due
