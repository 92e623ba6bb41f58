"""The process that asks NVML, so that a driver that hangs or crashes takes nothing else with it.

It reads calls from its standard input and answers them on its standard output, each in a thread of its own. It ends
with its parent: when its input ends, and by the kernel's word, since a parent that is killed closes its input only
after this process has been told. `python -m deviceplugin.driver.child [DRIVER_ROOT] PARENT`.
"""

import ctypes
import os
import signal
import sys
import threading
from pathlib import Path
from typing import BinaryIO, Final

import msgspec

from deviceplugin.driver.calls import Call, CallAnswer, CallRequest, failure_of
from deviceplugin.driver.cards import SourceFailed

_PR_SET_PDEATHSIG: Final = 1  # linux/prctl.h
_STDIN, _STDOUT, _STDERR = 0, 1, 2


def serve(source: object, asks: BinaryIO, answers: BinaryIO) -> None:
    """Until `asks` ends. What is still being asked then is not waited for. source: has the methods of the calls."""
    turn = threading.Lock()

    def answer(ask: CallRequest) -> None:
        line = msgspec.json.encode(_answer(source, ask)) + b"\n"
        with turn:
            answers.write(line)
            answers.flush()

    for line in asks:
        # One thread for each call: one that never comes back keeps nobody else from being asked. Its owner does not
        # ask a card again that has not answered, so there are never more of them than a few for each card.
        threading.Thread(target=answer, args=(msgspec.json.decode(line, type=CallRequest),), daemon=True).start()


def _answer(source: object, ask: CallRequest) -> CallAnswer:
    try:
        call: Call[object] = Call(ask.name, ask.arguments, None)
        result = call.of(source)
    except SourceFailed as error:
        return CallAnswer(ask.number, failure=failure_of(error))
    except Exception as error:  # noqa: BLE001 - a bug here must not look like a card that is silent
        return CallAnswer(ask.number, failure=failure_of(SourceFailed(f"{ask.name}: {type(error).__name__}: {error}")))
    return CallAnswer(ask.number, msgspec.Raw(msgspec.json.encode(result)))


def main(source: object, parent: int) -> None:
    """The whole process. parent: the id of the process that it ends with."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        return
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # of a terminal; the parent decides
    # What a library prints must not get between the answers.
    answers = os.fdopen(os.dup(_STDOUT), "wb")
    os.dup2(_STDERR, _STDOUT)
    serve(source, os.fdopen(_STDIN, "rb"), answers)
    os._exit(0)  # no thread in the driver is waited for


if __name__ == "__main__":
    from deviceplugin.driver.nvml import NvmlSource
    from deviceplugin.driver.rooted_nvml import RootedNvml

    *roots, parent_pid = sys.argv[1:]
    main(RootedNvml(Path(roots[0])) if roots else NvmlSource(), int(parent_pid))
