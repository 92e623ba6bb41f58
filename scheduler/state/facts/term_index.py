"""Anti-affinity terms by what a pod needs for them to match: a pod is compared with the few that may, not with all."""

from collections.abc import Iterator, Mapping
from itertools import chain
from typing import Final, Generic, TypeVar

from scheduler.state.columns.selectors import Expression, Expressions, Operator

TermT = TypeVar("TermT")
# A term that lists more values is kept by its key: an entry per value would cost more than it saves.
_FEW_VALUES: Final = 8
# (key, value) of a label; None: any value. ("", None): every pod.
_Handle = tuple[str, str | None]
_EVERY_POD: Final[_Handle] = ("", None)


class TermIndex(Generic[TermT]):
    """Terms by one label, or by a few values of one, that each of them asks a pod to have."""

    def __init__(self) -> None:
        """No terms."""
        self._by: dict[_Handle, dict[TermT, None]] = {}

    def add(self, selector: Expressions, term: TermT) -> None:
        """A term with this selector; once."""
        for handle in _handles(selector):
            self._by.setdefault(handle, {})[term] = None

    def discard(self, selector: Expressions, term: TermT) -> None:
        """A term that was added."""
        for handle in _handles(selector):
            del self._by[handle][term]
            if not self._by[handle]:
                del self._by[handle]

    def __bool__(self) -> bool:
        """Whether there are any."""
        return bool(self._by)

    def candidates(self, labels: Mapping[str, str]) -> Iterator[TermT]:
        """Every term whose selector may match these labels, each once; in no order."""
        handles = chain((_EVERY_POD,), labels.items(), ((key, None) for key in labels))
        for handle in handles:
            yield from self._by.get(handle, ())


def _handles(selector: Expressions) -> tuple[_Handle, ...]:
    """The labels of which a pod must have one for the selector to match it: of the expression that says it best."""
    asking = [expression for expression in selector if expression.operator in {Operator.IN, Operator.EXISTS}]
    if not asking:
        return (_EVERY_POD,)
    best = min(asking, key=_number_of_handles)
    if best.operator is Operator.IN and len(best.values) <= _FEW_VALUES:
        return tuple((best.key, value) for value in sorted(best.values))
    return ((best.key, None),)


def _number_of_handles(expression: Expression) -> int:
    few = expression.operator is Operator.IN and len(expression.values) <= _FEW_VALUES
    return len(expression.values) if few else _FEW_VALUES + 1
