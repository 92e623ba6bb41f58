"""Told to stop, a program stops, from its first moment.

As the first process of a container it is not ended by a SIGTERM that nobody handles, and what the commands import takes
some tenths of a second. So this imports little, and comes before the rest.
"""

import signal
import sys
from types import FrameType
from typing import NoReturn


def end_on_sigterm() -> None:
    """From now on SIGTERM ends the process with status 0, until an event loop takes the signal over."""
    signal.signal(signal.SIGTERM, _ended)


def _ended(_number: int, _frame: FrameType | None) -> NoReturn:
    sys.exit(0)
