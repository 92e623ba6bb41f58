"""What opens wakes the pods that now fit, as many as fit, in queue order, before any pod that sorts behind them."""

from dataclasses import replace
from typing import Final

import numpy as np

from scheduler.pods.pod import Pod
from scheduler.queue.entry import State
from scheduler.state.amounts import Amount
from scheduler.state.arrays import Int64Array, RowArray
from scheduler.state.changes import Change
from tests.scheduler.queue.toy_cluster import ANY, ToyCluster, full, key_of, opened, pod, with_labels

# Above `scheduler.queue.unschedulable_pods._MOST_CHECKS`.
MORE_THAN_A_POD_WAITS_FOR: Final = 300


def _pods(count: int, units: int = 1, prefix: str = "p") -> list[Pod]:
    return [pod(f"{prefix}{index}", units) for index in range(count)]


def _rows_asked(cluster: ToyCluster) -> list[list[int] | None]:
    return [None if check.rows is None else sorted(check.rows) for check in cluster.asked]


def _names_asked(cluster: ToyCluster) -> list[str]:
    return [check.pod.key.name for check in cluster.asked]


def _plenty(rows: RowArray) -> Int64Array:
    """Nothing that is measured is short: the rules alone decide."""
    return np.full((len(Amount), len(rows)), 1000, dtype=np.int64)


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
    cluster = full(*_pods(5), pod("urgent", priority=1))
    cluster.free(0, 3)
    assert cluster.settle() == ["urgent", "p0", "p1"]


def test_places_freed_on_several_rows_are_all_taken() -> None:
    cluster = full(*_pods(5, units=2), rows=3)
    for row in range(3):
        cluster.free(row, 3)
    assert cluster.settle() == ["p0", "p1", "p2"]


def test_two_hundred_places_lead_to_two_hundred_attempts_whatever_number_of_classes_waits() -> None:
    waiting = [with_labels(pod(f"p{index}"), app=str(index % 50)) for index in range(2000)]
    cluster = full(*waiting, rows=200)
    for row in range(200):
        cluster.free(row, 1)
    assert cluster.settle() == [f"p{index}" for index in range(200)]
    # One question per place, and none of the classes that are left when the places are gone.
    assert len(cluster.asked) == 200


def test_a_better_pod_is_never_passed_by_newcomers_while_a_still_better_one_is_asked_in_vain() -> None:
    cluster = full(with_labels(pod("in vain", priority=2000), picky="yes"), pod("fits", priority=1000))
    for number in range(20):
        cluster.add(pod(f"newcomer-{number}"))
    cluster.free(0, 1)
    while (check := cluster.queue.next_check(_plenty)) is not None:
        if check.pod.labels:
            cluster.queue.fits_not(check, wakes_on=ANY)
        else:
            cluster.queue.fits(check, 0.0)
    assert cluster.decide() == "fits"


def test_a_pod_that_sorts_before_those_that_wait_is_not_held_up_by_them() -> None:
    cluster = full(pod("waits"))
    cluster.add(pod("urgent", priority=1))
    cluster.free(0, 1)
    assert cluster.next_check() is None
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
        cluster.queue.opened(opened(0))
        asked = 0
        while (check := cluster.queue.next_check(_plenty)) is not None:
            asked += 1
            cluster.queue.fits_not(check, wakes_on=ANY)
        assert asked == MORE_THAN_A_POD_WAITS_FOR


def test_a_new_pod_is_not_held_up_by_more_than_some_dozen_questions_about_its_equals() -> None:
    waiting = [with_labels(pod(f"w{index}"), app=str(index)) for index in range(MORE_THAN_A_POD_WAITS_FOR)]
    cluster = full(*waiting)
    cluster.add(pod("new"))
    cluster.queue.opened(opened(0))
    asked = []
    while (check := cluster.queue.next_check(_plenty)) is not None:
        asked.append(check)
        cluster.queue.fits_not(check, wakes_on=ANY)
    assert len(asked) < MORE_THAN_A_POD_WAITS_FOR
    assert cluster.queue.pop(0.0) is not None
    # The round goes on where it was.
    check = cluster.queue.next_check(_plenty)
    assert check is not None
    assert check.signature not in {before.signature for before in asked}


def test_the_next_one_follows_when_the_woken_one_is_deleted() -> None:
    cluster = full(*_pods(2))
    cluster.free(0, 1)
    cluster.check()
    cluster.queue.delete("p0")
    assert cluster.settle() == ["p1"]


def test_the_next_one_follows_when_the_woken_one_asks_for_something_else() -> None:
    cluster = full(*_pods(2))
    cluster.free(0, 1)
    cluster.check()
    cluster.add(pod("p0", 5))
    assert cluster.settle() == ["p0", "p1"]
    assert set(cluster.placed) == {"p1"}


def test_the_next_one_follows_when_the_bind_of_the_woken_one_fails() -> None:
    cluster = full(*_pods(2))
    cluster.free(0, 1)
    assert cluster.settle() == ["p0"]
    cluster.refused("p0")
    assert cluster.settle() == ["p1"]
    assert cluster.queue.state("p0") is State.BACKING_OFF


def test_rows_are_not_asked_about_again_until_they_open() -> None:
    cluster = full(pod("p", 4), rows=3)
    for row in range(2):
        cluster.queue.opened(opened(row))
        check = cluster.queue.next_check(_plenty)
        assert check is not None
        assert check.rows == frozenset({row})
        cluster.queue.fits_not(check, wakes_on=ANY)
    assert cluster.queue.next_check(_plenty) is None


def test_a_change_that_concerns_no_row_is_a_question_about_all_rows() -> None:
    cluster = full(pod("p"), pod("q", 2), rows=2)
    cluster.room[1] = 1
    cluster.queue.opened(opened(everywhere=ANY))
    assert cluster.settle() == ["p"]
    assert _rows_asked(cluster) == [None, None]


def test_classes_are_asked_for_in_the_order_of_their_best_pods() -> None:
    cluster = full(pod("late", 3), pod("later", 2), pod("first", 4, priority=2), pod("second", 2, priority=1))
    cluster.queue.opened(opened(0))
    asked = []
    while (check := cluster.queue.next_check(_plenty)) is not None:
        asked.append(check.pod.key.name)
        cluster.queue.fits_not(check, wakes_on=ANY)
    assert asked == ["first", "second", "late"]


def test_a_freed_place_goes_to_the_better_pod_of_another_class_before_the_next_of_this_one() -> None:
    cluster = full(pod("best", 2, priority=9), pod("between", 1, priority=5), pod("worst", 2))
    cluster.free(0, 4)
    assert cluster.settle() == ["best", "between"]
    assert set(cluster.placed) == {"best", "between"}


def test_rows_that_open_during_a_round_are_offered_to_the_best_class_first() -> None:
    cluster = full(pod("best", 3, priority=9), pod("other", 2), rows=2)
    cluster.queue.opened(opened(0))
    asked = []

    def ask() -> None:
        check = cluster.queue.next_check(_plenty)
        assert check is not None
        asked.append(check)
        cluster.queue.fits_not(check, wakes_on=ANY)

    ask()
    cluster.queue.opened(opened(1))
    for _ in range(3):
        ask()
    assert [(check.pod.key.name, check.rows) for check in asked] == [
        ("best", frozenset({0})),
        ("other", frozenset({0})),
        ("best", frozenset({1})),
        ("other", frozenset({1})),
    ]


def test_a_better_pod_that_joins_moves_its_class_forward() -> None:
    cluster = full(pod("a", 2, priority=1), pod("b", 3))
    cluster.add(pod("b-urgent", 3, priority=5))
    cluster.settle()
    cluster.queue.opened(opened(0))
    check = cluster.queue.next_check(_plenty)
    assert check is not None
    assert check.pod.key.name == "b-urgent"


def test_a_question_may_be_asked_again_before_it_is_answered() -> None:
    cluster = full(pod("p"))
    cluster.free(0, 1)
    assert cluster.next_check() == cluster.next_check()
    assert cluster.settle() == ["p"]


def test_the_answer_to_a_question_whose_pods_have_left_wakes_nobody() -> None:
    cluster = full(pod("p"))
    cluster.free(0, 1)
    check = cluster.next_check()
    cluster.queue.delete("p")
    assert check is not None
    cluster.queue.fits(check, 0.0)
    cluster.queue.fits_not(check, wakes_on=ANY)
    assert cluster.queue.lengths()["active"] == 0
    cluster.queue.validate()


def test_changes_while_nobody_waits_are_not_kept() -> None:
    cluster = ToyCluster(0)
    cluster.queue.opened(opened(0))
    cluster.queue.opened(opened(everywhere=ANY))
    cluster.add(pod("p"))
    cluster.settle()
    assert cluster.asked == []


def test_a_change_of_a_kind_that_no_rule_of_the_class_looks_at_is_no_question() -> None:
    cluster = ToyCluster(0)
    cluster.add(pod("p"))
    cluster.queue.pop(0.0)
    cluster.queue.unschedulable("p", "class", 0.0, wakes_on=int(Change.TAINTS))
    cluster.queue.opened(opened(0, kinds=int(Change.LABELS), everywhere=int(Change.DOMAINS)))
    assert cluster.queue.next_check(_plenty) is None
    cluster.queue.opened(opened(0, kinds=int(Change.TAINTS)))
    assert cluster.queue.next_check(_plenty) is not None


def test_a_class_that_is_ruled_out_by_what_is_left_wakes_when_there_is_more() -> None:
    # Its node was tainted, and is full by the time that the taint goes: what it waits for is another thing now.
    cluster = ToyCluster(0)
    cluster.add(pod("p"))
    cluster.queue.pop(0.0)
    least = np.full(len(Amount), 1, dtype=np.int64)
    cluster.queue.unschedulable("p", "class", 0.0, wakes_on=int(Change.TAINTS), least=least)
    cluster.queue.opened(opened(0, kinds=int(Change.TAINTS)))
    assert cluster.next_check() is None
    cluster.queue.opened(opened(0, kinds=int(Change.CARDS)))
    assert cluster.queue.next_check(_plenty) is not None


def test_many_rows_that_open_at_once_are_asked_about_whatever_their_number() -> None:
    cluster = full(*[with_labels(pod(f"p{index}", 2), app=str(index)) for index in range(100)], rows=5000)
    for row in range(4999):
        cluster.free(row, 1)
    cluster.free(4999, 2)
    assert cluster.settle() == ["p0"]


def test_a_class_that_was_not_asked_for_long_is_asked_about_all_rows() -> None:
    cluster = full(pod("best", 1, priority=9), pod("other", 2), rows=10)
    cluster.queue.opened(opened(0))
    check = cluster.queue.next_check(_plenty)
    assert check is not None
    cluster.queue.fits_not(check, wakes_on=ANY)
    for _ in range(1000):
        # "other" stays due, and what opens is for the next round.
        cluster.queue.opened(opened(*range(10)))
    check = cluster.queue.next_check(_plenty)
    assert check is not None
    assert (check.pod.key.name, check.rows) == ("other", frozenset({0}))


# A place that was shown in vain: a Permit plugin says no


def _in_vain(cluster: ToyCluster) -> str:
    cluster.check()
    queued = cluster.queue.pop(cluster.now_s)
    assert queued is not None
    uid, signature = queued.pod.key.uid, key_of(queued.pod)
    cluster.queue.unschedulable(uid, signature, cluster.now_s, wakes_on=ANY, in_vain=True)
    return uid


def test_a_place_shown_in_vain_goes_to_the_next_one_and_the_first_backs_off() -> None:
    cluster = full(*_pods(2))
    cluster.free(0, 1)
    assert _in_vain(cluster) == "p0"
    assert cluster.queue.state("p0") is State.BACKING_OFF
    assert cluster.settle() == ["p1"]
    assert cluster.queue.state("p0") is State.BACKING_OFF


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
    cluster = full(*_pods(2))
    for _ in range(2):
        cluster.free(0, 1)
        _in_vain(cluster)
        cluster.queue.opened(opened(0))
    assert cluster.settle() == []


def test_a_pod_that_was_shown_a_place_in_vain_is_tried_at_once_when_it_changes() -> None:
    cluster = full(pod("p"))
    cluster.free(0, 1)
    _in_vain(cluster)
    cluster.add(with_labels(pod("p"), app="x"))
    assert cluster.queue.state("p") is State.ACTIVE


def test_a_pod_whose_place_is_gone_when_it_is_tried_waits_for_the_next() -> None:
    cluster = full(*_pods(3))
    cluster.free(0, 1)
    cluster.check()
    cluster.room[0] = 0
    assert cluster.settle() == ["p0"]
    assert cluster.queue.lengths() == {"active": 0, "backoff": 0, "unschedulable": 3, "gated": 0}
    cluster.free(0, 1)
    assert cluster.settle() == ["p0"]


# Classes that are not what they were


def test_pods_whose_class_has_split_are_moved_and_asked_for_one_by_one() -> None:
    cluster = full(*_pods(3), rows=2)
    cluster.queue.opened(opened(1))
    seen = []
    while (check := cluster.queue.next_check(_plenty)) is not None:
        uid = check.pod.key.uid
        seen.append((uid, check.signature == uid, check.rows))
        if check.signature == uid:
            cluster.queue.fits_not(check, wakes_on=ANY)
        else:
            cluster.queue.reclassify(check, uid, np.zeros(len(Amount), dtype=np.int64))
        cluster.queue.validate()
    # What their class was asked about says nothing of a class that is new.
    assert sorted(seen, key=str) == [(f"p{n}", new, None if new else {1}) for n in range(3) for new in (False, True)]


def test_a_pod_that_joins_a_class_that_waits_shares_its_answers() -> None:
    cluster = full(pod("p", 2), pod("q", 1))
    cluster.queue.opened(opened(0))
    check = cluster.queue.next_check(_plenty)
    assert check is not None
    cluster.queue.fits_not(check, wakes_on=ANY)
    other = cluster.queue.next_check(_plenty)
    assert other is not None
    cluster.queue.reclassify(other, check.signature, np.zeros(len(Amount), dtype=np.int64))
    assert cluster.queue.next_check(_plenty) is None
    cluster.queue.validate()


def test_a_status_change_of_a_woken_pod_keeps_it_woken() -> None:
    cluster = full(*_pods(2))
    cluster.free(0, 1)
    cluster.check()
    cluster.add(replace(pod("p0"), reason="seen"))
    assert cluster.queue.state("p0") is State.ACTIVE
    assert cluster.settle() == ["p0"]


def test_classes_whose_pods_have_left_are_forgotten() -> None:
    cluster = full(*[with_labels(pod(f"p{index}"), app=str(index)) for index in range(500)])
    cluster.free(0, 500)
    assert len(cluster.settle()) == 500
    assert len(cluster.queue._no_fit._at) == 0  # noqa: SLF001 - what it holds on to is the point
