"""Of many classes of pods that wait, the first of each priority and namespace."""

from typing import Final

import numpy as np

from scheduler.queue.entry import Entry
from scheduler.queue.longest_waiting import LongestWaiting
from tests.support.builders import pod

NOW_S: Final = 1000.0


def order(*keys: tuple[int, int]) -> np.ndarray:
    return np.array(keys, dtype=np.int64).T


def ranked(*of: tuple[str, float]) -> LongestWaiting:
    """(namespace, since when), by slot."""
    longest = LongestWaiting()
    for slot, (namespace, since_s) in enumerate(of):
        longest.rank(slot, Entry(pod=pod(f"p{slot}", namespace=namespace), waits_since_s=since_s))
    return longest


def test_the_first_of_each_priority_and_namespace_in_the_order_of_the_queue() -> None:
    longest = ranked(("x", 0.0), ("x", 0.0), ("y", 0.0), ("x", 0.0))
    keys = [(-1, 4), (-1, 3), (-1, 5), (-2, 6)]
    padded = order(*keys, *[(0, 0)] * 60)
    assert longest.first(padded, 10.0, NOW_S, without=()) == [3, 1, 2]
    assert longest.first(padded, 10.0, NOW_S, without=(1,)) == [3]


def test_who_waits_for_less_is_passed_over_or_has_left_is_none_of_them() -> None:
    longest = ranked(("x", 20.0), ("y", 5.0), ("z", 5.0))
    longest.forget(2)
    keys = order((0, 1), (0, 2), (0, 3), *[(0, 0)] * 61)
    assert longest.first(keys, 10.0, NOW_S, without=()) == [1]
    longest.rank(1, Entry(pod=pod("p1", namespace="y"), waits_since_s=5.0, passed_until_s=NOW_S + 1))
    assert longest.first(keys, 10.0, NOW_S, without=()) == []
    assert longest.first(keys, 10.0, NOW_S + 1, without=()) == [1]


def test_there_is_room_for_as_many_classes_as_there_are() -> None:
    longest = ranked(*((f"n{number}", 0.0) for number in range(200)))
    keys = order(*((0, number) for number in range(256)))
    assert longest.first(keys, 10.0, NOW_S, without=()) == list(range(200))
