"""A driver that hangs holds up nobody but itself."""

import asyncio
import subprocess
import sys
import threading

import pytest

from deviceplugin.driver.cards import SourceFailed
from deviceplugin.driver.thread import DriverThread


async def test_a_call_returns_what_the_driver_says() -> None:
    thread = DriverThread("t")
    assert await thread.call("cards", lambda: 3) == 3
    thread.close()


async def test_what_the_driver_raises_reaches_the_caller() -> None:
    def broken() -> int:
        message = "no such library"
        raise SourceFailed(message)

    thread = DriverThread("t")
    with pytest.raises(SourceFailed, match="no such library"):
        await thread.call("cards", broken)
    thread.close()


async def test_a_hung_driver_fails_this_call_and_later_ones_until_it_answers() -> None:
    answered, go_on = threading.Event(), threading.Event()

    def hanging() -> None:
        go_on.wait(10)
        answered.set()

    thread = DriverThread("t")
    with pytest.raises(SourceFailed, match=r"reading: the driver did not answer within 0\.01 s"):
        await thread.call("reading", hanging, timeout_s=0.01)
    with pytest.raises(SourceFailed, match="cards: the driver still hangs in an earlier call"):
        await thread.call("cards", lambda: 1, timeout_s=0.01)
    go_on.set()
    assert answered.wait(5)
    # The loop hears of the thread's end a moment later, in its own turn.
    while (answer := await answer_of(thread)) is None:  # noqa: ASYNC110
        await asyncio.sleep(0)
    assert answer == 2
    thread.close()


async def test_the_thread_ends_with_a_last_call() -> None:
    ended = threading.Event()
    thread = DriverThread("t")
    thread.close(ended.set)
    assert await asyncio.to_thread(ended.wait, 5)


HANGING = """
import asyncio, threading
from deviceplugin.driver.cards import SourceFailed
from deviceplugin.driver.thread import DriverThread
async def main():
    thread = DriverThread("t")
    try:
        await thread.call("cards", threading.Event().wait, timeout_s=0.01)
    except SourceFailed as error:
        print(error)
    thread.close()
asyncio.run(main())
"""


def test_a_driver_that_hangs_forever_does_not_keep_the_process_from_ending() -> None:
    ended = subprocess.run([sys.executable, "-c", HANGING], capture_output=True, text=True, timeout=30, check=True)
    assert ended.stdout == "cards: the driver did not answer within 0.01 s\n"


async def answer_of(thread: DriverThread) -> int | None:
    try:
        return await thread.call("cards", lambda: 2)
    except SourceFailed:
        return None
