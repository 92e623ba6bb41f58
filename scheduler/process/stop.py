"""Stopping on a signal."""

import asyncio
import signal


def stop_requested() -> asyncio.Event:
    """An event of the running loop; from now on SIGTERM and SIGINT set it."""
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    return stop
