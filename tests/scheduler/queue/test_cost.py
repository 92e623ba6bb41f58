"""Cost of an event, in lines run and in pods compared, not in seconds."""

import gc
import sys
from collections.abc import Callable
from types import FrameType

import numpy as np
from msgspec.structs import replace

from scheduler.pods.pod_volumes import PodClaim, PodVolumes
from scheduler.state.amounts import Amount
from scheduler.state.changes import ClusterEvents
from scheduler.state.minimum_request import NO_MINIMUM, MinimumRequest
from tests.scheduler.queue.toy_cluster import ANY, ToyCluster, events_on, full, in_vain, pod, pods


class CountedPriority(int):
    """A priority that counts how often pods are compared."""

    comparisons = 0

    def __neg__(self) -> "CountedPriority":
        return CountedPriority(-int(self))

    def __eq__(self, other: object) -> bool:
        CountedPriority.comparisons += 1
        return int(self) == other

    __hash__ = int.__hash__


class LineCounter:
    """A trace function."""

    lines = 0

    def __call__(self, _frame: FrameType, event: str, _argument: object) -> "LineCounter":
        self.lines += event == "line"
        return self


def _cost(action: Callable[[], object]) -> int:
    """Number of Python lines that it runs, and of comparisons of pods inside C code."""
    counter, before, tracing = LineCounter(), CountedPriority.comparisons, sys.gettrace()
    # A collection calls back into whatever asked for it, lines that are none of ours.
    gc.disable()
    sys.settrace(counter)
    try:
        action()
    finally:
        sys.settrace(tracing)
        gc.enable()
    return counter.lines + CountedPriority.comparisons - before


def _waiting(count: int) -> ToyCluster:
    return full(*[replace(pod(f"p{index}"), priority=CountedPriority(0)) for index in range(count)])


def _event_and_its_attempts(cluster: ToyCluster, places: int) -> int:
    def event() -> None:
        cluster.free(0, places)
        assert len(cluster.settle()) == places

    return _cost(event)


def test_an_event_touches_as_many_pods_as_the_freed_place_can_hold_however_many_wait() -> None:
    few, many = _event_and_its_attempts(_waiting(100), 3), _event_and_its_attempts(_waiting(10_000), 3)
    # A heap of 10,000 is twice as deep as one of 100.
    assert many < 2 * few
    assert many < 2500


def test_the_cost_of_waking_grows_with_the_freed_place() -> None:
    assert 5 * _event_and_its_attempts(_waiting(1000), 1) < _event_and_its_attempts(_waiting(1000), 100)


def test_an_event_costs_nothing_when_nobody_waits() -> None:
    assert _cost(lambda: ToyCluster(0).queue.note_events(events_on(0))) < 200


def _classes(count: int, minimum: MinimumRequest = NO_MINIMUM) -> ToyCluster:
    return in_vain(*pods(count), of_class=lambda waiting: waiting.key.uid, minimum=minimum)


def test_noting_an_event_costs_the_same_however_many_classes_wait() -> None:
    def noting(classes: int) -> int:
        cluster = _classes(classes)
        return _cost(lambda: cluster.queue.note_events(events_on(0)))

    assert noting(1) == noting(3000)


def test_classes_that_a_row_is_too_small_for_are_ruled_out_in_one_go() -> None:
    minimum = MinimumRequest(amounts=np.full(len(Amount), 1, dtype=np.int64))

    def asking(classes: int) -> int:
        cluster = _classes(classes, minimum)
        cluster.queue.note_events(events_on(0))
        return _cost(lambda: cluster.next_hint() is None)

    assert asking(1) == asking(3000)


def test_questions_are_handed_out_one_by_one_and_each_costs_the_same() -> None:
    cluster = _classes(2000)
    cluster.queue.note_events(events_on(0))
    costs = [_cost(lambda: _asked_in_vain(cluster)) for _ in range(1000)]
    assert max(costs[1:]) < 200


def _asked_in_vain(cluster: ToyCluster) -> None:
    hint = cluster.next_hint()
    assert hint is not None
    cluster.queue.fits_not(hint, wakes_on=ANY)


def _using(count: int, claims: int) -> ToyCluster:
    """Pods of one class that all use the same claims."""
    volumes = PodVolumes(claims=tuple(PodClaim(f"c{number}", ephemeral=False) for number in range(claims)))
    using = (replace(pod(f"p{index}"), volumes=volumes) for index in range(count))
    return in_vain(*using, of_class=lambda _: "one class")


def test_claims_that_change_cost_the_same_however_many_pods_of_a_class_use_them() -> None:
    def asking(count: int) -> int:
        cluster, events = _using(count, 8), ClusterEvents()
        events.note_claims(("default", f"c{number}") for number in range(8))
        cluster.queue.note_events(events)
        return _cost(lambda: cluster.next_hint() is not None)

    assert asking(1) == asking(300)
