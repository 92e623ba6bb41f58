"""Being told to stop."""

import asyncio
import signal


def stop_requested() -> asyncio.Event:
    """An event of the running loop that SIGTERM and SIGINT set, from now on."""
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    return stop
