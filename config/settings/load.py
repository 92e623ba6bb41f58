"""Merges file, environment and flags into a configuration, or reports every mistake at once.

This is the only module of `config` that reads files.

Flags override the environment, the environment overrides the file, and the file overrides the defaults. Lists are
merged item by item, so that the environment can set one field of one profile.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Final, TypeVar, get_origin

from pydantic import BaseModel, ValidationError

from config.settings.mistakes import ConfigurationError, Mistake, mistakes_in, near_miss, path_text
from config.settings.plainyaml import DocumentError, parse
from config.settings.schema import Location, Section, children, field_names, is_model, options

M = TypeVar("M", bound=BaseModel)

_SEPARATOR: Final = "__"
_HEAD: Final = {"apiVersion": "api_version", "kind": "kind"}  # name in the file: name in the model
_LONGEST_INDEX: Final = 4  # digits
_NO_FILE: Final = "configuration"
_SOURCES: Final = 3  # named at a time
# Suggesting a name for an unknown variable takes 10 ms: it is compared with 150 names.
_MOST_UNKNOWN: Final = 10
# The kubelet sets these in every container for each Service of the namespace, so a Service with our name is not a
# mistake. Source: pkg/kubelet/envvars/envvars.go. None can be a path, because a path has no single underscore.
_SERVICE_LINK: Final = re.compile(
    r"(?:[A-Z0-9_]+_)?(?:SERVICE_HOST|SERVICE_PORT(?:_[A-Z0-9_]+)?|PORT(?:_\d+_(?:TCP|UDP|SCTP)(?:_(?:PROTO|PORT|ADDR))?)?)"
)


def load(
    model: type[M],
    *,
    file: Path | None,
    environ: Mapping[str, str],
    flags: Mapping[str, object],
    env_prefix: str,
    text: str | None = None,
) -> M:
    """Return the configuration.

    file: YAML, one document, with `apiVersion` and `kind`; None reads none.
    environ: variables that begin with `env_prefix` are `env_prefix` + the path in upper case joined by `__`, list
    items by number: `PROFILES__0__SCHEDULERNAME`. The value of a section or a list is YAML.
    flags: values by dotted path, such as `clientConnection.kubeconfig`; None if the flag was not given.
    text: content of `file`, if that is not on this machine; mistakes still name the file.
    Raises ConfigurationError with every mistake of all three; if there are very many, with the first ones and the
    number of the others.
    """
    settings = _Settings(model)
    if file is not None:
        settings.read(file, text)
    for name in sorted(environ, key=_by_number):
        if name.startswith(env_prefix):
            settings.take_variable(name, env_prefix, environ[name])
    settings.count_unknown(env_prefix)
    for path, value in flags.items():
        if value is not None:
            location = tuple(path.split("."))
            settings.put(location, value, f"flag {_flag(location)}")
    return settings.checked(model)


def read_text(file: Path) -> str:
    """Return the file's text. Raises ConfigurationError if it cannot be read."""
    try:
        return file.read_text(encoding="utf-8")
    except OSError as error:
        raise ConfigurationError([Mistake("", str(file), f"cannot be read: {error.strerror}")]) from error
    except UnicodeDecodeError as error:
        raise ConfigurationError([Mistake("", str(file), "cannot be read: not UTF-8 text")]) from error


def documents_in(file: Path, text: str | None = None) -> list[object]:
    """Return every YAML document of the file. text: its content, if known. Raises ConfigurationError if unreadable."""
    try:
        return parse(read_text(file) if text is None else text)
    except DocumentError as error:
        raise ConfigurationError([Mistake("", str(file), str(error))]) from error


@dataclass(slots=True)
class _Settings:
    """The merged values. sources: location -> source, for values that do not come from the file.

    unknown: unknown variables; only the first few are reported.
    """

    model: type[BaseModel]
    values: dict[str, object] = field(default_factory=dict)
    file: str = _NO_FILE
    sources: dict[Location, str] = field(default_factory=dict)
    mistakes: list[Mistake] = field(default_factory=list)
    unknown: int = 0

    def read(self, file: Path, text: str | None) -> None:
        self.file = str(file)
        try:
            documents = documents_in(file, text)
        except ConfigurationError as error:
            self.mistakes += error.mistakes
            return
        if len(documents) > 1:
            self._reject_file(f"expected one document, found {len(documents)}")
        document = documents[0] if documents else {}
        if not isinstance(document, dict):
            self._reject_file(f"expected a mapping with {' and '.join(_HEAD)}, found {type(document).__name__}")
            return
        self.values = document
        for name, attribute in _HEAD.items():
            if attribute in self.model.model_fields and name not in self.values:
                default = self.model.model_fields[attribute].default
                self.mistakes.append(Mistake(name, self.file, f"is missing; expected {default}"))

    def take_variable(self, name: str, prefix: str, text: str) -> None:
        rest = name.removeprefix(prefix)
        if _SERVICE_LINK.fullmatch(rest) and not (rest == "PORT" and "://" not in text):
            return
        source = f"environment {name}"
        location, annotations = _walk(self.model, rest.split(_SEPARATOR))
        if not annotations:
            self.unknown += 1
            if self.unknown > _MOST_UNKNOWN:
                return
            known = [prefix + _SEPARATOR.join(map(str, path)).upper() for path in _paths(self.model)]
            self.mistakes.append(Mistake("", source, f"unknown field{near_miss(name, known)}"))
            return
        try:
            value = _value(annotations, text)
        except DocumentError as error:
            self.mistakes.append(Mistake(path_text(location), source, str(error)))
            return
        self.put(location, value, source)

    def count_unknown(self, prefix: str) -> None:
        """Add a mistake with the number of further unknown variables. Call after all variables are read."""
        if (more := self.unknown - _MOST_UNKNOWN) > 0:
            self.mistakes.append(Mistake("", f"environment {prefix}…", f"{more} more unknown fields"))

    def put(self, location: Location, value: object, source: str) -> None:
        self.sources[location] = source
        if beyond := _past_the_end(self.values, location):
            self.mistakes.append(Mistake(path_text(location), source, beyond))
            return
        place: object = self.values
        for part, following in pairwise(location):
            place = _inside(place, part, [] if isinstance(following, int) else {})
        _inside(place, location[-1], value)
        if isinstance(place, (dict, list)):
            place[location[-1]] = value  # type: ignore[index]  # a list's part is a number: `_inside` has looked

    def checked(self, model: type[M]) -> M:
        try:
            configuration = model.model_validate(self.values, by_alias=True, by_name=False)
        except ValidationError as error:
            self.mistakes += mistakes_in(error, model, self.values, self._source_of)
            raise ConfigurationError(self.mistakes) from None
        if isinstance(configuration, Section):
            for location, message in configuration.contradictions():
                self.mistakes.append(Mistake(path_text(location), self._source_of(location), message))
        if self.mistakes:
            raise ConfigurationError(self.mistakes)
        return configuration

    def _source_of(self, location: Location) -> str:
        for end in range(len(location), -1, -1):
            if location[:end] in self.sources:
                return self.sources[location[:end]]
        return self.file if self.file != _NO_FILE else self._set_inside(location)

    def _set_inside(self, location: Location) -> str:
        """Return the sources of the values at a location, or of all values if none is there. Used without a file."""
        inside = [source for place, source in self.sources.items() if place[: len(location)] == location]
        found = inside or [*self.sources.values()]
        more = f" and {len(found) - _SOURCES} more" if len(found) > _SOURCES else ""
        return ", ".join(found[:_SOURCES]) + more if found else _NO_FILE

    def _reject_file(self, message: str) -> None:
        self.mistakes.append(Mistake("", self.file, message))


def _walk(model: type[BaseModel], segments: list[str]) -> tuple[Location, list[object]]:
    """Return (location named by a variable's segments, in the model's spelling; its possible types, or [])."""
    location: list[str | int] = []
    types: list[object] = [model]
    for segment in segments:
        is_index = segment.isascii() and segment.isdigit() and len(segment) <= _LONGEST_INDEX
        part: str | int = int(segment) if is_index else segment
        names = {name.casefold(): name for name in field_names(model, tuple(location))}
        types = [child for one in types for child in children(one, part)]
        location.append(names.get(segment.casefold(), part))
    return tuple(location), types


def _paths(model: type[BaseModel], location: Location = ()) -> list[Location]:
    """Return every location that a variable may name, with 0 for the index of each list."""
    paths: list[Location] = []
    for name in field_names(model, location):
        inner: Location = (*location, name)
        paths += [inner, *_paths(model, inner), *_paths(model, (*inner, 0))]
    return paths


def _value(annotations: list[object], text: str) -> object:
    """Parse the text as YAML for a section or a list; otherwise return it as it is, because pydantic converts it."""
    kinds = [option for annotation in annotations for option in options(annotation)]
    if not any(is_model(kind) or get_origin(kind) in {tuple, list} for kind in kinds):
        return text
    documents = parse(text)
    return documents[0] if documents else text


def _past_the_end(place: object, location: Location) -> str:
    """Return why an index would leave a hole in its list; "" if it would not."""
    for part in location:
        if isinstance(part, str):
            place = place.get(part) if isinstance(place, dict) else None
            continue
        items = place if isinstance(place, list) else []
        if part > len(items):
            return f"index {part} leaves a gap: the list has {len(items)} items; expected at most {len(items)}"
        place = items[part] if part < len(items) else None
    return ""


def _inside(place: object, part: str | int, new: object) -> object:
    """Return the value at `part` of a section or list, after putting `new` there if it is missing.

    If the file has no section or list there, returns an empty one that is dropped: the file's mistake is found later.
    """
    if isinstance(place, dict):
        return place.setdefault(part, new)
    if not isinstance(place, list) or not isinstance(part, int):
        return {}
    if part == len(place):
        place.append(new)
    return place[part]


def _by_number(name: str) -> list[tuple[int, str]]:
    """Return a sort key: `…__2__…` before `…__10__…`, so that list items come in order, and a list before its items."""
    return [(int(part) if part.isascii() and part.isdigit() else -1, part) for part in name.split(_SEPARATOR)]


def _flag(location: Location) -> str:
    return "--" + re.sub(r"([A-Z])", r"-\1", str(location[-1])).lower()
