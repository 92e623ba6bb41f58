"""A program that stops on SIGTERM from its first moment.

The first process of a container ignores an unhandled SIGTERM, and the imports of the commands take some tenths of a
second. So this module imports little, and comes before the rest.
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
