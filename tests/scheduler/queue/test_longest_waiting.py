"""The first waiting pod of each priority and namespace."""

from collections.abc import Collection
from typing import Final

from scheduler.queue.entry import Entry
from scheduler.queue.longest_waiting import LongestWaiting
from tests.support.builders import pod

NOW_S: Final = 1000.0


def entry(name: str, namespace: str, sequence: int, *, priority: int = 0, since_s: float = 0.0) -> Entry:
    return Entry(pod=pod(name, namespace=namespace), sort_key=(-priority, sequence), waits_since_s=since_s)


def first(longest: LongestWaiting, now_s: float = NOW_S, without: Collection[int] = ()) -> list[str]:
    return [one.pod.key.name for one in longest.first(10.0, now_s, without=without)]


def test_the_first_of_each_priority_and_namespace_in_the_order_of_the_queue() -> None:
    longest = LongestWaiting()
    longest.add(entry("second", "x", 4, priority=1), "class")
    longest.add(entry("other class", "x", 3, priority=1), "other")
    longest.add(entry("other namespace", "y", 5, priority=1), "class")
    longest.add(entry("better", "x", 6, priority=2), "class")
    assert first(longest) == ["better", "other class", "other namespace"]
    assert first(longest, without=(1,)) == ["better"]


def test_who_waits_for_less_or_has_left_is_none_of_them() -> None:
    longest, left = LongestWaiting(), entry("left", "z", 3)
    longest.add(entry("late", "x", 1, since_s=20.0), "class")
    longest.add(entry("early", "y", 2), "class")
    longest.add(left, "class")
    assert first(longest) == ["early", "left"]
    longest.discard(left, "class")
    assert first(longest) == ["early"]


def test_who_is_passed_over_holds_up_its_own_group_and_no_other() -> None:
    longest, best = LongestWaiting(), entry("best", "x", 1)
    longest.add(best, "class")
    longest.add(entry("behind", "x", 2), "class")
    longest.add(entry("other class", "x", 3), "other")
    longest.pass_over(best, "class", NOW_S + 1)
    assert first(longest) == ["other class"]
    assert first(longest, NOW_S + 1) == ["best"]
    longest.discard(best, "class")
    assert first(longest) == ["behind"]


def test_there_is_room_for_as_many_groups_as_there_are() -> None:
    longest = LongestWaiting()
    for number in range(200):
        longest.add(entry(f"p{number}", f"n{number}", number), "class")
    assert first(longest) == [f"p{number}" for number in range(200)]
    assert len(longest) == 200
