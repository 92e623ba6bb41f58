"""Tables as the commands print them: in colour and as wide as the terminal, or plain and unwrapped in a pipe."""

from collections.abc import Iterable, Sequence
from typing import Final, TextIO

from rich.console import Console
from rich.table import Table

_NO_WRAPPING: Final = 100_000  # columns: programs at the other end of a pipe cut lines themselves


def print_parts(parts: Iterable[Table | str], closing: Iterable[str], out: TextIO) -> None:
    """The parts with an empty line after each, then the closing lines."""
    console = Console(file=out, highlight=False, soft_wrap=False)
    if not console.is_terminal:
        console = Console(file=out, highlight=False, width=_NO_WRAPPING)
    with console.capture() as captured:
        for part in parts:
            console.print(part)
            console.print()
        for line in closing:
            console.print(line, markup=False)
    out.write("\n".join(line.rstrip() for line in captured.get().splitlines()) + "\n")


def table(head: Sequence[str], rows: Iterable[Sequence[str]], right: Sequence[int]) -> Table:
    """right: the columns, by number, whose cells are numbers."""
    made = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    for number, title in enumerate(head):
        made.add_column(title, justify="right" if number in right else "left", overflow="fold")
    for row in rows:
        made.add_row(*(cell.replace("[", r"\[") for cell in row))
    return made
