"""Throttled pods: they let other namespaces pass, keep their order, and can be changed or deleted."""

from msgspec.structs import replace

from scheduler.pods.pod import Pod
from scheduler.queue.entry import PodState
from scheduler.queue.scheduling_queue import SchedulingQueue
from tests.support.builders import pod


def of(namespace: str, name: str, priority: int = 0) -> Pod:
    return pod(name, 1, namespace=namespace, uid=name, priority=priority)


def queue_of(*pods: Pod) -> SchedulingQueue:
    queue = SchedulingQueue()
    for one in pods:
        queue.add_or_update(one, 0.0)
    return queue


def popped(queue: SchedulingQueue) -> list[str]:
    found = []
    while (queued := queue.pop(0.0)) is not None:
        found.append(queued.pod.key.name)
    return found


def throttle(queue: SchedulingQueue, namespace: str) -> int:
    """Throttle all pods at the head; returns their number."""
    held = 0
    while queue.throttle(lambda name: name == namespace, 0.0):
        queue.validate()
        held += 1
    return held


def test_others_pass() -> None:
    queue = queue_of(of("a", "a0"), of("a", "a1"), of("b", "b0"), of("a", "a2"))
    assert throttle(queue, "a") == 2
    assert (queue.state("a0"), queue.state("a2")) == (PodState.THROTTLED, PodState.ACTIVE)
    assert queue.lengths()["active"] == 4
    assert popped(queue) == ["b0", "a2"]


def test_those_held_back_come_again_one_by_one_in_their_order() -> None:
    queue = queue_of(of("a", "a0"), of("a", "a1"), of("a", "first", 7))
    assert throttle(queue, "a") == 3
    assert not queue.serve(lambda name: name == "b")
    come = []
    while queue.serve(lambda name: name == "a"):
        queue.validate()
        come += popped(queue)
    assert come == ["first", "a0", "a1"]


def test_one_that_is_served_again_is_before_what_came_later() -> None:
    queue = queue_of(of("a", "a0"))
    throttle(queue, "a")
    queue.add_or_update(of("b", "b0"), 0.0)
    queue.serve(lambda _: True)
    assert popped(queue) == ["a0", "b0"]


def test_one_that_is_deleted_is_gone() -> None:
    queue = queue_of(of("a", "a0"))
    throttle(queue, "a")
    queue.delete("a0")
    queue.validate()
    assert "a0" not in queue
    assert not queue.serve(lambda _: True)


def test_one_that_changes_is_looked_at_again() -> None:
    queue = queue_of(of("a", "a0"))
    throttle(queue, "a")
    queue.add_or_update(replace(of("a", "a0"), priority=9), 0.0)
    queue.validate()
    assert queue.state("a0") is PodState.ACTIVE
    assert not queue.serve(lambda _: True)


def test_nobody_is_held_back_of_an_empty_queue() -> None:
    assert not SchedulingQueue().throttle(lambda _: True, 0.0)


def test_when_several_namespaces_are_served_again_the_best_pod_of_all_goes_first() -> None:
    queue = queue_of(of("a", "a0"), of("a", "a1"))
    throttle(queue, "a")
    for one in (of("b", "first", 1000), of("b", "b0"), of("a", "a2")):
        queue.add_or_update(one, 0.0)
    assert [throttle(queue, namespace) for namespace in ("b", "a")] == [2, 1]
    come = []
    while queue.serve(lambda _: True):
        queue.validate()
        come += popped(queue)
    assert come == ["first", "a0", "a1", "b0", "a2"]


def test_one_that_was_not_sent_waits_for_its_namespace_and_is_told_once() -> None:
    queue = queue_of(of("a", "a0"), of("a", "a1"))
    queue.pop(0.0)
    queue.set_aside("a0", 0.0, "failures")
    queue.validate()
    assert (queue.state("a0"), queue.next_ready_s()) == (PodState.THROTTLED, None)
    assert queue.lengths() == {"active": 1, "backoff": 1, "unschedulable": 0, "gated": 0}

    throttle(queue, "a")
    assert queue.serve(lambda _: "failures", unreported=True)
    assert popped(queue) == ["a1"]
    assert not queue.serve(lambda _: "failures", unreported=True)

    assert queue.serve(lambda _: True)
    queue.validate()
    assert popped(queue) == ["a0"]


def test_one_that_was_told_and_is_held_back_again_is_not_told_again() -> None:
    queue = queue_of(of("a", "a0"))
    queue.pop(0.0)
    queue.set_aside("a0", 0.0, "failures")
    queue.serve(lambda _: True)
    assert throttle(queue, "a") == 1
    assert not queue.serve(lambda _: "failures", unreported=True)


def test_one_that_went_while_its_binding_waited_is_forgotten() -> None:
    queue = queue_of(of("a", "a0"))
    queue.pop(0.0)
    queue.delete("a0")
    queue.set_aside("a0", 0.0, "failures")
    queue.validate()
    assert "a0" not in queue
