"""Cluster events wake the pods that now fit, as many as fit, in queue order, before any pod behind them."""

from typing import Final

import numpy as np

from scheduler.queue.entry import PodState
from scheduler.state.amounts import Amount
from scheduler.state.changes import Change
from scheduler.state.minimum_request import MinimumRequest
from tests.scheduler.queue.toy_cluster import ANY, ToyCluster, events_on, full, plenty, pod, pods, with_labels

# Above `scheduler.queue.unschedulable_pods._MOST_HINTS`.
MORE_THAN_A_POD_WAITS_FOR: Final = 300


def _rows_asked(cluster: ToyCluster) -> list[list[int] | None]:
    return [None if hint.rows is None else sorted(hint.rows) for hint in cluster.asked]


def _names_asked(cluster: ToyCluster) -> list[str]:
    return [hint.pod.key.name for hint in cluster.asked]


def test_a_pod_waiting_for_card_memory_is_retried_at_once_when_that_memory_frees_whatever_its_no_fit_back_off() -> None:
    cluster = full(pod("p", 3))
    for _ in range(9):
        cluster.after(11)
        cluster.add(with_labels(pod("p", 3), attempt=str(cluster.now_s)))
        cluster.settle()
    cluster.add(pod("p", 3))
    cluster.after(11)
    cluster.settle()
    cluster.free(0, 3)
    assert cluster.settle() == ["p"]
    assert "p" in cluster.placed


def test_only_pods_that_could_now_fit_are_asked_about() -> None:
    cluster = full(pod("big", 5), pod("small", 2), pod("middle", 3))
    cluster.free(0, 2)
    assert cluster.settle() == ["small"]
    assert _names_asked(cluster) == ["small"]


def test_as_many_pods_are_tried_as_the_freed_place_can_hold_in_queue_order() -> None:
    cluster = full(*pods(5), pod("urgent", priority=1))
    cluster.free(0, 3)
    assert cluster.settle() == ["urgent", "p0", "p1"]


def test_places_freed_on_several_rows_are_all_taken() -> None:
    cluster = full(*pods(5, units=2), rows=3)
    for row in range(3):
        cluster.free(row, 3)
    assert cluster.settle() == ["p0", "p1", "p2"]


def test_two_hundred_places_lead_to_two_hundred_attempts_whatever_number_of_classes_waits() -> None:
    waiting = [with_labels(pod(f"p{index}"), app=str(index % 50)) for index in range(2000)]
    cluster = full(*waiting, rows=200)
    for row in range(200):
        cluster.free(row, 1)
    assert cluster.settle() == [f"p{index}" for index in range(200)]
    # One hint per fit, and none for the remaining classes once the room is taken.
    assert len(cluster.asked) == 200


def test_a_better_pod_is_never_passed_by_newcomers_while_a_still_better_one_is_asked_in_vain() -> None:
    cluster = full(with_labels(pod("in vain", priority=2000), picky="yes"), pod("fits", priority=1000))
    for number in range(20):
        cluster.add(pod(f"newcomer-{number}"))
    cluster.free(0, 1)
    while (hint := cluster.queue.next_hint(plenty)) is not None:
        if hint.pod.labels:
            cluster.queue.fits_not(hint, wakes_on=ANY)
        else:
            cluster.queue.fits(hint, 0.0)
    assert cluster.decide() == "fits"


def test_a_pod_that_sorts_before_those_that_wait_is_not_held_up_by_them() -> None:
    cluster = full(pod("waits"))
    cluster.add(pod("urgent", priority=1))
    cluster.free(0, 1)
    assert cluster.next_hint() is None
    assert cluster.settle() == ["urgent"]


def test_what_the_pod_before_them_has_taken_is_not_asked_about() -> None:
    cluster = full(*[pod(f"waits-{units}", units) for units in (1, 2, 3)])
    cluster.add(pod("urgent", 3, priority=1))
    cluster.free(0, 3)
    assert cluster.settle() == ["urgent"]
    assert cluster.asked == []


def test_classes_of_a_better_priority_are_all_asked_before_a_pod_is_decided() -> None:
    waiting = [with_labels(pod(f"w{index}", priority=1), app=str(index)) for index in range(MORE_THAN_A_POD_WAITS_FOR)]
    cluster = full(*waiting)
    cluster.add(pod("new"))
    for _ in range(2):
        cluster.queue.note_events(events_on(0))
        asked = 0
        while (hint := cluster.queue.next_hint(plenty)) is not None:
            asked += 1
            cluster.queue.fits_not(hint, wakes_on=ANY)
        assert asked == MORE_THAN_A_POD_WAITS_FOR


def test_a_new_pod_is_not_held_up_by_more_than_some_dozen_questions_about_its_equals() -> None:
    waiting = [with_labels(pod(f"w{index}"), app=str(index)) for index in range(MORE_THAN_A_POD_WAITS_FOR)]
    cluster = full(*waiting)
    cluster.add(pod("new"))
    cluster.queue.note_events(events_on(0))
    asked = []
    while (hint := cluster.queue.next_hint(plenty)) is not None:
        asked.append(hint)
        cluster.queue.fits_not(hint, wakes_on=ANY)
    assert len(asked) < MORE_THAN_A_POD_WAITS_FOR
    assert cluster.queue.pop(0.0) is not None
    # The round continues.
    hint = cluster.queue.next_hint(plenty)
    assert hint is not None
    assert hint.signature not in {before.signature for before in asked}


def test_the_next_one_follows_when_the_woken_one_is_deleted() -> None:
    cluster = full(*pods(2))
    cluster.free(0, 1)
    cluster.run_hint()
    cluster.queue.delete("p0")
    assert cluster.settle() == ["p1"]


def test_the_next_one_follows_when_the_woken_one_asks_for_something_else() -> None:
    cluster = full(*pods(2))
    cluster.free(0, 1)
    cluster.run_hint()
    cluster.add(pod("p0", 5))
    assert cluster.settle() == ["p0", "p1"]
    assert set(cluster.placed) == {"p1"}


def test_the_next_one_follows_when_the_bind_of_the_woken_one_fails() -> None:
    cluster = full(*pods(2))
    cluster.free(0, 1)
    assert cluster.settle() == ["p0"]
    cluster.bind_failed("p0")
    assert cluster.settle() == ["p1"]
    assert cluster.queue.state("p0") is PodState.BACKING_OFF


def test_rows_are_not_asked_about_again_until_they_open() -> None:
    cluster = full(pod("p", 4), rows=3)
    for row in range(2):
        cluster.queue.note_events(events_on(row))
        hint = cluster.queue.next_hint(plenty)
        assert hint is not None
        assert hint.rows == frozenset({row})
        cluster.queue.fits_not(hint, wakes_on=ANY)
    assert cluster.queue.next_hint(plenty) is None


def test_a_change_that_concerns_no_row_is_a_question_about_all_rows() -> None:
    cluster = full(pod("p"), pod("q", 2), rows=2)
    cluster.room[1] = 1
    cluster.queue.note_events(events_on(everywhere=ANY))
    assert cluster.settle() == ["p"]
    assert _rows_asked(cluster) == [None, None]


def test_classes_are_asked_for_in_the_order_of_their_best_pods() -> None:
    cluster = full(pod("late", 3), pod("later", 2), pod("first", 4, priority=2), pod("second", 2, priority=1))
    cluster.queue.note_events(events_on(0))
    asked = []
    while (hint := cluster.queue.next_hint(plenty)) is not None:
        asked.append(hint.pod.key.name)
        cluster.queue.fits_not(hint, wakes_on=ANY)
    assert asked == ["first", "second", "late"]


def test_a_freed_place_goes_to_the_better_pod_of_another_class_before_the_next_of_this_one() -> None:
    cluster = full(pod("best", 2, priority=9), pod("between", 1, priority=5), pod("worst", 2))
    cluster.free(0, 4)
    assert cluster.settle() == ["best", "between"]
    assert set(cluster.placed) == {"best", "between"}


def test_rows_that_open_during_a_round_are_offered_to_the_best_class_first() -> None:
    cluster = full(pod("best", 3, priority=9), pod("other", 2), rows=2)
    cluster.queue.note_events(events_on(0))
    asked = []

    def ask() -> None:
        hint = cluster.queue.next_hint(plenty)
        assert hint is not None
        asked.append(hint)
        cluster.queue.fits_not(hint, wakes_on=ANY)

    ask()
    cluster.queue.note_events(events_on(1))
    for _ in range(3):
        ask()
    assert [(hint.pod.key.name, hint.rows) for hint in asked] == [
        ("best", frozenset({0})),
        ("other", frozenset({0})),
        ("best", frozenset({1})),
        ("other", frozenset({1})),
    ]


def test_a_better_pod_that_joins_moves_its_class_forward() -> None:
    cluster = full(pod("a", 2, priority=1), pod("b", 3))
    cluster.add(pod("b-urgent", 3, priority=5))
    cluster.settle()
    cluster.queue.note_events(events_on(0))
    hint = cluster.queue.next_hint(plenty)
    assert hint is not None
    assert hint.pod.key.name == "b-urgent"


def test_a_question_may_be_asked_again_before_it_is_answered() -> None:
    cluster = full(pod("p"))
    cluster.free(0, 1)
    assert cluster.next_hint() == cluster.next_hint()
    assert cluster.settle() == ["p"]


def test_the_answer_to_a_question_whose_pods_have_left_wakes_nobody() -> None:
    cluster = full(pod("p"))
    cluster.free(0, 1)
    hint = cluster.next_hint()
    cluster.queue.delete("p")
    assert hint is not None
    cluster.queue.fits(hint, 0.0)
    cluster.queue.fits_not(hint, wakes_on=ANY)
    assert cluster.queue.lengths()["active"] == 0
    cluster.queue.validate()


def test_changes_while_nobody_waits_are_not_kept() -> None:
    cluster = ToyCluster(0)
    cluster.queue.note_events(events_on(0))
    cluster.queue.note_events(events_on(everywhere=ANY))
    cluster.add(pod("p"))
    cluster.settle()
    assert cluster.asked == []


def test_a_change_of_a_kind_that_no_rule_of_the_class_looks_at_is_no_question() -> None:
    cluster = ToyCluster(0)
    cluster.add(pod("p"))
    cluster.queue.pop(0.0)
    cluster.queue.unschedulable("p", "class", 0.0, wakes_on=int(Change.TAINTS))
    cluster.queue.note_events(events_on(0, kinds=int(Change.LABELS), everywhere=int(Change.DOMAINS)))
    assert cluster.queue.next_hint(plenty) is None
    cluster.queue.note_events(events_on(0, kinds=int(Change.TAINTS)))
    assert cluster.queue.next_hint(plenty) is not None


def test_a_class_that_is_ruled_out_by_what_is_left_wakes_when_there_is_more() -> None:
    # Its node was tainted, and is full when the taint goes: it waits for room now.
    cluster = ToyCluster(0)
    cluster.add(pod("p"))
    cluster.queue.pop(0.0)
    minimum = MinimumRequest(amounts=np.full(len(Amount), 1, dtype=np.int64))
    cluster.queue.unschedulable("p", "class", 0.0, wakes_on=int(Change.TAINTS), minimum=minimum)
    cluster.queue.note_events(events_on(0, kinds=int(Change.TAINTS)))
    assert cluster.next_hint() is None
    cluster.queue.note_events(events_on(0, kinds=int(Change.CARDS)))
    assert cluster.queue.next_hint(plenty) is not None


def test_many_rows_that_open_at_once_are_asked_about_whatever_their_number() -> None:
    cluster = full(*[with_labels(pod(f"p{index}", 2), app=str(index)) for index in range(100)], rows=5000)
    for row in range(4999):
        cluster.free(row, 1)
    cluster.free(4999, 2)
    assert cluster.settle() == ["p0"]


def test_a_class_that_is_not_asked_for_long_is_asked_about_all_rows_in_the_end() -> None:
    cluster = full(pod("waits"), rows=10)
    cluster.add(pod("urgent", priority=1))
    for _ in range(500):
        # Each is a round of its own, since no class before "urgent" is due; "urgent" waits for a bounded time.
        cluster.queue.note_events(events_on(*range(10)))
        assert cluster.queue.next_hint(plenty) is None
    assert cluster.queue.pop(0.0) is not None
    hint = cluster.queue.next_hint(plenty)
    assert hint is not None
    assert (hint.pod.key.name, hint.rows) == ("waits", None)
