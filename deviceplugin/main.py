"""The console script: told to stop, it stops, from its first moment.

As the first process of a container it would not be ended by a SIGTERM that nobody handles, and what the commands import
takes some tenths of a second.
"""

import signal
import sys
from types import FrameType
from typing import NoReturn


def main() -> None:
    """Run the command of the command line."""
    signal.signal(signal.SIGTERM, _ended)
    from deviceplugin.cli import main as commands  # noqa: PLC0415 - slow to import

    commands()


def _ended(_number: int, _frame: FrameType | None) -> NoReturn:
    sys.exit(0)


if __name__ == "__main__":
    main()
