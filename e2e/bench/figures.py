"""Figures of one benchmark as a table: on the terminal, and as a section of docs/benchmarks.md."""

from collections.abc import Sequence
from typing import Final

from rich.console import Console
from rich.table import Table

from e2e.bench import document

Rows = Sequence[Sequence[str]]
MUST_REACH: Final = ("figure", "measured", "must reach")


def show(title: str, head: Sequence[str], rows: Rows) -> None:
    """Print the table."""
    table = Table(*head, title=title)
    for row in rows:
        table.add_row(*row)
    Console().print(table)


def write(key: str, title: str, explanation: str, head: Sequence[str], rows: Rows) -> None:
    """Put it into the document, in place of the section of that key, with what it was measured on."""
    lines = (f"| {' | '.join(cells)} |" for cells in (head, ("---", *["---:"] * (len(head) - 1)), *rows))
    made_on = f"{document.today()}. {document.description()}. {document.versions()}."
    body = "\n".join(lines)
    section = f"## {title}\n\n{explanation}\n{body}\n\n{made_on}"
    text = document.PATH.read_text() if document.PATH.exists() else ""
    document.PATH.write_text(document.with_section(text, key, section))
