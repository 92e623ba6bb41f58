"""Array types of the tables, and how columns grow."""

from typing import Any, Final, TypeAlias

import numpy as np

# np.unique and similar functions import this in their first call, which would delay a decision by 40 ms.
import numpy.ma
from numpy.typing import NDArray

BoolArray: TypeAlias = NDArray[np.bool_]
Int8Array: TypeAlias = NDArray[np.int8]
Int32Array: TypeAlias = NDArray[np.int32]
Int64Array: TypeAlias = NDArray[np.int64]
RowArray: TypeAlias = NDArray[np.intp]
# The rows that a plugin evaluates: all of them (a slice, so that columns are viewed, not copied) or some.
Rows: TypeAlias = slice | RowArray

ALL_ROWS: Final = slice(None)
FIRST_CAPACITY: Final = 64


def resized(column: NDArray[Any], shape: tuple[int, ...], fill: float) -> NDArray[Any]:
    """A copy of `column` of at least the same `shape` in each dimension; new cells hold `fill`."""
    grown = np.full(shape, fill, dtype=column.dtype)
    grown[tuple(slice(0, n) for n in column.shape)] = column
    return grown
