"""Standard output and standard error: the commands of both programs print only through this module.

This module replaces terminal control characters, whatever the source of the text. Only rich tables
(`scheduler.tools.cli.console`), colored lines (`scheduler.tools.cli.answering`) and log lines
(`scheduler.process.logs`) bypass it, with the same replacement; tests/repository/test_output.py checks that.
"""

import sys
from collections.abc import Iterable

from scheduler.process.terminal import escaped_json, one_line, printable


def show(lines: Iterable[str]) -> None:
    """Print lines. A line end within a line is replaced."""
    sys.stdout.write(printable(lines))


def show_text(text: str) -> None:
    """Print text of several lines at once, with a final line end only if the text has one."""
    sys.stdout.write("\n".join(map(one_line, text.split("\n"))))
    sys.stdout.flush()


def show_json(text: str) -> None:
    """Print JSON."""
    sys.stdout.write(escaped_json(text))


def show_pairs(pairs: Iterable[tuple[str, str]]) -> None:
    """Print pairs for another program: a tab between the two words of a line, no tab if the second word is empty."""
    for first, second in pairs:
        sys.stdout.write(f"{one_line(first)}\t{one_line(second)}\n" if second else f"{one_line(first)}\n")


def warn(lines: Iterable[str]) -> None:
    """Print lines on standard error at once."""
    sys.stderr.write(printable(lines))
    sys.stderr.flush()
