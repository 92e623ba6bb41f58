"""Display of the demo: a live picture in a terminal, plain lines otherwise."""

import contextlib
from collections.abc import Sequence
from typing import Final, Protocol, TextIO

from rich.live import Live
from rich.table import Table
from rich.text import Text

from scheduler.tools.cli.console import Console
from scheduler.tools.demo.claims import Assertion
from scheduler.tools.demo.demo_log import LogLine
from scheduler.tools.demo.picture import Painter, Scene

_PIPED_WIDTH: Final = 110
_HEADING: Final = "What this showed, each line checked:"
_ECHO: Final = 3  # columns left free for the ^C that a terminal echoes: a line that wraps would tear the picture


class Screen(Protocol):
    """Display of the demo."""

    def opened(self) -> contextlib.AbstractContextManager[object]:
        """Shown while this is entered."""

    def tell(self, line: LogLine) -> None:
        """Something has happened."""

    def draw(self, scene: Scene) -> None:
        """The state now."""

    def close(self, scene: Scene, shown: Sequence[Assertion]) -> None:
        """The end: the final state of the cards, and the claims."""


def screen(out: TextIO) -> Screen:
    """The display for `out`."""
    console = Console(out)
    return _Picture(console) if console.is_terminal and not console.is_dumb_terminal else _Lines(out)


class _Picture:
    def __init__(self, console: Console) -> None:
        self._console = console
        self._painter = Painter()
        self._live = Live(console=console, auto_refresh=False)

    def opened(self) -> contextlib.AbstractContextManager[object]:
        return self._live

    def tell(self, line: LogLine) -> None:
        """No effect: the picture shows the last lines."""

    def draw(self, scene: Scene) -> None:
        size = self._console.size
        self._live.update(self._painter.whole(scene, size.width - _ECHO, size.height - 1), refresh=True)

    def close(self, scene: Scene, shown: Sequence[Assertion]) -> None:  # noqa: ARG002 - the last picture stays
        if not shown:
            return
        self._console.print()
        self._console.print(_HEADING, style="bold")
        for claim in shown:
            line = Table.grid(padding=(0, 1, 0, 0))
            mark = Text("+", style="green") if claim.holds else Text("FALSE", style="bold red")
            line.add_row(mark, Text(claim.sentence))
            self._console.print(line)


class _Lines:
    def __init__(self, out: TextIO) -> None:
        self._console = Console(out, width=_PIPED_WIDTH)

    def opened(self) -> contextlib.AbstractContextManager[object]:
        return contextlib.nullcontext()

    def tell(self, line: LogLine) -> None:
        self._console.print(f"{line.at_s:5.1f}s {line.tone.value:7} {line.text}", soft_wrap=True)

    def draw(self, scene: Scene) -> None:
        """No effect: each line was printed."""

    def close(self, scene: Scene, shown: Sequence[Assertion]) -> None:
        self._console.print()
        self._console.print(Painter().cards(scene.tables, _PIPED_WIDTH))
        if shown:
            self._console.print(f"\n{_HEADING}")
        for claim in shown:
            self._console.print(f"{'+' if claim.holds else 'FALSE'} {claim.sentence}", soft_wrap=True)
