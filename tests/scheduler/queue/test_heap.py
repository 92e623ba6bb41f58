from hypothesis import given
from hypothesis import strategies as st

from scheduler.queue.heap import Heap

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
