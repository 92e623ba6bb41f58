"""What a plugin works out once for a class of pods and reads again at later extension points."""

from dataclasses import dataclass
from typing import Any, Generic, TypeVar, cast

T = TypeVar("T")


@dataclass(frozen=True)
class StateKey(Generic[T]):
    """Names a value of type T: `WANTED: Final = StateKey[GpuRequest]("gpu_share.gpu_request")`."""

    name: str


class CycleState:
    """Typed values of one class of pods. Kept with its evaluation, so it may hold only what the signature holds."""

    __slots__ = ("_values",)

    def __init__(self) -> None:
        """Empty."""
        self._values: dict[str, Any] = {}

    def write(self, key: StateKey[T], value: T) -> None:
        """Set a value; a second write replaces the first."""
        self._values[key.name] = value

    def read(self, key: StateKey[T]) -> T:
        """The value; KeyError when PreFilter did not write it."""
        return cast("T", self._values[key.name])

    def find(self, key: StateKey[T]) -> T | None:
        """The value; None when nobody wrote it, as when the extension point that does is disabled."""
        return cast("T | None", self._values.get(key.name))
