"""Cluster events wake the pods that now fit, as many as fit, in queue order, before any pod behind them."""

from typing import Final

import numpy as np

from scheduler.queue.entry import PodState
from scheduler.state.amounts import Amount
from scheduler.state.changes import Change
from scheduler.state.minimum_request import NO_MINIMUM, MinimumRequest
from tests.scheduler.queue.toy_cluster import (
    ANY,
    ToyCluster,
    events_on,
    full,
    in_vain,
    key_of,
    plenty,
    pod,
    pods,
    with_labels,
)

# Above `scheduler.queue.unschedulable_pods._MOST_HINTS`.
MORE_THAN_A_POD_WAITS_FOR: Final = 300


def test_only_pods_that_could_now_fit_are_asked_about() -> None:
    cluster = full(pod("big", 5), pod("small", 2), pod("middle", 3))
    cluster.free(0, 2)
    assert cluster.settle() == ["small"]
    assert [hint.pod.key.name for hint in cluster.asked] == ["small"]


def test_as_many_pods_are_tried_as_the_freed_place_can_hold_in_queue_order() -> None:
    cluster = full(*pods(5), pod("urgent", priority=1))
    cluster.free(0, 3)
    assert cluster.settle() == ["urgent", "p0", "p1"]


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
        assert len(cluster.asked_in_vain()) == MORE_THAN_A_POD_WAITS_FOR


def test_a_new_pod_is_not_held_up_by_more_than_some_dozen_questions_about_its_equals() -> None:
    waiting = [with_labels(pod(f"w{index}"), app=str(index)) for index in range(MORE_THAN_A_POD_WAITS_FOR)]
    cluster = full(*waiting)
    cluster.add(pod("new"))
    cluster.queue.note_events(events_on(0))
    asked = cluster.asked_in_vain()
    assert len(asked) < MORE_THAN_A_POD_WAITS_FOR
    assert cluster.queue.pop(0.0) is not None
    # The round continues.
    assert cluster.the_hint().signature not in {before.signature for before in asked}


def test_rows_are_not_asked_about_again_until_they_open() -> None:
    cluster = full(pod("p", 4), rows=3)
    for row in range(2):
        cluster.queue.note_events(events_on(row))
        hint = cluster.the_hint()
        assert hint.rows == frozenset({row})
        cluster.queue.fits_not(hint, wakes_on=ANY)
    assert cluster.queue.next_hint(plenty) is None


def test_a_change_that_concerns_no_row_is_a_question_about_all_rows() -> None:
    cluster = full(pod("p"), pod("q", 2), rows=2)
    cluster.room[1] = 1
    cluster.queue.note_events(events_on(everywhere=ANY))
    assert cluster.settle() == ["p"]
    assert [hint.rows for hint in cluster.asked] == [None, None]


def test_classes_are_asked_for_in_the_order_of_their_best_pods() -> None:
    cluster = full(pod("late", 3), pod("later", 2), pod("first", 4, priority=2), pod("second", 2, priority=1))
    cluster.queue.note_events(events_on(0))
    assert [hint.pod.key.name for hint in cluster.asked_in_vain()] == ["first", "second", "late"]


def test_rows_that_open_during_a_round_are_offered_to_the_best_class_first() -> None:
    cluster = full(pod("best", 3, priority=9), pod("other", 2), rows=2)
    cluster.queue.note_events(events_on(0))
    asked = []

    def ask() -> None:
        hint = cluster.the_hint()
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
    cluster = in_vain(pod("p"), wakes_on=int(Change.TAINTS))
    cluster.queue.note_events(events_on(0, kinds=int(Change.LABELS), everywhere=int(Change.DOMAINS)))
    assert cluster.queue.next_hint(plenty) is None
    cluster.queue.note_events(events_on(0, kinds=int(Change.TAINTS)))
    assert cluster.queue.next_hint(plenty) is not None


def test_a_class_that_is_ruled_out_by_what_is_left_wakes_when_there_is_more() -> None:
    # Its node was tainted, and is full when the taint goes: it waits for room now.
    minimum = MinimumRequest(amounts=np.full(len(Amount), 1, dtype=np.int64))
    cluster = in_vain(pod("p"), wakes_on=int(Change.TAINTS), minimum=minimum)
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
    hint = cluster.the_hint()
    assert (hint.pod.key.name, hint.rows) == ("waits", None)


# Places shown in vain: a Permit plugin rejects the pod


def _in_vain(cluster: ToyCluster) -> str:
    cluster.run_hint()
    queued = cluster.queue.pop(cluster.now_s)
    assert queued is not None
    uid, signature = queued.pod.key.uid, key_of(queued.pod)
    cluster.queue.unschedulable(uid, signature, cluster.now_s, wakes_on=ANY, rejected=True)
    return uid


def test_a_place_shown_in_vain_goes_to_the_next_one_and_the_first_backs_off() -> None:
    cluster = full(*pods(2))
    cluster.free(0, 1)
    assert _in_vain(cluster) == "p0"
    assert cluster.queue.state("p0") is PodState.BACKING_OFF
    assert cluster.settle() == ["p1"]
    assert cluster.queue.state("p0") is PodState.BACKING_OFF


def test_a_pod_that_was_shown_a_place_in_vain_tries_again_after_its_no_fit_back_off() -> None:
    cluster = full(pod("p"))
    cluster.free(0, 1)
    _in_vain(cluster)
    assert cluster.settle() == []
    assert cluster.queue.next_ready_s() == 2.0
    cluster.after(2)
    assert cluster.settle() == ["p"]
    assert "p" in cluster.placed


def test_pods_that_are_shown_places_in_vain_do_not_wake_each_other() -> None:
    cluster = full(*pods(2))
    for _ in range(2):
        cluster.free(0, 1)
        _in_vain(cluster)
        cluster.queue.note_events(events_on(0))
    assert cluster.settle() == []


def test_a_pod_that_was_shown_a_place_in_vain_is_tried_at_once_when_it_changes() -> None:
    cluster = full(pod("p"))
    cluster.free(0, 1)
    _in_vain(cluster)
    cluster.add(with_labels(pod("p"), app="x"))
    assert cluster.queue.state("p") is PodState.ACTIVE


# Classes whose signature changes


def test_pods_whose_class_has_split_are_moved_and_asked_for_one_by_one() -> None:
    cluster = full(*pods(3), rows=2)
    cluster.queue.note_events(events_on(1))
    seen = []
    while (hint := cluster.queue.next_hint(plenty)) is not None:
        uid = hint.pod.key.uid
        seen.append((uid, hint.signature == uid, hint.rows))
        if hint.signature == uid:
            cluster.queue.fits_not(hint, wakes_on=ANY)
        else:
            cluster.queue.reclassify(hint, uid, NO_MINIMUM)
        cluster.queue.validate()
    # The answer to an old class says nothing about a new one.
    assert sorted(seen, key=str) == [(f"p{n}", new, None if new else {1}) for n in range(3) for new in (False, True)]


def test_a_pod_that_joins_a_class_that_waits_shares_its_answers() -> None:
    cluster = full(pod("p", 2), pod("q", 1))
    cluster.queue.note_events(events_on(0))
    hint = cluster.the_hint()
    cluster.queue.fits_not(hint, wakes_on=ANY)
    other = cluster.queue.next_hint(plenty)
    assert other is not None
    cluster.queue.reclassify(other, hint.signature, NO_MINIMUM)
    assert cluster.queue.next_hint(plenty) is None
    cluster.queue.validate()


def test_classes_whose_pods_have_left_are_forgotten() -> None:
    cluster = full(*[with_labels(pod(f"p{index}"), app=str(index)) for index in range(500)])
    cluster.free(0, 500)
    assert len(cluster.settle()) == 500
    assert len(cluster.queue._no_fit._at) == 0  # noqa: SLF001 - what it holds on to is the point
