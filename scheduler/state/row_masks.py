"""Masks over the rows judged, from row numbers."""

from collections.abc import Collection

import numpy as np

from scheduler.state.arrays import BoolArray, Rows


def mask_of(chosen: Collection[int], rows: Rows, capacity: int) -> BoolArray:
    """bool[rows]: which of `rows` are in `chosen`. capacity: of the tables."""
    if isinstance(rows, slice):
        mask = np.zeros(capacity, dtype=np.bool_)
        mask[list(chosen)] = True
        return mask[rows]
    wanted = frozenset(chosen)
    return np.fromiter((row in wanted for row in rows.tolist()), dtype=np.bool_, count=len(rows))
