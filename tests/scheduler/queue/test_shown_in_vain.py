"""Pods that are woken in vain (a Permit plugin rejects them), and classes whose signature changes."""

from msgspec.structs import replace

from scheduler.queue.entry import PodState
from scheduler.state.minimum_request import NO_MINIMUM
from tests.scheduler.queue.toy_cluster import ANY, ToyCluster, events_on, full, key_of, plenty, pod, pods, with_labels


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


def test_a_pod_whose_place_is_gone_when_it_is_tried_waits_for_the_next() -> None:
    cluster = full(*pods(3))
    cluster.free(0, 1)
    cluster.run_hint()
    cluster.room[0] = 0
    assert cluster.settle() == ["p0"]
    assert cluster.queue.lengths() == {"active": 0, "backoff": 0, "unschedulable": 3, "gated": 0}
    cluster.free(0, 1)
    assert cluster.settle() == ["p0"]


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
    hint = cluster.queue.next_hint(plenty)
    assert hint is not None
    cluster.queue.fits_not(hint, wakes_on=ANY)
    other = cluster.queue.next_hint(plenty)
    assert other is not None
    cluster.queue.reclassify(other, hint.signature, NO_MINIMUM)
    assert cluster.queue.next_hint(plenty) is None
    cluster.queue.validate()


def test_a_status_change_of_a_woken_pod_keeps_it_woken() -> None:
    cluster = full(*pods(2))
    cluster.free(0, 1)
    cluster.run_hint()
    cluster.add(replace(pod("p0"), reason="seen"))
    assert cluster.queue.state("p0") is PodState.ACTIVE
    assert cluster.settle() == ["p0"]


def test_classes_whose_pods_have_left_are_forgotten() -> None:
    cluster = full(*[with_labels(pod(f"p{index}"), app=str(index)) for index in range(500)])
    cluster.free(0, 500)
    assert len(cluster.settle()) == 500
    assert len(cluster.queue._no_fit._at) == 0  # noqa: SLF001 - what it holds on to is the point
