"""A CUDA program that allocates memory on the first card that it sees, when it is told to.

It reads a line for each step and answers one: `start` makes a context, `allocate MIB`, `free`. `python -m
tests.gpu.cuda_program`.
"""

import ctypes
import sys
from typing import Any, Final

_MIB: Final = 1024**2


class CudaError(Exception):
    """A call that CUDA answered with an error."""


class Program:
    """One context, and one allocation in it."""

    def __init__(self) -> None:
        self._cuda: Any = ctypes.CDLL("libcuda.so.1")
        self._memory = ctypes.c_uint64()

    def start(self) -> None:
        device, context = ctypes.c_int(), ctypes.c_void_p()
        self._call("cuInit", 0)
        self._call("cuDeviceGet", ctypes.byref(device), 0)
        self._call("cuDevicePrimaryCtxRetain", ctypes.byref(context), device)
        self._call("cuCtxSetCurrent", context)

    def allocate(self, mib: int) -> None:
        self._call("cuMemAlloc_v2", ctypes.byref(self._memory), ctypes.c_size_t(mib * _MIB))

    def free(self) -> None:
        self._call("cuMemFree_v2", self._memory)

    def _call(self, name: str, *arguments: object) -> None:
        if code := getattr(self._cuda, name)(*arguments):
            raise CudaError(f"{name} answered {code}")


def main() -> None:
    """Serve until the input ends."""
    try:
        program = Program()
        for line in sys.stdin:
            name, *numbers = line.split()
            getattr(program, name)(*map(int, numbers))
            print("done", flush=True)  # noqa: T201 - the answer
    except (OSError, CudaError) as error:
        print(error, flush=True)  # noqa: T201 - the answer


if __name__ == "__main__":
    main()
