"""The process that tries CUDA on the one card that its CUDA_VISIBLE_DEVICES names, and ends.

As `child`: it answers on its standard output, and ends with its parent. `python -m deviceplugin.driver.cuda_child
PARENT`.
"""

import ctypes
import sys
from typing import Final
from uuid import UUID

from deviceplugin.driver.child import main
from deviceplugin.driver.cuda import CudaAnswer

_LIBRARY: Final = "libcuda.so.1"
_OTHER_CARD: Final = 101  # CUDA_ERROR_INVALID_DEVICE
_UUID_BYTES: Final = 16


class CudaProgram:
    """The only call that this process answers."""

    @staticmethod
    def start_cuda(uuid: str) -> CudaAnswer:
        """Call cuInit. uuid: of the only card that CUDA may see."""
        try:
            library = ctypes.CDLL(_LIBRARY)
        except OSError as error:
            return CudaAnswer(lacking=str(error))
        code = library.cuInit(0)
        if code:
            return CudaAnswer(code)
        device, found = ctypes.c_int(), (ctypes.c_ubyte * _UUID_BYTES)()
        code = library.cuDeviceGet(ctypes.byref(device), 0) or library.cuDeviceGetUuid(ctypes.byref(found), device)
        if code:
            return CudaAnswer(code)
        other = f"GPU-{UUID(bytes=bytes(found))}"
        return CudaAnswer(0) if other.lower() == uuid.lower() else CudaAnswer(_OTHER_CARD, other)


if __name__ == "__main__":
    main(CudaProgram(), int(sys.argv[1]))
