"""Nominations, leftovers, gates, updates in flight, counts. The rest: test_queue_machine.py; hints: test_waking.py."""

import pytest
from msgspec.structs import replace

from scheduler.pods.pod import Pod, TransitionError
from scheduler.queue.entry import PodState
from scheduler.queue.scheduling_queue import SchedulingQueue
from tests.scheduler.queue.toy_cluster import (
    ANY,
    GATED,
    Gates,
    ToyCluster,
    events_on,
    full,
    in_vain,
    key_of,
    pod,
    with_labels,
)


def test_pods_that_come_with_a_nomination_are_first_of_their_priority() -> None:
    cluster = ToyCluster(9)
    kept = [replace(pod(name), nominated_node="a") for name in ("kept-1", "kept-2")]
    cluster.add(pod("new"), *kept, pod("high", priority=5))
    assert cluster.settle() == ["high", "kept-1", "kept-2", "new"]


def test_an_attempt_says_how_many_there_were_and_since_when() -> None:
    cluster = full(pod("p"))
    cluster.after(7)
    cluster.free(0, 1)
    cluster.run_hint()
    queued = cluster.queue.pop(8.0)
    assert queued is not None
    assert (queued.attempts, queued.first_queued_s) == (2, 0.0)


def test_a_pod_keeps_its_place_in_the_line_however_often_it_was_tried() -> None:
    cluster = full(pod("first"), pod("second"))
    cluster.add(pod("third"))
    cluster.free(0, 3)
    assert cluster.settle() == ["first", "second", "third"]


# Back-off after errors


def test_after_an_error_a_pod_backs_off_for_one_second_then_twice_as_long_up_to_ten() -> None:
    cluster = ToyCluster(1)
    cluster.add(pod("p"))
    waits = []
    for _ in range(6):
        cluster.decide()
        cluster.bind_failed("p")
        waits.append((cluster.queue.next_ready_s() or 0) - cluster.now_s)
        cluster.after(waits[-1])
    assert waits == [1, 2, 4, 8, 10, 10]


def test_errors_in_a_row_and_attempts_without_fit_are_counted_apart() -> None:
    cluster = full(pod("p"))
    for units in (2, 1, 2, 1):
        cluster.add(pod("p", units))
        cluster.after(11)
        cluster.settle()
    cluster.free(0, 1)
    cluster.settle()
    cluster.bind_failed("p")
    assert cluster.queue.next_ready_s() == cluster.now_s + 1.0


def test_an_attempt_without_fit_ends_the_row_of_errors() -> None:
    cluster = ToyCluster(1)
    cluster.add(pod("p"))
    for _ in range(2):
        cluster.decide()
        cluster.bind_failed("p")
        cluster.after(10)
    cluster.room[0] = 0
    cluster.decide()
    cluster.free(0, 1)
    cluster.settle()
    cluster.bind_failed("p")
    assert cluster.queue.next_ready_s() == cluster.now_s + 1


# Leftovers


def test_a_pod_left_unschedulable_for_five_minutes_is_tried_again() -> None:
    cluster = full(pod("p"))
    assert cluster.queue.next_ready_s() == 300.0
    cluster.after(299)
    assert cluster.queue.state("p") is PodState.UNSCHEDULABLE
    cluster.after(1)
    assert cluster.queue.state("p") is PodState.ACTIVE


def test_a_leftover_pod_serves_a_back_off_that_is_longer_than_that() -> None:
    queue = SchedulingQueue(initial_backoff_s=400.0, max_backoff_s=900.0)
    queue.add_or_update(pod("p"), 0.0)
    queue.pop(0.0)
    queue.unschedulable("p", "class", 0.0, wakes_on=ANY)
    assert queue.next_ready_s() == 400.0


def test_nobody_waits_for_time_in_an_empty_queue() -> None:
    assert SchedulingQueue().next_ready_s() is None


# Gates


def test_a_gated_pod_is_never_popped_and_says_why() -> None:
    cluster = ToyCluster(1)
    cluster.add(pod("p", gates=("quota",)))
    cluster.queue.note_events(events_on(everywhere=ANY))
    cluster.after(1000)
    assert cluster.settle() == []
    assert (cluster.queue.state("p"), cluster.queue.gate("p")) == (PodState.GATED, GATED)


def test_a_pod_that_becomes_gated_loses_its_place_in_the_line() -> None:
    cluster = ToyCluster(2)
    cluster.add(pod("first"), pod("second"))
    cluster.add(pod("first", gates=("a",)))
    cluster.add(pod("first"))
    assert cluster.settle() == ["second", "first"]


def test_a_pod_that_becomes_gated_leaves_every_other_state() -> None:
    cluster = full(pod("waits"))
    cluster.add(pod("ready"))
    cluster.add(pod("waits", gates=("a",)), pod("ready", gates=("a",)))
    cluster.free(0, 5)
    assert cluster.settle() == []
    assert cluster.queue.lengths() == {"active": 0, "backoff": 0, "unschedulable": 0, "gated": 2}


# Updates


@pytest.mark.parametrize(
    "changed",
    [
        pytest.param(pod("p", 2), id="another template"),
        pytest.param(with_labels(pod("p"), app="x"), id="other labels"),
        pytest.param(pod("p", priority=3), id="another priority"),
    ],
)
def test_a_pod_that_changes_is_tried_again_at_once(changed: Pod) -> None:
    cluster = full(pod("p"))
    cluster.add(changed)
    assert cluster.queue.state("p") is PodState.ACTIVE


def test_a_mere_status_change_moves_no_pod_but_its_newest_version_is_tried() -> None:
    cluster = full(pod("p"))
    cluster.add(replace(pod("p"), reason="newest"))
    assert cluster.queue.state("p") is PodState.UNSCHEDULABLE
    cluster.free(0, 1)
    cluster.run_hint()
    queued = cluster.queue.pop(cluster.now_s)
    assert queued is not None
    assert queued.pod.reason == "newest"


def test_a_changed_priority_counts_at_once() -> None:
    cluster = ToyCluster(2)
    cluster.add(pod("first"), pod("second"))
    cluster.add(pod("second", priority=1))
    assert cluster.settle() == ["second", "first"]


@pytest.mark.parametrize(
    ("seen", "state"),
    [
        pytest.param(pod("p", 2), PodState.ACTIVE, id="of another template is tried again"),
        pytest.param(replace(pod("p"), reason="newest"), PodState.UNSCHEDULABLE, id="of another status waits"),
    ],
)
def test_a_pod_that_is_seen_while_it_is_decided(seen: Pod, state: PodState) -> None:
    cluster = ToyCluster(0)
    cluster.add(pod("p"))
    cluster.queue.pop(0.0)
    cluster.add(seen)
    cluster.queue.unschedulable("p", key_of(pod("p")), 0.0, wakes_on=ANY)
    assert cluster.queue.state("p") is state
    queued = cluster.queue.pop(0.0)
    assert queued is None or queued.pod is seen


def test_a_change_in_flight_counts_for_one_attempt_only() -> None:
    cluster = ToyCluster(1)
    cluster.add(pod("p"))
    cluster.decide()
    cluster.add(pod("p", 2))
    cluster.bind_failed("p")
    cluster.after(1)
    assert cluster.settle() == ["p"]
    assert cluster.queue.state("p") is PodState.UNSCHEDULABLE


@pytest.mark.parametrize("verb", ["unschedulable", "failed"])
def test_a_pod_that_becomes_gated_in_flight_is_gated_after_it(verb: str) -> None:
    cluster = ToyCluster(0)
    cluster.add(pod("p"))
    cluster.queue.pop(0.0)
    cluster.add(pod("p", gates=("a",)))
    if verb == "failed":
        cluster.queue.failed("p", 0.0)
    else:
        cluster.queue.unschedulable("p", "class", 0.0, wakes_on=ANY)
    assert cluster.queue.state("p") is PodState.GATED


def test_a_pod_that_only_its_own_change_can_help_is_woken_by_nothing_else() -> None:
    cluster = in_vain(pod("p"), wakes_on=0)
    cluster.free(0, 6)
    cluster.queue.note_events(events_on(everywhere=ANY))
    assert cluster.settle() == []
    cluster.add(pod("p", 2))
    assert cluster.settle() == ["p"]


# Deletion


@pytest.mark.parametrize("verb", ["done", "failed", "unschedulable"])
def test_a_pod_deleted_in_flight_is_forgotten_when_its_attempt_ends(verb: str) -> None:
    cluster = ToyCluster(1)
    cluster.add(pod("p"))
    queue = cluster.queue
    queue.pop(0.0)
    queue.delete("p")
    assert "p" in queue
    if verb == "done":
        queue.done("p")
    elif verb == "failed":
        queue.failed("p", 0.0)
    else:
        queue.unschedulable("p", "class", 0.0, wakes_on=ANY)
    assert "p" not in queue


def test_a_pod_seen_again_after_its_deletion_in_flight_is_not_lost() -> None:
    cluster = ToyCluster(1)
    cluster.add(pod("p"))
    cluster.decide()
    cluster.queue.delete("p")
    cluster.add(pod("p"))
    cluster.bind_failed("p")
    cluster.after(1)
    assert cluster.queue.state("p") is PodState.ACTIVE


# Counts


def test_the_lengths_are_those_of_kube_schedulers_pending_pods() -> None:
    cluster = full(pod("waits-1"), pod("waits-2", 2))
    cluster.room[0] = 1
    cluster.add(pod("fails"))
    cluster.decide()
    cluster.queue.failed("fails", 0.0)
    cluster.add(pod("ready"), pod("gated", gates=("a",)))
    assert cluster.queue.lengths() == {"active": 1, "backoff": 1, "unschedulable": 2, "gated": 1}


@pytest.mark.parametrize("waiting", [True, False])
def test_the_end_of_an_attempt_that_did_not_begin_is_our_own_bug(waiting: bool) -> None:  # noqa: FBT001 - a case
    queue = SchedulingQueue(pre_enqueue={"gpushare-scheduler": (Gates(),)})
    if waiting:
        queue.add_or_update(pod("p"), 0.0)
    with pytest.raises(TransitionError, match=f"pod p is {'ACTIVE' if waiting else 'absent'}; expected IN_FLIGHT"):
        queue.done("p")


def test_a_pod_that_changes_while_it_is_refused_is_tried_again_soon() -> None:
    queue = SchedulingQueue()
    waits_s: list[float] = []
    queue.add_or_update(pod("p"), 0.0)
    now_s = 0.0
    for attempt in range(9):
        assert queue.pop(now_s) is not None
        if attempt == 7:
            queue.add_or_update(with_labels(pod("p"), fixed="yes"), now_s)
        queue.failed("p", now_s, longest_s=300.0)
        ready_s = queue.next_ready_s()
        assert ready_s is not None
        waits_s.append(ready_s - now_s)
        now_s = ready_s
    assert waits_s == [1, 2, 4, 8, 16, 32, 64, 1, 2]


# Pods whose namespace is throttled


def popped(queue: SchedulingQueue) -> list[str]:
    return [queued.pod.key.name for queued in iter(lambda: queue.pop(0.0), None)]


def test_a_pod_of_a_throttled_namespace_lets_others_pass_and_is_reported_once() -> None:
    queue = SchedulingQueue()
    for name in ("p0", "p1"):
        queue.add_or_update(pod(name, namespace=f"ns-{name}"), 0.0)
    assert queue.ready(lambda name: name != "ns-p0", 0.0)
    assert queue.throttle(lambda name: name != "ns-p0")
    queue.validate()
    assert (queue.state("p0"), queue.next_ready_s()) == (PodState.THROTTLED, None)
    assert queue.lengths() == {"active": 2, "backoff": 0, "unschedulable": 0, "gated": 0}

    assert queue.next_unreported(lambda _: "") is None
    assert [bool(queue.next_unreported({"ns-p0": how}.__getitem__)) for how in ("a", "a", "b")] == [True, False, True]
    assert queue.lengths() == {"active": 1, "backoff": 1, "unschedulable": 0, "gated": 0}
    assert popped(queue) == ["p1"]

    assert queue.ready(lambda _: True, 0.0)
    assert not queue.throttle(lambda _: True)
    assert popped(queue) == ["p0"]


def test_a_pod_that_was_reported_and_is_throttled_again_is_not_reported_again() -> None:
    queue = SchedulingQueue()
    queue.add_or_update(pod("p0"), 0.0)
    queue.ready(lambda _: False, 0.0)
    assert queue.throttle(lambda _: False)
    assert queue.next_unreported(lambda _: "failures")
    assert queue.ready(lambda _: True, 0.0)
    assert not queue.throttle(lambda _: True)
    queue.ready(lambda _: False, 0.0)
    assert queue.throttle(lambda _: False)
    assert not queue.next_unreported(lambda _: "failures")
