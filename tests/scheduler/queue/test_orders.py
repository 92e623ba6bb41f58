"""Orders in which pods wait: back-offs, the heap, the longest waiting of each group."""

from collections.abc import Collection
from typing import Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scheduler.queue.backoff import backoff_s
from scheduler.queue.entry import Entry
from scheduler.queue.heap import Heap
from scheduler.queue.longest_waiting import LongestWaiting
from tests.support.builders import pod


@pytest.mark.parametrize(
    ("attempts", "expected_s"),
    [
        pytest.param(0, 0.0, id="no failure, no wait"),
        pytest.param(1, 1.0, id="the first wait is the initial one"),
        pytest.param(2, 2.0, id="then it doubles"),
        pytest.param(4, 8.0, id="and doubles again"),
        pytest.param(5, 10.0, id="up to the maximum"),
        pytest.param(100_000, 10.0, id="however many fail"),
    ],
)
def test_the_back_off_doubles_up_to_its_maximum(attempts: int, expected_s: float) -> None:
    assert backoff_s(attempts, initial_s=1.0, max_s=10.0) == expected_s
    assert backoff_s(attempts, initial_s=20.0, max_s=10.0) == (10.0 if attempts else 0.0)


# The heap

_ITEMS = st.integers(0, 9)
_KEYS = st.integers(0, 9).map(float)
_PUSH = st.tuples(st.just("push"), _ITEMS, _KEYS)
_DISCARD = st.tuples(st.just("discard"), _ITEMS, _KEYS)
_POP = st.tuples(st.just("pop"), _ITEMS, _KEYS)


@given(st.lists(st.one_of(_PUSH, _DISCARD, _POP), max_size=60))
def test_a_heap_is_a_sorted_list_from_which_any_item_may_be_taken(steps: list[tuple[str, int, float]]) -> None:
    heap, model = Heap[float, int](), dict[int, tuple[float, int]]()
    for number, (verb, item, key) in enumerate(steps):
        least = min(model, key=lambda each: model[each], default=None)
        if verb == "push":
            heap.push(item, key)
            model[item] = (key, number)
        elif verb == "discard":
            heap.discard(item)
            model.pop(item, None)
        else:
            assert heap.pop() == least
            model.pop(least if least is not None else -1, None)
        expected = min(model, key=lambda each: model[each], default=None)
        assert heap.first() == (None if expected is None else (model[expected][0], expected))
        assert (len(heap), set(heap)) == (len(model), set(model))


@given(st.lists(_KEYS), _KEYS)
def test_items_up_to_a_key_are_taken_in_order(keys: list[float], limit: float) -> None:
    heap = Heap[float, int]()
    for item, key in enumerate(keys):
        heap.push(item, key)
    assert [keys[item] for item in heap.pop_until(limit)] == sorted(key for key in keys if key <= limit)
    assert len(heap) == sum(key > limit for key in keys)


def test_forgotten_items_do_not_pile_up() -> None:
    heap = Heap[float, int]()
    heap.push(-1, 0.0)
    for item in range(10_000):
        heap.push(item, float(item))
        heap.discard(item)
    assert len(heap._heap) < 100  # noqa: SLF001 - what it holds on to is the point


# The longest waiting

NOW_S: Final = 1000.0


def entry(name: str, namespace: str, sequence: int = 0, *, priority: int = 0, since_s: float = 0.0) -> Entry:
    return Entry(pod=pod(name, namespace=namespace), sort_key=(-priority, sequence), waits_since_s=since_s)


def first(longest: LongestWaiting, now_s: float = NOW_S, without: Collection[int] = ()) -> list[str]:
    return [one.pod.key.name for one in longest.first(10.0, now_s, without=without)]


def test_the_longest_waiting_of_each_priority_and_namespace_come_in_the_order_of_their_priorities_and_waits() -> None:
    longest = LongestWaiting()
    longest.add(entry("second", "x", 4, priority=1), "class")
    longest.add(entry("other class", "x", 3, priority=1), "other")
    longest.add(entry("longer", "y", 5, priority=1, since_s=-1.0), "class")
    longest.add(entry("better", "x", 6, priority=2), "class")
    assert first(longest) == ["better", "longer", "other class"]
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
