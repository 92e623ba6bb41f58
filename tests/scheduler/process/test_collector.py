"""The garbage collector: what lives long is looked at once, also where as much goes as comes."""

import gc
from collections.abc import Iterator

import pytest

from scheduler.process.collector import begin, tidy

MANY = 60_000
AT_ONCE = 2_000
MOST_NEW = 10_000


@pytest.fixture
def looked_at() -> Iterator[list[int]]:
    """How many objects each collection looks at, from now on."""
    before, found = gc.get_threshold(), list[int]()

    def note(phase: str, info: dict[str, int]) -> None:
        if phase == "start":
            found.append(sum(len(gc.get_objects(generation=number)) for number in range(info["generation"] + 1)))

    begin()
    gc.callbacks.append(note)
    yield found
    gc.callbacks.remove(note)
    gc.set_threshold(*before)
    gc.unfreeze()


def test_what_is_there_at_the_start_is_not_looked_at(looked_at: list[int]) -> None:
    kept, frozen = [[number] for number in range(MANY)], gc.get_freeze_count()
    looked_at.clear()
    begin()  # docs/decisions/0064
    assert (looked_at, gc.get_freeze_count() - frozen >= len(kept)) == ([], True)


def test_no_collection_looks_at_all_that_is_kept(looked_at: list[int]) -> None:
    kept: list[list[int]] = []
    for start in range(0, MANY, AT_ONCE):
        kept.extend([number] for number in range(start, start + AT_ONCE))
        tidy()
    assert max(looked_at) < MANY // 4


def test_nor_at_all_that_is_new_where_as_many_objects_go(looked_at: list[int]) -> None:
    kept = [[number] for number in range(MANY)]
    tidy()
    looked_at.clear()
    for start in range(0, MANY, AT_ONCE):
        for number in range(start, start + AT_ONCE):
            kept[number] = [number]
        tidy()
    assert max(looked_at) < MANY // 4


def test_cycles_that_nobody_holds_are_collected(looked_at: list[int]) -> None:
    class Held:
        """Counted by its finalizer."""

        gone = 0

        def __init__(self) -> None:
            self.itself = self

        def __del__(self) -> None:
            Held.gone += 1

    Held()
    kept = [[number] for number in range(2 * MOST_NEW)]
    tidy()
    assert (Held.gone, len(looked_at) > 0, len(kept)) == (1, True, 2 * MOST_NEW)


def test_a_few_new_objects_cost_no_collection(looked_at: list[int]) -> None:
    kept = [[number] for number in range(MOST_NEW // 2)]
    for _ in range(3):
        tidy()
    assert (looked_at, len(kept)) == ([], MOST_NEW // 2)


def test_what_is_new_is_looked_at_once(looked_at: list[int]) -> None:
    kept: list[list[int]] = []
    for start in range(0, MANY, AT_ONCE):
        kept.extend([number] for number in range(start, start + AT_ONCE))
        tidy()
    assert sum(looked_at) < 1.2 * MANY
