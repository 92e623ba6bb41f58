"""Values in use and their codes. int32 columns hold the code of a label's value or of a set of taints."""

from collections.abc import Hashable, ItemsView, Mapping
from typing import Any, Final, Generic, TypeVar

ValueT = TypeVar("ValueT", bound=Hashable)
_FREED: Final[Any] = None


class Vocabulary(Generic[ValueT]):
    """Reference-counted codes. An unused code is reused, so there are never more codes than values in use at one time.

    version: changes when a code gets another value, so that results can be cached by code.
    """

    def __init__(self) -> None:
        self.version = 0
        self._code_of: dict[ValueT, int] = {}
        self._value_of: list[ValueT] = []
        self._uses: list[int] = []
        self._free: list[int] = []

    def __len__(self) -> int:
        """Length of a table indexed by code: every code is less than this."""
        return len(self._value_of)

    @classmethod
    def of(cls, uses: Mapping[ValueT, int]) -> "Vocabulary[ValueT]":
        """Values with their initial numbers of uses; codes in this order."""
        made = cls()
        made.version = len(uses)
        made._code_of = {value: code for code, value in enumerate(uses)}
        made._value_of, made._uses = list(uses), list(uses.values())
        return made

    def take(self, value: ValueT) -> int:
        """Return the code of `value`, and count one more use."""
        code = self._code_of.get(value)
        if code is None:
            code = self._code_of[value] = self._new_code(value)
        self._uses[code] += 1
        return code

    def drop(self, code: int) -> None:
        """Remove one use of the code."""
        self._uses[code] -= 1
        if self._uses[code] == 0:
            del self._code_of[self._value_of[code]]
            # The value is not kept until another one takes its code: it may be large.
            self._value_of[code] = _FREED
            self._free.append(code)

    def value(self, code: int) -> ValueT:
        """Value of a code in use."""
        return self._value_of[code]

    def code(self, value: ValueT) -> int | None:
        """The code of `value`; None if it is unused."""
        return self._code_of.get(value)

    def uses(self, value: ValueT) -> int:
        """Number of uses of `value`."""
        code = self._code_of.get(value)
        return 0 if code is None else self._uses[code]

    def uses_of(self, code: int) -> int:
        """Number of uses of a code's value, 0 for a free code."""
        return self._uses[code]

    def items(self) -> ItemsView[ValueT, int]:
        """Return (value, code) of every value in use."""
        return self._code_of.items()

    def _new_code(self, value: ValueT) -> int:
        self.version += 1
        if self._free:
            code = self._free.pop()
            self._value_of[code] = value
            return code
        self._value_of.append(value)
        self._uses.append(0)
        return len(self._value_of) - 1
