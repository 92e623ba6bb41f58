"""Values that a plugin computes once for a class of pods and reads again at later extension points."""

from collections.abc import Iterable
from dataclasses import dataclass, fields
from typing import Any, Final, Generic, TypeVar

import numpy as np

T = TypeVar("T")
_OBJECT_BYTES: Final = 64
_SMALL: Final = (str, int, type(None))


@dataclass(frozen=True)
class StateKey(Generic[T]):
    """Typed name of a value: `WANTED: Final = StateKey[GpuRequest]("gpu_share.gpu_request")`."""

    name: str


class CycleState:
    """Typed values of one class of pods, kept with its evaluation.

    May hold only values that the signature determines.
    """

    __slots__ = ("_row_cache", "_values")

    def __init__(self) -> None:
        """Create an empty state."""
        self._values: dict[str, Any] = {}
        self._row_cache: set[str] = set()

    @property
    def size_bytes(self) -> int:
        """Approximate memory: arrays, plus objects that have a `size_bytes`."""
        return _size_of(self._values.values())

    def write(self, key: StateKey[T], value: T) -> None:
        """Set a value; a second write replaces the first."""
        self._values[key.name] = value

    def write_row_cache(self, key: StateKey[T], value: T) -> None:
        """Set a value that is useful only for further queries about the same rows; it is not kept with the class."""
        self._row_cache.add(key.name)
        self._values[key.name] = value

    def drop_row_cache(self) -> None:
        """Drop the row cache before queries about other rows."""
        for name in self._row_cache:
            del self._values[name]
        self._row_cache.clear()

    def read(self, key: StateKey[T]) -> T:
        """Return the value. Raises KeyError if PreFilter did not write it."""
        value: T = self._values[key.name]
        return value

    def find(self, key: StateKey[T]) -> T | None:
        """Return the value; None if it was not written (the extension point that writes it may be disabled)."""
        value: T | None = self._values.get(key.name)
        return value


def _size_of(values: Iterable[Any]) -> int:
    total = 0
    for value in values:
        total += _OBJECT_BYTES
        if isinstance(value, _SMALL):
            continue
        if isinstance(value, np.ndarray):
            total += value.nbytes
        elif isinstance(value, tuple | list):
            total += _size_of(value)
        elif (told := getattr(value, "size_bytes", None)) is not None:
            total += told
        elif getattr(getattr(value, "__dataclass_params__", None), "frozen", False):
            total += _size_of(getattr(value, field.name) for field in fields(value))
    return total
