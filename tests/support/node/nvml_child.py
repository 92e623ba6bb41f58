"""A process that queries NVML without a driver: `python nvml_child.py FOLDER CARDS PARENT`.

Files in FOLDER control its cards and are polled; N is a card's index.

    hang-N      calls for card N do not return while the file exists
    stuck-N     the same, and it holds a lock that every other call needs
    die-N       a call for card N ends the process and removes the file
    broken      the driver cannot be opened; the file contains the error number
    xids-N      error numbers, one per line; the file is removed when they are reported
"""

import os
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import pynvml  # type: ignore[import-untyped] # nvidia-ml-py has no annotations

from deviceplugin.driver import child
from deviceplugin.driver.nvml import NvmlSource
from tests.support.node.nvml_double import NvmlDouble, card, xid

_LOOK_S: Final = 0.005


class ChildDouble(NvmlDouble):
    """NVML whose cards follow the files."""

    def __init__(self, folder: Path, cards: int) -> None:
        super().__init__(*(card(number) for number in range(cards)))
        self._folder = folder
        self._global = threading.Lock()

    def __getattr__(self, name: str) -> Callable[..., Any]:
        call = super().__getattr__(name)

        def told(*arguments: Any) -> Any:  # noqa: ANN401 # as pynvml
            if name == "nvmlInit" and (broken := self._folder / "broken").exists():
                raise pynvml.NVMLError(int(broken.read_text()))
            if name == "nvmlEventSetWait_v2":
                return self._wait(*arguments)
            if name == "nvmlDeviceGetMemoryInfo":
                self._befall(self.nvml_cards.index(self.card_of(arguments[0])))
            return call(*arguments)

        told.__name__ = name
        return told

    def _befall(self, index: int) -> None:
        if (die := self._folder / f"die-{index}").exists():
            die.unlink()
            os._exit(3)
        with self._global:
            while (self._folder / f"stuck-{index}").exists():
                time.sleep(_LOOK_S)
        while (self._folder / f"hang-{index}").exists():
            time.sleep(_LOOK_S)

    def _wait(self, event_set: list[str], timeout_ms: int) -> object:
        until_s = time.monotonic() + timeout_ms / 1000
        index = next(number for number, one in enumerate(self.nvml_cards) if one.uuid in event_set)
        path = self._folder / f"xids-{index}"
        while not path.exists():
            if time.monotonic() >= until_s:
                raise pynvml.NVMLError_Timeout
            time.sleep(_LOOK_S)
        first, *others = path.read_text().splitlines()
        path.unlink()
        if others:
            path.write_text("\n".join(others))
        return xid(self.handle(index), int(first))


if __name__ == "__main__":
    double = ChildDouble(Path(sys.argv[1]), int(sys.argv[2]))
    child.main(NvmlSource(double, attached=Path(sys.argv[1])), int(sys.argv[3]))
