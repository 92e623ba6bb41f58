"""Arrays over the evaluated rows, built from the values of a few rows."""

from collections.abc import Collection, Iterator, Mapping

import numpy as np

from scheduler.state.columns.arrays import ALL_ROWS, BoolArray, Int64Array, Rows


def mask_of(chosen: Collection[int], rows: Rows, capacity: int) -> BoolArray:
    """bool[rows]: True for the `rows` that are in `chosen`. capacity: the tables' capacity."""
    mask = np.zeros(count_of(rows, capacity), dtype=np.bool_)
    for place, _ in places_of(chosen, rows):
        mask[place] = True
    return mask


def values_of(known: Mapping[int, int], rows: Rows, capacity: int) -> Int64Array:
    """int64[rows]: the value of each row that is in `known`, 0 for the others. capacity: the tables' capacity."""
    values = np.zeros(count_of(rows, capacity), dtype=np.int64)
    if isinstance(rows, slice) and rows == ALL_ROWS:
        values[list(known)] = list(known.values())
        return values
    for place, row in places_of(known, rows):
        values[place] = known[row]
    return values


def count_of(rows: Rows, capacity: int) -> int:
    """Number of evaluated rows."""
    return len(range(*rows.indices(capacity))) if isinstance(rows, slice) else len(rows)


def only_row(rows: Rows) -> int | None:
    """The row if only one is evaluated, as after a booking; otherwise None."""
    if isinstance(rows, slice) and rows.stop is not None and rows.stop - (rows.start or 0) == 1:
        return int(rows.start or 0)
    return None


def places_of(chosen: Collection[int], rows: Rows) -> Iterator[tuple[int, int]]:
    """Yield (position in `rows`, row) for each row that is in `chosen`; iterates over the smaller of the two."""
    if not isinstance(rows, slice):
        return ((place, row) for place, row in enumerate(rows.tolist()) if row in chosen)
    start, stop = rows.start or 0, rows.stop
    if stop is not None and stop - start < len(chosen):
        return ((row - start, row) for row in range(start, stop) if row in chosen)
    return ((row - start, row) for row in chosen if start <= row and (stop is None or row < stop))
