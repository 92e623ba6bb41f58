"""The door for lines with a tone: coloured in a terminal, unless the user wants none.

The rest of the door: `scheduler.process.output`.
"""

import os
import sys
from collections.abc import Iterable, Mapping
from typing import TextIO

from scheduler.tools.explain.tones import Line, as_text


def show_lines(lines: Iterable[Line]) -> None:
    """Print them."""
    sys.stdout.write(as_text(lines, colour=wanted(sys.stdout, os.environ)))


def wanted(out: TextIO, environment: Mapping[str, str]) -> bool:
    """Whether to colour. Source of NO_COLOR, which counts unless it is empty: no-color.org."""
    return out.isatty() and not environment.get("NO_COLOR") and environment.get("TERM", "") != "dumb"
