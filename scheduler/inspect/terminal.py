"""What is shown in a terminal: lines that it obeys nothing of, and aligned columns. Pure."""

from collections.abc import Iterable, Iterator, Sequence
from typing import Final

_GAP: Final = "  "


def one_line(text: str) -> str:
    """The text with a question mark for whatever a terminal would obey instead of showing it, line ends as well.

    Models, reasons and UUIDs come from annotations, and messages from whoever answers: anything may stand there.
    """
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
