"""`-l` of kubectl as a test of labels: `a=b,c!=d,e,!f,g in (x,y),h notin (z)`. Pure.

Source: kubernetes.io/docs/concepts/overview/working-with-objects/labels, "Label selectors".
"""

import re
from collections.abc import Callable, Mapping
from typing import Final

Test = Callable[[Mapping[str, str]], bool]

_KEY: Final = r"(?P<key>[A-Za-z0-9][A-Za-z0-9._/-]*)"
_VALUE: Final = r"[A-Za-z0-9._-]*"
_EQUAL: Final = re.compile(rf"{_KEY}\s*(?P<how>==|=|!=)\s*(?P<value>{_VALUE})")
_SET: Final = re.compile(rf"{_KEY}\s+(?P<how>in|notin)\s*\((?P<values>[^()]*)\)")
_EXISTS: Final = re.compile(rf"(?P<how>!?)\s*{_KEY}")
# Commas between the requirements, not those within parentheses.
_BETWEEN: Final = re.compile(r",(?![^(]*\))")


class LabelSelectorError(ValueError):
    """A selector that cannot be read; the message says which part."""


def selector(text: str) -> Test:
    """The test for all of its requirements; "" selects everything. Raises LabelSelectorError."""
    tests = [_requirement(part.strip()) for part in _BETWEEN.split(text)] if text.strip() else []
    return lambda labels: all(test(labels) for test in tests)


def _requirement(text: str) -> Test:
    if found := _EQUAL.fullmatch(text):
        return _any_of(found["key"], frozenset({found["value"]}), wanted=found["how"] != "!=")
    if found := _SET.fullmatch(text):
        values = frozenset(value.strip() for value in found["values"].split(","))
        return _any_of(found["key"], values, wanted=found["how"] == "in")
    if found := _EXISTS.fullmatch(text):
        key, exists = found["key"], not found["how"]
        return lambda labels: (key in labels) is exists
    raise LabelSelectorError(
        f"label selector: expected KEY=VALUE, KEY!=VALUE, KEY in (A,B), KEY or !KEY, found {text!r}"
    )


def _any_of(key: str, values: frozenset[str], *, wanted: bool) -> Test:
    """A label that is absent has none of the values."""
    return lambda labels: (labels.get(key) in values) is wanted
