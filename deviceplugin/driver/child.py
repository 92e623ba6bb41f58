"""The process that queries NVML, so that a driver that hangs or crashes affects no other process.

It reads calls from its standard input and answers them on its standard output, each in a thread of its own. It ends
with its parent: when its input ends, and by a signal from the kernel, because a killed parent closes its input only
later. `python -m deviceplugin.driver.child [DRIVER_ROOT] PARENT`.
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
    """Answer calls until `asks` ends, without waiting for calls still running then. source: has the calls' methods."""
    turn = threading.Lock()

    def answer(ask: CallRequest) -> None:
        line = msgspec.json.encode(_answer(source, ask)) + b"\n"
        with turn:
            answers.write(line)
            answers.flush()

    for line in asks:
        # One thread per call: a call that never returns blocks no other. Its owner does not query a silent card again,
        # so each card has only a few threads at most.
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
    """Run the whole process. parent: the ID of the process that it ends with."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        return
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # of a terminal; the parent decides
    # Output of a library must not get between the answers.
    answers = os.fdopen(os.dup(_STDOUT), "wb")
    os.dup2(_STDERR, _STDOUT)
    serve(source, os.fdopen(_STDIN, "rb"), answers)
    os._exit(0)  # no thread in the driver is waited for


if __name__ == "__main__":
    from deviceplugin.driver.nvml import NvmlSource
    from deviceplugin.driver.rooted_nvml import RootedNvml

    *roots, parent_pid = sys.argv[1:]
    main(RootedNvml(Path(roots[0])) if roots else NvmlSource(), int(parent_pid))
