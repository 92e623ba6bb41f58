"""Row numbers as masks over the rows judged."""

import numpy as np
import pytest

from scheduler.state.columns.arrays import ALL_ROWS, Rows
from scheduler.state.columns.row_masks import mask_of


@pytest.mark.parametrize(
    ("chosen", "rows", "expected"),
    [
        pytest.param((1, 3), ALL_ROWS, [False, True, False, True], id="all rows"),
        pytest.param((), ALL_ROWS, [False] * 4, id="none chosen"),
        pytest.param((1, 3), slice(1, 3), [True, False], id="some rows"),
        pytest.param((1, 3), np.array([3, 0, 1]), [True, False, True], id="rows in any order"),
        pytest.param((1,), np.array([], dtype=np.intp), [], id="no rows"),
    ],
)
def test_a_mask_marks_the_chosen_among_the_rows_judged(
    chosen: tuple[int, ...], rows: Rows, expected: list[bool]
) -> None:
    assert mask_of(chosen, rows, 4).tolist() == expected
