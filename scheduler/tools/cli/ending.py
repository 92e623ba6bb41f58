"""End of a command that is interrupted, or whose output has no reader or cannot be written.

There is no traceback, because tracebacks are for bugs: the other end of a pipe decides how much it reads.
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


class _Ended(IntEnum):
    """Exit codes. UNWRITTEN: as in sysexits.h for input and output errors. Others: a shell's for SIGINT and SIGPIPE."""

    UNWRITTEN = 74
    INTERRUPTED = 130
    UNREAD = 141


def run(program: str, command: Callable[[], object]) -> None:
    """Run a command. Raises SystemExit if the command does, or if it ends without an answer."""
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
            # click and rich exit with 1 for a closed pipe, but that code means that something was found.
            if isinstance(ended.__context__, BrokenPipeError):
                code = _Ended.UNREAD
        sys.stdout.flush()
    except KeyboardInterrupt:
        code = _Ended.INTERRUPTED
    except (OSError, BaseExceptionGroup) as error:
        code = _of_output(program, error)
    if code in {_Ended.UNREAD, _Ended.UNWRITTEN}:
        _drop_the_rest()
    if exits or code is not None:
        raise SystemExit(code) from None


def _of_output(program: str, error: BaseException) -> _Ended:
    """Return the end after a failed write. Raises the error again if it has another cause."""
    numbers = {one.errno if isinstance(one, OSError) else None for one in _leaves(error)}
    if numbers == {errno.EPIPE} and _is_unread():
        return _Ended.UNREAD
    for number in numbers:
        if number in _FULL and numbers <= _FULL | {errno.EPIPE}:
            warn([f"{program}: the output cannot be written: {os.strerror(number).lower()}"])
            return _Ended.UNWRITTEN
    raise error


def _is_unread() -> bool:
    """Return whether the output has no reader. The broken pipe may also be one of our connections, which is a bug."""
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
    """Drop the buffer, because the interpreter would write it at exit and fail again."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    try:
        os.dup2(nowhere, sys.stdout.fileno())
    except (OSError, ValueError):
        # Not a file, so the interpreter does not write it at exit.
        return
    finally:
        os.close(nowhere)
