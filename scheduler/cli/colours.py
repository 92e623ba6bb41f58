"""Whether a command's answer is coloured: in a terminal, unless the user wants none."""

from collections.abc import Mapping
from typing import TextIO


def wanted(out: TextIO, environment: Mapping[str, str]) -> bool:
    """Source of NO_COLOR, which counts unless it is empty: no-color.org."""
    return out.isatty() and not environment.get("NO_COLOR") and environment.get("TERM", "") != "dumb"
