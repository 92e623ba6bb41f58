"""Lines for a terminal with their meaning; colors are derived from the meaning only here. Pure."""

from collections.abc import Iterable, Mapping
from enum import StrEnum
from typing import Final, NamedTuple

from scheduler.process.terminal import one_line


class Tone(StrEnum):
    """Meaning of a line. HEAD: the titles of columns."""

    PLAIN = "plain"
    HEAD = "head"
    GOOD = "good"
    WARNING = "warning"
    BAD = "bad"


class Line(NamedTuple):
    """One line of an answer."""

    text: str
    tone: Tone = Tone.PLAIN


# ECMA-48, "Select Graphic Rendition".
_CODES: Final[Mapping[Tone, str]] = {Tone.HEAD: "1", Tone.GOOD: "32", Tone.WARNING: "33", Tone.BAD: "31"}


def as_text(lines: Iterable[Line], *, colour: bool) -> str:
    """Join the lines into one text. Terminal control characters are removed, except our colors."""
    return "".join(f"{_coloured(line) if colour else one_line(line.text)}\n" for line in lines)


def _coloured(line: Line) -> str:
    code, text = _CODES.get(line.tone), one_line(line.text)
    return f"\x1b[{code}m{text}\x1b[0m" if code and text else text
