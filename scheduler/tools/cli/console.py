"""Output drawn by rich: tables and pictures, in color and as wide as the terminal, or plain in a pipe.

The only escape sequences that it lets through are rich's own. All other output goes through `scheduler.process.output`.
"""

from collections.abc import Iterable, Sequence
from typing import Final, TextIO

from rich import console
from rich.segment import Segment
from rich.table import Table

from scheduler.process.terminal import one_line

_NO_WRAPPING: Final = 100_000  # columns; programs that read from a pipe cut lines themselves


class Console(console.Console):
    """Console that shows text literally, without markup, links or terminal control characters."""

    def __init__(self, out: TextIO | None = None, *, width: int | None = None, soft_wrap: bool = False) -> None:
        """out: None if nothing is printed. width: None for the terminal's width."""
        super().__init__(file=out, width=width, soft_wrap=soft_wrap, markup=False, emoji=False, highlight=False)

    def render(
        self, renderable: console.RenderableType, options: console.ConsoleOptions | None = None
    ) -> Iterable[Segment]:
        """Render with rich and remove control characters."""
        for segment in super().render(renderable, options):
            yield segment if segment.control else _shown(segment)

    def on_broken_pipe(self) -> None:
        """Raise the error: rich would end the program here, in any task."""
        raise  # noqa: PLE0704 - it is called while the error is handled


def print_parts(parts: Iterable[Table | str], closing: Iterable[str], out: TextIO) -> None:
    """Print the parts, with an empty line after each, and then the closing lines."""
    to = Console(out)
    if not to.is_terminal:
        to = Console(out, width=_NO_WRAPPING)
    with to.capture() as captured:
        for part in parts:
            to.print(part)
            to.print()
        for line in closing:
            to.print(one_line(line))
    out.write("\n".join(line.rstrip() for line in captured.get().splitlines()) + "\n")


def table(head: Sequence[str], rows: Iterable[Sequence[str]], right: Sequence[int]) -> Table:
    """Return a table. right: indexes of the columns that are aligned to the right."""
    made = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    for number, title in enumerate(head):
        made.add_column(one_line(title), justify="right" if number in right else "left", overflow="fold")
    for row in rows:
        made.add_row(*map(one_line, row))
    return made


def _shown(segment: Segment) -> Segment:
    text = segment.text
    if text.isprintable() or text == "\n":
        return segment
    return Segment("\n".join(map(one_line, text.split("\n"))), segment.style)
