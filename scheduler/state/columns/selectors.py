"""Label selectors, evaluated on the labels of one object or over the columns of all nodes.

Source: k8s.io/apimachinery/pkg/labels/selector.go (NewRequirement, Requirement.Matches) and pkg/apis/meta/v1/helpers.go
(LabelSelectorAsSelector).
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from functools import lru_cache
from typing import Final, TypeAlias

import numpy as np

from scheduler.kube import objects
from scheduler.pods.selector_text import SelectorError, requirements
from scheduler.state.columns.arrays import BoolArray, Rows
from scheduler.state.columns.labels import LabelColumn, Labels, integer

_LABEL_VALUE: Final = re.compile(r"(?:[A-Za-z0-9](?:[-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?)?", re.ASCII)


class Operator(StrEnum):
    """Operators of the API. NOT_IN and DOES_NOT_EXIST also accept an object without the key."""

    IN = "In"
    NOT_IN = "NotIn"
    EXISTS = "Exists"
    DOES_NOT_EXIST = "DoesNotExist"
    GT = "Gt"
    LT = "Lt"


_OF_LABEL_SELECTORS: Final = frozenset({Operator.IN, Operator.NOT_IN, Operator.EXISTS, Operator.DOES_NOT_EXIST})


@dataclass(frozen=True, slots=True)
class Expression:
    """One valid requirement. values: for IN and NOT_IN. bound: for GT and LT."""

    key: str
    operator: Operator
    values: frozenset[str] = frozenset()
    bound: int = 0

    def accepts(self, value: str | None) -> bool:
        """Whether an object with this value of the key matches. value: None if the object lacks the key."""
        match self.operator:
            case Operator.IN:
                return value in self.values
            case Operator.NOT_IN:
                return value not in self.values
            case Operator.EXISTS:
                return value is not None
            case Operator.DOES_NOT_EXIST:
                return value is None
        number = None if value is None else integer(value)
        if number is None:
            return False
        return number > self.bound if self.operator is Operator.GT else number < self.bound

    def verdicts(self, column: LabelColumn) -> BoolArray:
        """bool[codes + 1]: `accepts` by code. The last element, which ABSENT indexes, is for rows without the key."""
        others = self.operator in {Operator.NOT_IN, Operator.EXISTS}
        table = np.full(len(column.values) + 1, others, dtype=np.bool_)
        table[-1] = self.accepts(None)
        if self.operator in {Operator.GT, Operator.LT}:
            numbers, written = column.integers()
            beyond = numbers > self.bound if self.operator is Operator.GT else numbers < self.bound
            table[:-1] = beyond & written
            return table
        listed = [known for value in self.values if (known := column.values.code(value)) is not None]
        table[listed] = not others
        return table


Expressions: TypeAlias = tuple[Expression, ...]


class Matcher:
    """An expression evaluated over rows. Verdicts are cached by the value's code: a changed row costs one look-up."""

    __slots__ = ("_column", "_verdicts", "_version", "expression")

    def __init__(self, expression: Expression) -> None:
        self.expression = expression
        self._column: LabelColumn | None = None
        self._version = -1
        self._verdicts: BoolArray = np.zeros(0, dtype=np.bool_)

    def over(self, labels: Labels, rows: Rows) -> BoolArray:
        """bool[rows], a new array: True for rows that match."""
        column = labels.column(self.expression.key)
        if column is not self._column or column.values.version != self._version:
            self._column, self._version = column, column.values.version
            self._verdicts = self.expression.verdicts(column)
        return self._verdicts[column.codes[rows]]

    @property
    def size_bytes(self) -> int:
        return 256 + int(self._verdicts.nbytes)


def parsed(requirement: objects.Requirement) -> Expression | None:
    """The parsed expression; None if it is invalid, which the API server does not exclude for node affinity."""
    try:
        operator = Operator(requirement.operator)
    except ValueError:
        return None
    values = requirement.values
    if not all(_LABEL_VALUE.fullmatch(value) for value in values):
        return None
    match operator:
        case Operator.IN | Operator.NOT_IN:
            return Expression(requirement.key, operator, frozenset(values)) if values else None
        case Operator.EXISTS | Operator.DOES_NOT_EXIST:
            return None if values else Expression(requirement.key, operator)
    bound = integer(values[0]) if len(values) == 1 else None
    return None if bound is None else Expression(requirement.key, operator, bound=bound)


def equalities(labels: Mapping[str, str]) -> Expressions:
    """Expressions that require all of `labels`, as in a nodeSelector or matchLabels."""
    return tuple(Expression(key, Operator.IN, frozenset({labels[key]})) for key in sorted(labels))


def all_parsed(requirements: Iterable[objects.Requirement]) -> Expressions | None:
    """The parsed expressions; None if one is invalid."""
    expressions = [parsed(requirement) for requirement in requirements]
    valid = tuple(expression for expression in expressions if expression is not None)
    return valid if len(valid) == len(expressions) else None


def of_label_selector(selector: objects.LabelSelector | None) -> Expressions | None:
    """The expressions, ANDed; () if the selector matches everything, None if it matches nothing.

    An absent or invalid selector matches nothing.
    """
    if selector is None:
        return None
    expressions = all_parsed(selector.match_expressions)
    if expressions is None or any(e.operator not in _OF_LABEL_SELECTORS for e in expressions):
        return None
    return (*equalities(selector.match_labels or {}), *expressions)


@lru_cache(maxsize=1024)
def of_text(text: str) -> Expressions:
    """Expressions of a selector in its text form, at least one. Raises SelectorError if the text is invalid."""
    expressions = all_parsed(requirements(text))
    if expressions is None:
        message = f"{text[:64]!r} has an invalid label value; expected at most 63 letters, digits, -, _ and ."
        raise SelectorError(message)
    return expressions


def match(expressions: Expressions, labels: Mapping[str, str]) -> bool:
    """Whether an object's labels match all of `expressions`."""
    return all(expression.accepts(labels.get(expression.key)) for expression in expressions)
