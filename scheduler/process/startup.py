"""Start and stop of a program: why it cannot run, and the signals that stop it."""

import asyncio
import signal


class StartupError(Exception):
    """The program cannot run with this configuration, or in this environment; the message says what to do."""


def first_message(error: BaseException) -> str:
    """Return the message of the first error in nested exception groups."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return str(error)


def stop_requested() -> asyncio.Event:
    """Return an event of the running loop. From now on, SIGTERM and SIGINT set it."""
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    return stop
