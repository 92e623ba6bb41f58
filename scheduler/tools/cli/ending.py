"""How a command ends whose output nobody reads any more, or cannot be written, and one that is interrupted.

Each without a traceback: that is for bugs. What is on a pipe's other end decides whether it wants to know.
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
            # Where an encoding lacks a sign, a question mark says more than no answer.
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
    """Raises the error again where it is about something else."""
    numbers = {one.errno if isinstance(one, OSError) else None for one in _leaves(error)}
    if numbers == {errno.EPIPE} and _is_unread():
        return Ended.UNREAD
    for number in numbers:
        if number in _FULL and numbers <= _FULL | {errno.EPIPE}:
            warn([f"{program}: the output cannot be written: {os.strerror(number).lower()}"])
            return Ended.UNWRITTEN
    raise error


def _is_unread() -> bool:
    """Whether nobody reads the output; a pipe that breaks may be a connection of ours too, which is a bug."""
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
    """What is left in the buffer would be written when the interpreter ends, and fail once more."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    try:
        os.dup2(nowhere, sys.stdout.fileno())
    except (OSError, ValueError):
        # It is no file: nobody writes it at the end.
        return
    finally:
        os.close(nowhere)
