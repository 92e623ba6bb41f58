"""The end of a command that is interrupted, or whose output has no reader or cannot be written.

Without a traceback: that is for bugs. The other end of a pipe decides how much it reads.
"""

import errno
import io
import os
import select
import sys
from collections.abc import Callable, Iterator
from enum import IntEnum
from typing import Final

from scheduler.process.output import warn

_FULL: Final = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO})


class Ended(IntEnum):
    """UNWRITTEN: as sysexits.h has it for input and output. The others as a shell counts SIGINT and SIGPIPE."""

    UNWRITTEN = 74
    INTERRUPTED = 130
    UNREAD = 141


def run(program: str, command: Callable[[], object]) -> None:
    """Run it. Raises SystemExit where it does, and for an end without an answer."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            # If an encoding lacks a character, a question mark is better than no answer.
            stream.reconfigure(errors="replace")
    code: object = None
    exits = False
    try:
        try:
            command()
        except SystemExit as ended:
            code, exits = ended.code, True
            # click and rich end with 1 for a pipe that is closed, which is the code of something that was found.
            if isinstance(ended.__context__, BrokenPipeError):
                code = Ended.UNREAD
        sys.stdout.flush()
    except KeyboardInterrupt:
        code = Ended.INTERRUPTED
    except (OSError, BaseExceptionGroup) as error:
        code = _of_output(program, error)
    if code in {Ended.UNREAD, Ended.UNWRITTEN}:
        _drop_the_rest()
    if exits or code is not None:
        raise SystemExit(code) from None


def _of_output(program: str, error: BaseException) -> Ended:
    """The end after a failed write. Raises the error again if it has another cause."""
    numbers = {one.errno if isinstance(one, OSError) else None for one in _leaves(error)}
    if numbers == {errno.EPIPE} and _is_unread():
        return Ended.UNREAD
    for number in numbers:
        if number in _FULL and numbers <= _FULL | {errno.EPIPE}:
            warn([f"{program}: the output cannot be written: {os.strerror(number).lower()}"])
            return Ended.UNWRITTEN
    raise error


def _is_unread() -> bool:
    """Whether the output has no reader; the broken pipe may also be one of our connections, which is a bug."""
    look = select.poll()
    try:
        look.register(sys.stdout.fileno(), 0)
    except (OSError, ValueError):
        return False
    return any(event & (select.POLLERR | select.POLLHUP) for _, event in look.poll(0))


def _leaves(error: BaseException) -> Iterator[BaseException]:
    if not isinstance(error, BaseExceptionGroup):
        yield error
        return
    for one in error.exceptions:
        yield from _leaves(one)


def _drop_the_rest() -> None:
    """Drop the buffer: the interpreter would write it at its end, and fail again."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    try:
        os.dup2(nowhere, sys.stdout.fileno())
    except (OSError, ValueError):
        # Not a file: the interpreter does not write it at its end.
        return
    finally:
        os.close(nowhere)
