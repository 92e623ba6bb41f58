"""Removes a folder once the parent is gone, for whatever reason: `python sweeper.py FOLDER`.

The parent holds the other end of standard input and never writes. A killed process cannot clean up after itself, so
this one waits for the end of the pipe and does so.
"""

import shutil
import sys
import time
from pathlib import Path

GIVE_UP_AFTER_S = 30.0
RETRY_EVERY_S = 0.1


def main(folder: Path) -> None:
    """Block until standard input ends, then remove the folder."""
    sys.stdin.buffer.read()
    give_up_at_s = time.monotonic() + GIVE_UP_AFTER_S
    while folder.exists() and time.monotonic() < give_up_at_s:
        # A dying server may write a last file between listing and removing: try again.
        shutil.rmtree(folder, ignore_errors=True)
        if folder.exists():
            time.sleep(RETRY_EVERY_S)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
