"""The base of all configuration models, and how to navigate them by the names in a file. Pure."""

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from decimal import Decimal
from types import UnionType
from typing import Annotated, Final, Literal, TypeAlias, Union, get_args, get_origin

from annotated_types import Ge, Gt, Le
from pydantic import AfterValidator, AliasChoices, BaseModel, ConfigDict
from pydantic.alias_generators import to_camel
from pydantic.fields import FieldInfo
from typing_extensions import TypeIs

from config.settings import duration

Location: TypeAlias = tuple[str | int, ...]  # keys and list indexes, from the root


class Section(BaseModel):
    """A mapping in a configuration file; immutable, no unknown fields. Names: camelCase there, snake_case here."""

    model_config = ConfigDict(
        frozen=True,
        extra="forbid",
        alias_generator=to_camel,
        validate_by_alias=True,
        validate_by_name=True,
        allow_inf_nan=False,
    )

    def contradictions(self) -> Iterator[tuple[Location, str]]:
        """Yield (location, mistake) of settings that are valid alone but contradict each other in a configuration."""
        yield from ()


def refuse_twins(what: str, values: Sequence[str]) -> None:
    """Raise ValueError if one of `values`, names of `what`, occurs twice."""
    twice = [value for value, count in Counter(values).items() if count > 1]
    if twice:
        raise ValueError(f"expected each {what} once, found more than once: {', '.join(twice)}")


def name_in_file(name: str, field: FieldInfo) -> str:
    """Return the name of the field in a file; the first one if it has several."""
    alias = field.validation_alias
    if isinstance(alias, AliasChoices):
        alias = alias.choices[0]
    return alias if isinstance(alias, str) else name


def children(annotation: object, part: str | int) -> list[object]:
    """Return the possible types of `part` in a value of type `annotation`; empty if there is no such part.

    part: a field's name in any case, the index of a list's item, or the tag of a union's member, which
    pydantic puts into the location of a mistake.
    """
    return [child for option in options(annotation) for child in _children_of_one(option, part)]


def options(annotation: object) -> Iterator[object]:
    """Yield the types behind unions, None and Annotated."""
    origin = get_origin(annotation)
    if origin is Annotated:
        yield from options(get_args(annotation)[0])
    elif origin in {Union, UnionType}:
        for option in get_args(annotation):
            yield from options(option)
    elif annotation is not type(None):
        yield annotation


def field_names(model: object, location: tuple[str | int, ...]) -> list[str]:
    """Return the fields that the mapping at `location` may have, by their names in a file, in order."""
    types: list[object] = [model]
    for part in location:
        types = [child for one in types for child in children(one, part)]
    sections = [option for one in types for option in options(one) if is_model(option)]
    return list(dict.fromkeys(name_in_file(n, f) for section in sections for n, f in section.model_fields.items()))


def field_at(model: object, location: tuple[str | int, ...]) -> FieldInfo | None:
    """Return the field at `location`, by the names in a file; None for anything else, such as an item of a list."""
    types: list[object] = [model]
    for part in location[:-1]:
        types = [child for one in types for child in children(one, part)]
    sections = [option for one in types for option in options(one) if is_model(option)]
    found = (f for section in sections for n, f in section.model_fields.items() if name_in_file(n, f) == location[-1])
    return next(found, None)


def bounds(field: FieldInfo) -> str:
    """Return the bounds of a value: `at least 10s, at most 10m`; "" if it has none."""
    number = duration.text if is_duration(field) else _plain
    said = []
    for bound in field.metadata:
        match bound:
            case Ge(ge):
                said.append(f"at least {number(float(str(ge)))}")
            case Gt(gt):
                said.append(f"more than {number(float(str(gt)))}")
            case Le(le):
                said.append(f"at most {number(float(str(le)))}")
    return ", ".join(said)


def is_duration(field: FieldInfo) -> bool:
    """Return whether the field is one of `duration.Seconds`."""
    return any(getattr(entry, "func", None) is duration.seconds for entry in field.metadata)


def is_model(annotation: object) -> TypeIs[type[BaseModel]]:
    """Return whether the type is a pydantic model."""
    return isinstance(annotation, type) and issubclass(annotation, BaseModel)


def _plain(number: float) -> str:
    return f"{Decimal(repr(number)).normalize():f}"


def _children_of_one(option: object, part: str | int) -> Iterator[object]:
    if is_model(option):
        for name, field in option.model_fields.items():
            if name_in_file(name, field).casefold() == str(part).casefold():
                yield field.annotation
            elif get_origin(field.annotation) is Literal and get_args(field.annotation) == (part,):
                yield option
    elif isinstance(part, int) and get_origin(option) in {tuple, list}:
        yield get_args(option)[0]


_LISTEN: Final = re.compile(r"(\[[0-9A-Fa-f:.]+\]|[^:\s]*):([0-9]{1,5})")
_HIGHEST_PORT: Final = 65_535


def checked_address(text: str) -> str:
    """Return `text` unchanged if it is host:port; an IPv6 host in brackets, an empty host for all addresses.

    Raises ValueError otherwise.
    """
    match = _LISTEN.fullmatch(text)
    if match is None or int(match[2]) > _HIGHEST_PORT:
        raise ValueError(f"expected host:port such as 0.0.0.0:10262 or [::1]:10262, found {text[:80]!r}")
    return text


def host_and_port(address: str) -> tuple[str, int]:
    """Return host ("" for all addresses; IPv6 without its brackets) and port of an address that has been checked."""
    host, _, port = address.rpartition(":")
    return host.removeprefix("[").removesuffix("]"), int(port)


Address: TypeAlias = Annotated[str, AfterValidator(checked_address)]
