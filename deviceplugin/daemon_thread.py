"""Blocking calls, each in a daemon thread: a call that hangs does not keep the process from ending.

The interpreter would wait for an executor's thread.
"""

import asyncio
import contextlib
import threading
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


def call(function: Callable[[], T], name: str) -> "asyncio.Future[T]":
    """Start the call in a thread with this name. Return a future of its result or exception; it may be dropped."""
    loop = asyncio.get_running_loop()
    answer: asyncio.Future[T] = loop.create_future()
    # Reading the exception of a dropped future keeps the loop from logging it.
    answer.add_done_callback(lambda done: done.cancelled() or done.exception())

    def resolve(result: T | None, error: Exception | None) -> None:
        if answer.done():
            return
        if error is None:
            answer.set_result(result)  # type: ignore[arg-type]  # T may include None
        else:
            answer.set_exception(error)

    def run() -> None:
        result, failure = None, None
        try:
            result = function()
        except Exception as error:  # noqa: BLE001 - the caller gets it, a bug too: else it would look like silence
            failure = error
        with contextlib.suppress(RuntimeError):  # The loop is closed: no waiter is left.
            loop.call_soon_threadsafe(resolve, result, failure)

    threading.Thread(target=run, name=name, daemon=True).start()
    return answer
