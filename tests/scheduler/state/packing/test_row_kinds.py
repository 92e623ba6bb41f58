"""Which rows are alike: those with the same free on their cards, and no others."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from scheduler.pods.gpu_request import ResourceNames
from scheduler.state.columns.arrays import ALL_ROWS
from scheduler.state.packing.cards_seen import FreeCards, FreeCardsOf
from scheduler.state.packing.row_kinds import RowKinds, alike, kinds_of, numbered
from scheduler.state.tables import Tables

CARDS = st.tuples(st.integers(0, 3), st.sampled_from([1, 2, 4095, 4097, 2**28 - 1]))
ROW = st.tuples(st.lists(CARDS, min_size=3, max_size=3), st.integers(0, 2))


@given(st.lists(ROW, min_size=8, max_size=40), st.integers(1, 2**24))
def test_rows_are_alike_that_have_the_same(rows: list[tuple[list[tuple[int, int]], int]], scale: int) -> None:
    free = np.array([[units * scale for units, _ in cards] for cards, _ in rows], dtype=np.float64).T
    model = np.array([[code for _, code in cards] for cards, _ in rows], dtype=np.int32).T
    cpu = np.array([millis * scale for _, millis in rows], dtype=np.float64)
    kinds, alone = kinds_of(FreeCards(free, model, cpu)), RowKinds(Tables(ResourceNames()))
    # Of which model a card is that has nothing free matters to nobody.
    has = [(millis, [u for u, _ in cards], [code for units, code in cards if units]) for cards, millis in rows]

    for place in range(len(rows)):
        alone.work_out_row(
            0, FreeCardsOf(free[:, place].astype(int).tolist(), model[:, place].tolist(), int(cpu[place]))
        )
        assert alone.of(slice(0, 1)).tolist() == [kinds[place]]
        assert [kind == kinds[place] for kind in kinds] == [other == has[place] for other in has]


@pytest.mark.parametrize("cards", [3, 9])
def test_one_row_of_each_kind_stands_for_the_others(cards: int) -> None:
    kinds = np.array([7, 7, 8, 7, 8, 7, 7, 8], dtype=np.uint64)
    fits = np.ones((cards, 8), dtype=np.bool_)
    fits[cards - 1, 3] = False

    first, like = alike(kinds)
    assert (kinds[first].tolist(), kinds[first][like].tolist()) == ([7, 8], kinds.tolist())
    first, like = alike(kinds, fits)
    assert sorted(np.asarray(first).tolist()) == [0, 2, 3]
    assert (fits[:, first][:, like] == fits).all()


def test_where_few_are_alike_every_row_stands_for_itself() -> None:
    assert alike(np.arange(20, dtype=np.uint64)) == (ALL_ROWS, ALL_ROWS)
    assert alike(np.zeros(7, dtype=np.uint64)) == (ALL_ROWS, ALL_ROWS)


def test_rows_of_one_number_on_which_other_cards_fit_are_not_taken_for_each_other() -> None:
    """Two kinds may have one number, once in 2^64: here the number hides which cards fit."""
    fits = np.zeros((2, 8), dtype=np.bool_)
    fits[0, ::2] = fits[1, 1::2] = True
    told_apart, _ = alike(np.zeros(8, dtype=np.uint64), fits)
    assert sorted(np.asarray(told_apart).tolist()) == [0, 1]

    assert alike(-numbered(fits), fits) == (ALL_ROWS, ALL_ROWS)
