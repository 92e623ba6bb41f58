"""Figures of one benchmark as a table: on the terminal, and as a section of docs/evidence/benchmarks.md."""

from collections.abc import Sequence
from typing import Final

from rich.console import Console
from rich.table import Table

from e2e.bench import document

Rows = Sequence[Sequence[str]]
_HEAD: Final = ("figure", "measured", "must reach")


def report(key: str, title: str, explanation: str, rows: Rows, *, written: bool) -> None:
    """Print the table. written: also into the document, in place of the section of that key, with what it ran on."""
    table = Table(*_HEAD, title=title)
    for row in rows:
        table.add_row(*row)
    Console().print(table)
    if written:
        lines = (f"| {' | '.join(cells)} |" for cells in (_HEAD, ("---", "---:", "---:"), *rows))
        body = "\n".join(lines)
        document.write(key, f"## {title}\n\n{explanation}\n{body}")


def at_most(measured: float, most: float, unit: str = "") -> str:
    """Goal and whether it is reached, as a cell."""
    return f"≤ {most:g}{unit}, {'reached' if measured <= most else '**missed**'}"


def at_least(measured: float, least: float, unit: str = "") -> str:
    """Goal and whether it is reached, as a cell."""
    return f"≥ {least:,g}{unit}, {'reached' if measured >= least else '**missed**'}"
