"""Lets a program stop on SIGTERM from the very start.

The first process of a container ignores SIGTERM unless it handles the signal, and importing the commands takes some
tenths of a second. So this module imports little and is imported first.
"""

import signal
import sys
from types import FrameType
from typing import NoReturn


def end_on_sigterm() -> None:
    """Let SIGTERM end the process with status 0, until an event loop handles the signal."""
    signal.signal(signal.SIGTERM, _ended)


def _ended(_number: int, _frame: FrameType | None) -> NoReturn:
    sys.exit(0)
