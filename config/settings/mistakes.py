"""Mistakes in a configuration or a cluster file: all at once, each with its path and its source.

pydantic finds the mistakes; this module reports them in terms of the file.
"""

import difflib
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from pydantic import BaseModel, ValidationError
from pydantic.alias_generators import to_camel
from pydantic_core import ErrorDetails

from config.settings.schema import Location, bounds, field_at, field_names

_OUT_OF_RANGE: Final = frozenset({"greater_than", "greater_than_equal", "less_than", "less_than_equal"})
_LONGEST_SHOWN: Final = 80
# Others are only counted: a suggestion for an unknown name takes milliseconds, and nobody reads thousands of lines.
_MOST_TOLD: Final = 50
_REMOVED: Final = {
    "page": "has been removed: the scheduler no longer serves the web page; run `kubectl gpushare page` (docs/page.md)"
}
_QUOTED: Final = re.compile(r"'([^']*)'")
_NOT_QUOTED: Final[dict[type, str]] = {dict: "a mapping", list: "a list"}
# YAML reads 2 as a number and yes as a boolean where the author meant text.
_QUOTE_IT: Final = "; write it in quotes"


@dataclass(frozen=True, slots=True)
class Mistake:
    """One thing to correct.

    path: `profiles[0].schedulerName`; "" if it concerns no single field.
    source: where the value came from: a file's name, `environment GPUSHARE_…` or `flag --…`.
    message: what was expected and what was found.
    """

    path: str
    source: str
    message: str

    def __str__(self) -> str:
        return ": ".join(part for part in (self.source, self.path, self.message) if part)


class ConfigurationError(Exception):
    """Error that holds every mistake found, at least one; `str()` prints one per line."""

    def __init__(self, mistakes: Iterable[Mistake]) -> None:
        self.mistakes: Final = tuple(mistakes)
        super().__init__("\n".join(str(mistake) for mistake in self.mistakes))


def path_text(location: Location) -> str:
    """Return `profiles[0].schedulerName` for `("profiles", 0, "schedulerName")`."""
    parts = (f"[{part}]" if isinstance(part, int) else f".{part}" for part in location)
    return "".join(parts).removeprefix(".")


def near_miss(name: str, allowed: Iterable[str]) -> str:
    """Return `; did you mean X?`, or "" if no allowed name is similar to `name`. Ignores case."""
    by_folded = {candidate.casefold(): candidate for candidate in allowed}
    close = difflib.get_close_matches(name.casefold(), by_folded, n=1)
    return f"; did you mean {by_folded[close[0]]}?" if close else ""


def mistakes_in(
    error: ValidationError, model: type[BaseModel], data: object, source_of: Callable[[Location], str]
) -> list[Mistake]:
    """Return the first mistakes that pydantic found in `data`, by the model's fields; a last one counts the others.

    source_of: the origin of the value at a location.
    """
    found, details = [], error.errors(include_url=False)
    for detail in details[:_MOST_TOLD]:
        location = _location(detail, model, data)
        found.append(Mistake(path_text(location), source_of(location), _message(detail, model, data)))
    if (more := len(details) - _MOST_TOLD) > 0:
        found.append(Mistake("", source_of(()), f"{more} more mistakes"))
    return list(dict.fromkeys(found))


def _location(detail: ErrorDetails, model: type[BaseModel], data: object) -> Location:
    """Return the location without names of union members, which pydantic adds to the keys of the data."""
    location: list[str | int] = []
    for position, part in enumerate(detail["loc"]):
        if _has(data, part):
            data = data[part]  # type: ignore[index]  # `_has` has looked
            location.append(part)
        elif (name := to_camel(str(part))) in field_names(model, detail["loc"][:position]):
            location.append(name)  # missing, or a default that conflicts with another field
    if detail["type"] in {"union_tag_invalid", "union_tag_not_found"}:
        location.append(detail["ctx"]["discriminator"].strip("'"))
    return tuple(location)


def _has(data: object, part: str | int) -> bool:
    if isinstance(data, (list, tuple)):
        return isinstance(part, int) and part < len(data)
    return isinstance(data, dict) and part in data


def _message(detail: ErrorDetails, model: type[BaseModel], data: object) -> str:
    context, found = detail.get("ctx", {}), detail["input"]
    match detail["type"]:
        case "missing" | "union_tag_not_found":
            return "is missing"
        case "extra_forbidden":
            return _unknown_field(str(detail["loc"][-1]), field_names(model, detail["loc"][:-1]))
        case "value_error":
            return str(context["error"])
        case "union_tag_invalid":
            return _expected(context["expected_tags"], context["tag"])
        case "literal_error":
            return _expected(context["expected"], found)
    return _of_value(detail, model, data)


def _of_value(detail: ErrorDetails, model: type[BaseModel], data: object) -> str:
    """Return the message about a single value."""
    found = detail["input"]
    field = field_at(model, detail["loc"])
    if detail["type"] in _OUT_OF_RANGE and field is not None:
        return f"expected {bounds(field)}, found {_shown(_at(data, detail['loc'], found))}"
    message = detail["msg"].removeprefix("Input should be ")
    expected = f"expected {message}" if message != detail["msg"] else message[:1].lower() + message[1:]
    quote_it = _QUOTE_IT if detail["type"] == "string_type" and isinstance(found, (bool, int, float)) else ""
    return f"{expected}, found {_shown(found)}{quote_it}"


def _at(data: object, location: Location, default: object) -> object:
    """Return the value at `location` as the user wrote it, not as pydantic parsed it (a duration in seconds)."""
    for part in location:
        if _has(data, part):
            data = data[part]  # type: ignore[index]  # `_has` has looked
        elif isinstance(part, int) or not isinstance(data, dict):
            return default
    return default if isinstance(data, (dict, list)) else data


def _unknown_field(name: str, allowed: Sequence[str]) -> str:
    if name in _REMOVED:
        return _REMOVED[name]
    return "unknown field" + (near_miss(name, allowed) or f"; expected one of: {', '.join(allowed)}")


def _expected(allowed: str, found: object) -> str:
    suggestion = near_miss(found, _QUOTED.findall(allowed)) if isinstance(found, str) else ""
    return f"expected {allowed}, found {_shown(found)}{suggestion}"


def _shown(value: object) -> str:
    # For a mapping or a list in the wrong place, name only its type: it may contain a token.
    text = next((name for kind, name in _NOT_QUOTED.items() if isinstance(value, kind)), "") or repr(value)
    return text if len(text) <= _LONGEST_SHOWN else f"{text[:_LONGEST_SHOWN]}…"
