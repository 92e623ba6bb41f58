"""A change of the cluster wakes the pods that could now fit, as many as fit, in queue order, at once."""

from dataclasses import replace

import pytest

from scheduler.pods.pod import Pod
from scheduler.queue.entry import State
from scheduler.queue.waking import union
from tests.scheduler.queue.toy_cluster import ANY, ToyCluster, full, key_of, opened, pod, with_labels


def _pods(count: int, units: int = 1, prefix: str = "p") -> list[Pod]:
    return [pod(f"{prefix}{index}", units) for index in range(count)]


def _active(cluster: ToyCluster) -> int:
    return cluster.queue.lengths()["active"]


def _rows_asked(cluster: ToyCluster) -> list[list[int] | None]:
    return [None if check.rows is None else sorted(check.rows) for check in cluster.asked]


def test_a_pod_waiting_for_card_memory_is_retried_at_once_when_that_memory_frees_whatever_its_no_fit_back_off() -> None:
    cluster = full(pod("p", 3))
    for _ in range(9):
        cluster.add(with_labels(pod("p", 3), attempt="next"))
        cluster.add(pod("p", 3))
        cluster.settle()
    cluster.free(0, 3)
    assert cluster.settle() == ["p"]
    assert "p" in cluster.placed


def test_only_pods_that_could_now_fit_are_woken() -> None:
    cluster = full(pod("big", 5), pod("small", 2), pod("middle", 3))
    cluster.free(0, 2)
    assert cluster.check_all() == 1
    assert cluster.queue.state("small") is State.ACTIVE


def test_as_many_pods_are_woken_as_the_freed_place_can_hold_in_queue_order() -> None:
    cluster = full(*_pods(5), pod("urgent", priority=1))
    cluster.free(0, 3)
    assert cluster.check_all() == 3
    assert cluster.decide_all() == ["urgent", "p0", "p1"]


def test_places_freed_on_several_rows_add_up() -> None:
    cluster = full(*_pods(5, units=2), rows=3)
    for row in range(3):
        cluster.free(row, 3)
    assert cluster.check_all() == 3
    assert _rows_asked(cluster) == [[0, 1, 2]]


def test_pods_woken_and_not_decided_yet_use_the_place_that_they_were_woken_for() -> None:
    cluster = full(*_pods(5), rows=2)
    cluster.free(0, 2)
    cluster.check_all()
    cluster.free(1, 1)
    assert cluster.check_all() == 1
    assert _rows_asked(cluster) == [[0], [0, 1]]
    assert _active(cluster) == 3


def test_the_next_ones_follow_when_those_were_decided_and_the_place_is_still_free() -> None:
    cluster = full(*_pods(3, units=2), rows=2)
    cluster.free(1, 2)
    cluster.check_all()
    cluster.room[0] = 2  # nobody says so, but the woken pod prefers it
    assert cluster.settle() == ["p0", "p1"]
    assert {uid: row for uid, (_, row) in cluster.placed.items()} == {"p0": 0, "p1": 1}


def test_the_next_one_follows_when_the_woken_one_is_deleted() -> None:
    cluster = full(*_pods(2))
    cluster.free(0, 1)
    cluster.check_all()
    cluster.queue.delete("p0")
    assert cluster.settle() == ["p1"]


def test_the_next_one_follows_when_the_woken_one_asks_for_something_else() -> None:
    cluster = full(*_pods(2))
    cluster.free(0, 1)
    cluster.check_all()
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


def test_full_rows_are_not_asked_about_again_until_they_change() -> None:
    cluster = full(pod("p", 4), rows=2)
    cluster.free(0, 1)
    cluster.settle()
    cluster.free(1, 1)
    cluster.settle()
    assert _rows_asked(cluster) == [[0], [1]]


def test_rows_found_full_are_not_asked_about_when_others_change() -> None:
    cluster = full(*_pods(2), rows=2)
    cluster.free(0, 1)
    cluster.settle()
    cluster.free(1, 1)
    cluster.settle()
    assert _rows_asked(cluster) == [[0], [0], [1]]


def test_a_change_that_concerns_no_row_is_a_question_about_all_rows() -> None:
    cluster = full(pod("p"), pod("q", 2), rows=2)
    cluster.room[1] = 1
    cluster.queue.opened(opened(everywhere=ANY))
    assert cluster.settle() == ["p"]
    assert _rows_asked(cluster) == [None, None]


def test_classes_are_asked_for_in_the_order_of_their_best_pods() -> None:
    cluster = full(pod("late", 3), pod("later", 2), pod("first", 4, priority=2), pod("second", 2, priority=1))
    cluster.queue.opened(opened(0))
    cluster.check_all()
    assert [check.pod.key.name for check in cluster.asked] == ["first", "second", "late"]


def test_a_freed_place_goes_to_the_better_pod_of_another_class_before_the_next_of_this_one() -> None:
    best, worst = pod("best", 2, priority=9), pod("worst", 2)
    cluster = full(best, pod("between", 1, priority=5), worst)
    cluster.free(0, 4)
    assert cluster.settle() == ["best", "between"]
    assert set(cluster.placed) == {"best", "between"}


def test_the_next_of_this_class_follows_when_the_better_pod_of_another_was_asked_for() -> None:
    cluster = full(pod("best", 2, priority=9), pod("between", 1, priority=5), pod("worst", 2))
    cluster.free(0, 9)
    assert cluster.check_all() == 3
    assert [check.pod.key.name for check in cluster.asked] == ["best", "between", "worst"]


def test_rows_that_change_during_a_round_are_offered_to_the_best_class_first() -> None:
    cluster = full(pod("best", 3, priority=9), pod("other", 2), rows=2)
    cluster.free(0, 1)
    cluster.check()
    cluster.free(1, 3)
    assert cluster.settle() == ["best"]
    assert [(check.pod.key.name, set(check.rows or ())) for check in cluster.asked[1:]] == [
        ("other", {0}),
        ("best", {1}),
        ("other", {1}),
    ]


def test_a_better_pod_that_joins_moves_its_class_forward() -> None:
    cluster = full(pod("a", 2, priority=1), pod("b", 3))
    cluster.queue.opened(opened(0))
    cluster.add(pod("b-urgent", 3, priority=5))
    cluster.queue.next_check()
    cluster.decide_all()
    check = cluster.queue.next_check()
    assert check is not None
    assert check.pod.key.name == "b-urgent"


def test_a_question_may_be_asked_again_before_it_is_answered() -> None:
    cluster = full(pod("p"))
    cluster.free(0, 1)
    assert cluster.queue.next_check() == cluster.queue.next_check()
    assert cluster.check_all() == 1


def test_the_answer_to_a_question_whose_pods_have_left_wakes_nobody() -> None:
    cluster = full(pod("p"))
    cluster.free(0, 1)
    check = cluster.queue.next_check()
    cluster.queue.delete("p")
    assert check is not None
    assert cluster.queue.woken(check, 1, 0.0) == 0


def test_changes_while_nobody_waits_are_not_kept() -> None:
    cluster = ToyCluster(0)
    cluster.queue.opened(opened(0))
    cluster.queue.opened(opened(everywhere=ANY))
    cluster.add(pod("p"))
    cluster.settle()
    assert cluster.asked == []


def test_classes_whose_pods_have_left_are_forgotten() -> None:
    cluster = full(*[pod(f"p{units}", units) for units in range(1, 8)])
    cluster.free(0, 100)
    assert len(cluster.settle()) == 7
    cluster.add(pod("huge", 1))
    cluster.room[0] = 0
    cluster.settle()
    cluster.free(0, 0)
    cluster.settle()
    assert len(cluster.queue._no_fit.classes) == 1  # noqa: SLF001 - what it holds on to is the point


# A place that was shown in vain: the check sees room, the attempt finds none (a Permit plugin says no)


def _in_vain(cluster: ToyCluster) -> str:
    queued = cluster.queue.pop(cluster.now_s)
    assert queued is not None
    cluster.queue.unschedulable(queued.pod.key.uid, key_of(queued.pod), cluster.now_s, wakes_on=ANY)
    return queued.pod.key.uid


def test_a_place_shown_in_vain_goes_to_the_next_one_and_the_first_backs_off() -> None:
    cluster = full(*_pods(2))
    cluster.free(0, 1)
    cluster.check_all()
    assert _in_vain(cluster) == "p0"
    assert cluster.queue.state("p0") is State.BACKING_OFF
    assert cluster.settle() == ["p1"]
    assert cluster.queue.state("p0") is State.UNSCHEDULABLE


def test_a_pod_that_was_shown_a_place_in_vain_tries_again_after_its_no_fit_back_off() -> None:
    cluster = full(pod("p"))
    cluster.free(0, 1)
    cluster.check_all()
    _in_vain(cluster)
    assert cluster.settle() == []
    assert cluster.queue.next_ready_s() == 2.0
    cluster.after(2)
    assert cluster.settle() == ["p"]
    assert "p" in cluster.placed


def test_a_pod_that_was_shown_a_place_in_vain_is_woken_by_the_next_change_whatever_its_back_off() -> None:
    cluster = full(pod("p"), rows=2)
    cluster.free(0, 1)
    cluster.check_all()
    _in_vain(cluster)
    cluster.free(1, 1)
    assert cluster.settle() == ["p"]


def test_a_pod_that_was_shown_a_place_in_vain_is_tried_at_once_when_it_changes() -> None:
    cluster = full(pod("p"))
    cluster.free(0, 1)
    cluster.check_all()
    _in_vain(cluster)
    cluster.add(with_labels(pod("p"), app="x"))
    assert cluster.queue.state("p") is State.ACTIVE


def test_what_an_attempt_in_vain_gives_back_does_not_wake_its_pod() -> None:
    cluster = full(pod("p"))
    cluster.free(0, 1)
    cluster.check_all()
    queued = cluster.queue.pop(0.0)
    assert queued is not None
    cluster.queue.opened(opened(0))
    cluster.queue.unschedulable("p", key_of(queued.pod), 0.0, wakes_on=ANY)
    assert cluster.check_all() == 0
    assert cluster.queue.state("p") is State.BACKING_OFF


def test_pods_of_a_class_without_room_are_not_kept_backing_off() -> None:
    cluster = full(*_pods(3))
    cluster.free(0, 1)
    cluster.check_all()
    cluster.room[0] = 0
    assert cluster.settle() == ["p0"]
    assert cluster.queue.lengths() == {"active": 0, "backoff": 0, "unschedulable": 3, "gated": 0}


# Classes that are not what they were


def test_pods_whose_class_has_split_are_asked_for_one_by_one() -> None:
    cluster = full(*_pods(3), rows=2)
    cluster.free(1, 1)
    check = cluster.queue.next_check()
    assert check is not None
    cluster.queue.reclassify(check, lambda each: each.key.uid)
    seen = []
    while (check := cluster.queue.next_check()) is not None:
        seen.append((check.signature, sorted(check.rows or ())))
        cluster.queue.woken(check, int(check.pod.key.name == "p1"), 0.0)
        cluster.queue.validate()
    assert seen == [("p0", [1]), ("p1", [1]), ("p2", [1])]
    assert _active(cluster) == 1


def test_every_pod_of_a_class_moves_whatever_its_state() -> None:
    cluster = full(*_pods(3))
    cluster.free(0, 2)
    cluster.check_all()
    _in_vain(cluster)
    cluster.queue.opened(opened(everywhere=ANY))
    check = cluster.queue.next_check()
    assert check is not None
    cluster.queue.reclassify(check, lambda each: each.key.uid)
    cluster.queue.validate()
    assert sorted(cluster.settle()) == ["p0", "p1"]
    cluster.queue.validate()


@pytest.mark.parametrize(
    ("left", "right", "both"),
    [
        pytest.param({1}, {2}, {1, 2}, id="rows"),
        pytest.param(set(), {2}, {2}, id="none on the left"),
        pytest.param({1}, set(), {1}, id="none on the right"),
        pytest.param(None, {2}, None, id="all on the left"),
        pytest.param(set(), None, None, id="all on the right"),
    ],
)
def test_rows_add_up(left: set[int] | None, right: set[int] | None, both: set[int] | None) -> None:
    frozen = [None if rows is None else frozenset(rows) for rows in (left, right)]
    assert union(frozen[0], frozen[1]) == both


def test_a_status_change_of_a_woken_pod_keeps_it_woken() -> None:
    cluster = full(*_pods(2))
    cluster.free(0, 1)
    cluster.check_all()
    cluster.add(replace(pod("p0"), reason="seen"))
    assert cluster.check_all() == 0
    assert _active(cluster) == 1
