"""Reads arrivals of pods from a CSV file with one pod per line, for more pods than are practical in YAML.

`docs/simulate.md` is the guide. Pods with the same request share one `PodAsk`.
"""

import csv
import gzip
import math
import re
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, NamedTuple, TextIO, TypeVar

from config.clusterfile.model import LATEST_S
from config.settings.mistakes import ConfigurationError, Mistake, near_miss

T = TypeVar("T")
_NEEDED: Final = ("name", "at_s", "cpu_milli", "memory_mib", "units_per_card", "cards")
COLUMNS: Final = (*_NEEDED, "runs_s", "models", "priority")
_OF_THE_ASK: Final = ("cpu_milli", "memory_mib", "units_per_card", "cards", "models", "priority")
# A valid pod name in Kubernetes: a DNS subdomain.
_NAME: Final = re.compile(r"[a-z0-9](?:[-a-z0-9]*[a-z0-9])?(?:\.[a-z0-9](?:[-a-z0-9]*[a-z0-9])?)*")
_LONGEST_NAME: Final = 253
_MOST: Final = 2**31 - 1
_MOST_CARDS: Final = 256
# Further mistakes are only counted.
_MOST_TOLD: Final = 50
_LONGEST_SHOWN: Final = 80


class PodAsk(NamedTuple):
    """A pod's request. units_per_card: on each of its `cards` cards; both are 0 for a pod without GPU memory.

    models: allowed models of its cards; () for any.
    """

    cpu_milli: int
    memory_mib: int
    units_per_card: int
    cards: int
    models: tuple[str, ...] = ()
    priority: int = 0


class Arrival(NamedTuple):
    """A pod that arrives at `at_s`, seconds from the start.

    It finishes `runs_s` after it has started; None if never.
    """

    name: str
    at_s: float
    runs_s: float | None
    ask: PodAsk


class _Wrong(ValueError):
    """One invalid value; the message names the expected form."""


def read_arrivals(path: Path) -> list[Arrival]:
    """Return a file's pods ordered by time, then by position. A `.gz` file is unpacked.

    Raises ConfigurationError with the first 50 mistakes and the number of the others.
    """
    reader = _Reader(str(path))
    try:
        with _opened(path) as text:
            reader.read(csv.reader(text, strict=True))
    except OSError as error:
        reader.wrong("", f"cannot be read: {error.strerror or error}")
    except (EOFError, UnicodeDecodeError, zlib.error) as error:
        reader.wrong("", f"cannot be read: {'not UTF-8 text' if isinstance(error, UnicodeDecodeError) else error}")
    if reader.mistakes:
        raise ConfigurationError(reader.told())
    return sorted(reader.arrivals, key=lambda arrival: arrival.at_s)


def write_arrivals(path: Path, arrivals: Iterable[Arrival]) -> None:
    """Write a file that `read_arrivals` reads; compressed if the name ends in `.gz`, with reproducible bytes."""
    lines = [",".join(COLUMNS)]
    lines += [",".join(_cells(arrival)) for arrival in arrivals]
    written = ("\n".join(lines) + "\n").encode()
    path.write_bytes(gzip.compress(written, mtime=0) if path.suffix == ".gz" else written)


@dataclass(slots=True)
class _Reader:
    """Converts lines to arrivals, and collects the mistakes of invalid lines. asks: PodAsk by the text of its cells."""

    file: str
    arrivals: list[Arrival] = field(default_factory=list)
    mistakes: list[Mistake] = field(default_factory=list)
    more: int = 0
    asks: dict[tuple[str, ...], PodAsk] = field(default_factory=dict)
    lines_of: dict[str, int] = field(default_factory=dict)

    def wrong(self, place: str, message: str) -> None:
        if len(self.mistakes) < _MOST_TOLD:
            self.mistakes.append(Mistake(place, self.file, message))
        else:
            self.more += 1

    def told(self) -> Iterator[Mistake]:
        yield from self.mistakes
        if self.more:
            yield Mistake("", self.file, f"{self.more} more mistakes")

    def read(self, lines: "csv._reader") -> None:  # type: ignore[name-defined] # known to typeshed only
        try:
            columns = self._columns(next(lines, []))
            if columns is None:
                return
            for cells in lines:
                if cells:
                    self._take(lines.line_num, columns, cells)
        except csv.Error as error:
            self.wrong(f"line {lines.line_num}", f"is not CSV: {error}")

    def _columns(self, head: Sequence[str]) -> list[str] | None:
        """Return the names of the columns; None if the header is invalid."""
        names = [name.strip().removeprefix("\ufeff") for name in head]
        for name in dict.fromkeys(names):
            if name not in COLUMNS:
                hint = near_miss(name, COLUMNS) or f"; expected one of: {', '.join(COLUMNS)}"
                self.wrong(f"line 1, {name}", f"unknown column{hint}")
            elif names.count(name) > 1:
                self.wrong(f"line 1, {name}", "appears more than once")
        if missing := [name for name in _NEEDED if name not in names]:
            self.wrong(
                "line 1", f"expected a header with the columns {', '.join(_NEEDED)}; missing: {', '.join(missing)}"
            )
        return None if self.mistakes else names

    def _take(self, line: int, columns: list[str], cells: Sequence[str]) -> None:
        if len(cells) != len(columns):
            self.wrong(f"line {line}", f"expected {len(columns)} values, found {len(cells)}")
            return
        values = dict(zip(columns, map(str.strip, cells), strict=True))
        name = self._read(line, values, "name", self._new_name)
        at_s = self._read(line, values, "at_s", _seconds)
        runs_s = self._read(line, values, "runs_s", _seconds) if values.get("runs_s") else None
        ask = self._ask(line, values)
        if name is not None:
            self.lines_of[name] = line
        if name is not None and at_s is not None and ask is not None:
            self.arrivals.append(Arrival(name, at_s, runs_s, ask))

    def _new_name(self, text: str) -> str:
        if len(text) > _LONGEST_NAME or not _NAME.fullmatch(text):
            raise _Wrong(f"expected a pod name of lowercase letters, digits, - and ., found {_shown(text)}")
        if (line := self.lines_of.get(text)) is not None:
            raise _Wrong(f"expected each name once; {_shown(text)} is also on line {line}")
        return text

    def _ask(self, line: int, values: Mapping[str, str]) -> PodAsk | None:
        key = tuple([values.get(name, "") for name in _OF_THE_ASK])
        if (known := self.asks.get(key)) is not None:
            return known
        numbers = [self._read(line, values, name, read) for name, read in _NUMBERS.items()]
        priority = self._read(line, values, "priority", _integer) if values.get("priority") else 0
        models = self._read(line, values, "models", _models) if values.get("models") else ()
        if None in numbers or priority is None or models is None:
            return None
        cpu, memory, units, cards = [number or 0 for number in numbers]
        if bool(units) is not bool(cards):
            found = f"found {units} and {cards}"
            self.wrong(f"line {line}, cards", f"expected both units_per_card and cards, or neither; {found}")
            return None
        if models and not cards:
            self.wrong(f"line {line}, models", "expected none for a pod without cards")
            return None
        made = self.asks[key] = PodAsk(cpu, memory, units, cards, models, priority)
        return made

    def _read(self, line: int, values: Mapping[str, str], name: str, read: Callable[[str], T]) -> T | None:
        try:
            return read(values[name])
        except _Wrong as error:
            self.wrong(f"line {line}, {name}", str(error))
            return None


def _opened(path: Path) -> TextIO:
    if path.suffix == ".gz":
        return gzip.open(path, "rt", encoding="utf-8", newline="")
    return path.open(encoding="utf-8", newline="")


def _cells(arrival: Arrival) -> Iterator[str]:
    ask = arrival.ask
    runs_s = "" if arrival.runs_s is None else f"{arrival.runs_s:.15g}"
    values = (arrival.name, f"{arrival.at_s:.15g}", ask.cpu_milli, ask.memory_mib, ask.units_per_card, ask.cards)
    return map(str, (*values, runs_s, "|".join(ask.models), ask.priority or ""))


def _seconds(text: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        seconds = math.nan
    if not 0 <= seconds <= LATEST_S:
        raise _Wrong(f"expected a number of seconds from 0 to 1e9, found {_shown(text)}")
    return seconds


def _whole(most: int) -> Callable[[str], int]:
    def read(text: str) -> int:
        if not (text.isascii() and text.isdigit() and len(text) <= len(str(_MOST)) and int(text) <= most):
            raise _Wrong(f"expected a whole number from 0 to {most}, found {_shown(text)}")
        return int(text)

    return read


def _integer(text: str) -> int:
    try:
        number = int(text)
    except ValueError:
        number = _MOST + 1
    if not -_MOST <= number <= _MOST:
        raise _Wrong(f"expected a whole number, found {_shown(text)}")
    return number


def _models(text: str) -> tuple[str, ...]:
    models = tuple(model.strip() for model in text.split("|"))
    if not all(models) or any("," in model for model in models):
        raise _Wrong(f"expected model names separated by |, found {_shown(text)}")
    return models


def _shown(text: str) -> str:
    return repr(text if len(text) <= _LONGEST_SHOWN else f"{text[:_LONGEST_SHOWN]}…")


_NUMBERS: Final[Mapping[str, Callable[[str], int]]] = {
    "cpu_milli": _whole(_MOST),
    "memory_mib": _whole(_MOST),
    "units_per_card": _whole(_MOST),
    "cards": _whole(_MOST_CARDS),
}
