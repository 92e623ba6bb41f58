"""Tabbed lines aligned as Go's text/tabwriter does with `NewWriter(out, 0, 0, 2, ' ', 0)`.

A cell ends with a tab; what follows the last tab of a line is no cell. A column is as wide as the widest cell of the
consecutive lines that have it, plus two blanks. Source: go/src/text/tabwriter, the package's documentation.
"""

from typing import Final

_PADDING: Final = 2


def aligned(text: str) -> str:
    """`text` with its tabs turned into blanks."""
    lines = [line.split("\t") for line in text.split("\n")]
    widths: list[list[int]] = [[] for _ in lines]
    _measure(lines, widths, 0, len(lines), 0)
    return "\n".join(
        "".join(cell.ljust(width) for cell, width in zip(cells, wide, strict=False)) + cells[-1]
        for cells, wide in zip(lines, widths, strict=True)
    )


def _measure(lines: list[list[str]], widths: list[list[int]], begin: int, end: int, column: int) -> None:
    """Append the width of `column` to every line from `begin` to `end` that has it, block by block, then go right."""
    row = begin
    while row < end:
        if len(lines[row]) <= column + 1:
            row += 1
            continue
        stop = row
        while stop < end and len(lines[stop]) > column + 1:
            stop += 1
        width = max(len(cells[column]) for cells in lines[row:stop]) + _PADDING
        for wide in widths[row:stop]:
            wide.append(width)
        _measure(lines, widths, row, stop, column + 1)
        row = stop
