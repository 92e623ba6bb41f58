# ruff: noqa: INP001 - no package: its folder stands on PYTHONPATH
"""Stands in for the module of this name where its folder comes first on PYTHONPATH: two cards, without a driver.

What is imported in the end is the installed module, whose functions are those of `tests.support.node.nvml_double`.
While the file `nvml-error` is in the folder HOME, every function fails with the number in it.
"""

import os
import sys
import time
from importlib.machinery import PathFinder
from importlib.util import module_from_spec
from pathlib import Path
from types import ModuleType
from typing import Any

_FUNCTION = "nvml"
_MS = 1000
_ERROR = Path(os.environ.get("HOME", "/")) / "nvml-error"


def _installed() -> ModuleType:
    here = str(Path(__file__).parent)
    spec = PathFinder.find_spec("pynvml", [place for place in sys.path if place != here])
    if spec is None or spec.loader is None:
        message = "pynvml is not installed"
        raise ImportError(message)
    module = module_from_spec(spec)
    sys.modules["pynvml"] = module
    spec.loader.exec_module(module)
    return module


def _play(module: ModuleType) -> None:
    # It takes the module's classes and constants, so it comes after that one.
    from tests.support.node.nvml_double import NvmlDouble, card  # noqa: PLC0415

    double = NvmlDouble(card(0), card(1))

    def failing(call: Any) -> Any:  # noqa: ANN401 - any function of the module
        def told(*arguments: Any) -> Any:  # noqa: ANN401 - as that one
            if _ERROR.exists():
                raise module.__dict__["NVMLError"](int(_ERROR.read_text()))
            return call(*arguments)

        return told

    def wait(event_set: list[str], timeout_ms: int) -> object:
        """The double answers at once, and a driver when something happens."""
        time.sleep(timeout_ms / _MS)
        return double.nvmlEventSetWait_v2(event_set, timeout_ms)

    for name in [name for name in vars(module) if name.startswith(_FUNCTION) and name[len(_FUNCTION)].isupper()]:
        if callable(getattr(module, name)) and not isinstance(getattr(module, name), type):
            setattr(module, name, failing(getattr(double, name)))
    module.__dict__["nvmlEventSetWait_v2"] = failing(wait)


_play(_installed())
