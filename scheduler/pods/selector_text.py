"""Label selectors as users write them for `kubectl -l`: `app=web,tier in (a, b),!canary`. Pure.

Source of the syntax: k8s.io/apimachinery/pkg/labels/selector.go, Parse.
"""

import re
from collections.abc import Iterator
from typing import Final

from scheduler.kube.objects import Requirement

# The selector is compared with every pod of the namespace.
_MOST_REQUIREMENTS: Final = 16
_MOST_VALUES: Final = 64  # per requirement
_NAME: Final = r"[A-Za-z0-9](?:[-A-Za-z0-9_.]*[A-Za-z0-9])?"
_KEY: Final = rf"(?:[a-z0-9][-a-z0-9.]*/)?{_NAME}"
_VALUE: Final = rf"(?:{_NAME})?"
_SET: Final = re.compile(rf"({_KEY})\s+(in|notin)\s*\(([^()]*)\)")
_EQUAL: Final = re.compile(rf"({_KEY})\s*(=|==|!=)\s*({_VALUE})")
_EXISTS: Final = re.compile(rf"(!?)\s*({_KEY})")
_SEPARATOR: Final = re.compile(r",(?![^()]*\))")
_EXPECTED: Final = "expected, for example, app=web,tier in (a, b),!canary"


class SelectorError(ValueError):
    """An invalid label selector; the message names the part and the expected form."""


def requirements(text: str) -> tuple[Requirement, ...]:
    """Parse a selector into requirements, all of which must be met. Raises SelectorError, also for an empty text."""
    found = tuple(_requirements(text))
    if len(found) > _MOST_REQUIREMENTS:
        raise SelectorError(f"has {len(found)} requirements; expected at most {_MOST_REQUIREMENTS}")
    return found


def _requirements(text: str) -> Iterator[Requirement]:
    for part in (each.strip() for each in _SEPARATOR.split(text)):
        if found := _SET.fullmatch(part):
            values = tuple(value.strip() for value in found[3].split(","))
            if len(values) > _MOST_VALUES or not all(re.fullmatch(_VALUE, value) for value in values):
                raise _error(part)
            yield Requirement(found[1], "In" if found[2] == "in" else "NotIn", values)
        elif found := _EQUAL.fullmatch(part):
            yield Requirement(found[1], "NotIn" if found[2] == "!=" else "In", (found[3],))
        elif found := _EXISTS.fullmatch(part):
            yield Requirement(found[2], "DoesNotExist" if found[1] else "Exists")
        else:
            raise _error(part)


def _error(part: str) -> SelectorError:
    return SelectorError(f"{part[:64]!r} is not a requirement on a label; {_EXPECTED}")
