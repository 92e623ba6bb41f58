"""A toolkit that hangs holds up nobody but itself."""

import asyncio
import subprocess
import sys
import threading

import pytest

from deviceplugin.cdi.injection import ToolkitSilent, ToolkitThread

_SOON_S = 5.0


@pytest.fixture
def thread() -> ToolkitThread:
    return ToolkitThread()


@pytest.mark.parametrize("error", [OSError("no such disk"), KeyError("a bug")])
async def test_what_the_function_raises_reaches_the_caller(error: Exception, thread: ToolkitThread) -> None:
    def broken() -> int:
        raise error

    with pytest.raises(type(error)):
        await thread.call(broken, timeout_s=_SOON_S)
    assert await thread.call(lambda: 3, timeout_s=_SOON_S) == 3


async def test_a_call_that_hangs_fails_itself_and_later_ones_until_it_comes_back(thread: ToolkitThread) -> None:
    go_on = threading.Event()
    with pytest.raises(ToolkitSilent, match=r"no answer within 0\.01 s"):
        await thread.call(lambda: go_on.wait(10), timeout_s=0.01)
    with pytest.raises(ToolkitSilent, match="an earlier call has not returned yet"):
        await thread.call(lambda: 1, timeout_s=0.01)
    go_on.set()
    # The loop hears of the call's end a moment later, in its own turn.
    while (answer := await answer_of(thread)) is None:  # noqa: ASYNC110
        await asyncio.sleep(0)
    assert answer == 2


HANGING = """
import asyncio, threading
from deviceplugin.cdi.injection import ToolkitSilent, ToolkitThread
async def main():
    thread = ToolkitThread()
    try:
        await thread.call(threading.Event().wait, timeout_s=0.01)
    except ToolkitSilent as error:
        print(error)
asyncio.run(main())
"""


def test_a_toolkit_that_hangs_forever_does_not_keep_the_process_from_ending() -> None:
    ended = subprocess.run([sys.executable, "-c", HANGING], capture_output=True, text=True, timeout=30, check=True)
    assert ended.stdout == "no answer within 0.01 s\n"


async def answer_of(thread: ToolkitThread) -> int | None:
    try:
        return await thread.call(lambda: 2, timeout_s=_SOON_S)
    except ToolkitSilent:
        return None
