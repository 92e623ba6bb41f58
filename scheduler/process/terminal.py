"""Text for a terminal: lines without control characters, aligned columns, commands to type. Pure.

Programs print it with `scheduler.process.output`.
"""

import shlex
from collections.abc import Iterable, Iterator, Sequence
from typing import Final

_GAP: Final = "  "
_LAST_OF_PLANE_0: Final = 0xFFFF


def one_line(text: str) -> str:
    """Replace each terminal control character, including line ends, with a question mark.

    Models, reasons and UUIDs come from annotations, and messages come from any server, so they may contain anything.
    """
    if text.isprintable():
        return text
    return "".join(one if one.isprintable() else "?" for one in text)


def printable(lines: Iterable[str]) -> str:
    """Join the lines into one text, each cleaned by `one_line`."""
    return "".join(f"{one_line(line)}\n" for line in lines)


def columns(head: Sequence[str], rows: Sequence[Sequence[str]], right: Sequence[int] = ()) -> Iterator[str]:
    """Align cells in columns, with `head` as the first line. right: columns to align right. No trailing blanks."""
    lines = [tuple(head), *rows]
    widths = [max(len(line[column]) for line in lines) for column in range(len(head))]
    for line in lines:
        cells = (
            cell.rjust(wide) if number in right else cell.ljust(wide)
            for number, (cell, wide) in enumerate(zip(line, widths, strict=True))
        )
        yield _GAP.join(cells).rstrip()


def some(entries: Sequence[str], most: int) -> str:
    """Return text such as `a, b and 3 more`."""
    more = f" and {len(entries) - most} more" if len(entries) > most else ""
    return ", ".join(entries[:most]) + more


def escaped_json(text: str) -> str:
    r"""Return equivalent JSON with `\uXXXX` for terminal control characters, except line ends between values."""
    if text.isprintable():
        return text
    return "".join(one if one.isprintable() or one == "\n" else _escaped(one) for one in text)


def _escaped(one: str) -> str:
    code = ord(one)
    if code <= _LAST_OF_PLANE_0:
        return f"\\u{code:04x}"
    high, low = divmod(code - _LAST_OF_PLANE_0 - 1, 0x400)
    return f"\\u{0xD800 + high:04x}\\u{0xDC00 + low:04x}"


def typed(*words: str) -> str:
    """Quote words as a shell command: each word stays one word, whatever it contains."""
    return shlex.join(words)
