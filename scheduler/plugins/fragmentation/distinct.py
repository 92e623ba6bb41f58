"""Distinct numbers of an array, found without sorting if the numbers are small."""

from typing import Final

import numpy as np
from numpy.typing import NDArray

from scheduler.state.columns.arrays import Int64Array, RowArray

# A table with this many times more entries than numbers is still faster than sorting.
_SPARSE: Final = 16
_SMALL: Final = 4_096


def distinct(numbers: Int64Array) -> tuple[Int64Array, RowArray]:
    """Return (distinct numbers, ascending; index of each number among them, in the shape of `numbers`).

    numbers: >= 0.
    """
    places = int(numbers.max(initial=0)) + 1
    if places > numbers.size * _SPARSE + _SMALL:
        values, like = np.unique(numbers, return_inverse=True)
        return values, like.reshape(numbers.shape)
    is_there = np.zeros(places, dtype=np.bool_)
    is_there[numbers] = True
    (found,) = is_there.nonzero()
    number_of = np.zeros(places, dtype=np.intp)
    number_of[found] = np.arange(len(found))
    return found, number_of[numbers]


def first_of_each(numbers: NDArray[np.uint64]) -> tuple[RowArray, RowArray]:
    """Return (first position of each distinct number, index of each number among them).

    Same as `np.unique`, but faster.
    """
    order = numbers.argsort(kind="stable")
    ascending = numbers[order]
    begins = np.ones(len(numbers), dtype=np.bool_)
    np.not_equal(ascending[1:], ascending[:-1], out=begins[1:])
    like = np.empty_like(order)
    like[order] = begins.cumsum() - 1
    return order[begins], like
