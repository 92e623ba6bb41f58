"""Text for a terminal: lines in which nothing is left to obey, aligned columns, commands to be typed. Pure.

`scheduler.process.output` is the door through which it goes there.
"""

import shlex
from collections.abc import Iterable, Iterator, Sequence
from typing import Final

_GAP: Final = "  "
_LAST_OF_PLANE_0: Final = 0xFFFF


def one_line(text: str) -> str:
    """The text with a question mark for each terminal control character, including line ends.

    Models, reasons and UUIDs come from annotations, and messages from any server: they may contain anything.
    """
    if text.isprintable():
        return text
    return "".join(one if one.isprintable() else "?" for one in text)


def printable(lines: Iterable[str]) -> str:
    """The lines, each as `one_line`, as one text."""
    return "".join(f"{one_line(line)}\n" for line in lines)


def columns(head: Sequence[str], rows: Sequence[Sequence[str]], right: Sequence[int] = ()) -> Iterator[str]:
    """Lines of aligned cells, the head first, without blanks at their ends. right: columns that end flush."""
    lines = [tuple(head), *rows]
    widths = [max(len(line[column]) for line in lines) for column in range(len(head))]
    for line in lines:
        cells = (
            cell.rjust(wide) if number in right else cell.ljust(wide)
            for number, (cell, wide) in enumerate(zip(line, widths, strict=True))
        )
        yield _GAP.join(cells).rstrip()


def some(entries: Sequence[str], most: int) -> str:
    """`a, b and 3 more`."""
    more = f" and {len(entries) - most} more" if len(entries) > most else ""
    return ", ".join(entries[:most]) + more


def escaped_json(text: str) -> str:
    r"""JSON of the same meaning with `\uXXXX` for terminal control characters, except line ends between values."""
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
    """A shell command: each word stays one word, whatever it contains."""
    return shlex.join(words)
