"""The process that tries CUDA on the only card in its CUDA_VISIBLE_DEVICES, and then ends.

Like `child`, it answers on its standard output and ends with its parent. `python -m deviceplugin.driver.cuda_child
[ROOT] PARENT`. ROOT: where the driver is installed, if not at `/`.
"""

import ctypes
import sys
from pathlib import Path
from typing import Final
from uuid import UUID

from deviceplugin.driver import driver_root
from deviceplugin.driver.child import main
from deviceplugin.driver.cuda import NO_MEMORY, CudaAnswer

_LIBRARY: Final = "libcuda.so.1"
_OUT_OF_MEMORY: Final = 2  # CUDA_ERROR_OUT_OF_MEMORY: cuInit allocates host memory only
_OTHER_CARD: Final = 101  # CUDA_ERROR_INVALID_DEVICE
_UUID_BYTES: Final = 16


class CudaProgram:
    """The only call that this process answers."""

    def __init__(self, root: str = "") -> None:
        """root: where the driver is installed; "" for `/`."""
        self._root = root

    def start_cuda(self, uuid: str) -> CudaAnswer:
        """Call cuInit. uuid: the only card that CUDA may see."""
        try:
            if self._root:
                driver_root.load(Path(self._root), _LIBRARY)
            library = ctypes.CDLL(_LIBRARY)
        except OSError as error:
            return CudaAnswer(lacking=str(error))
        code = library.cuInit(0)
        if code == _OUT_OF_MEMORY:
            return CudaAnswer(lacking=NO_MEMORY)
        if code:
            return CudaAnswer(code)
        device, found = ctypes.c_int(), (ctypes.c_ubyte * _UUID_BYTES)()
        code = library.cuDeviceGet(ctypes.byref(device), 0) or library.cuDeviceGetUuid(ctypes.byref(found), device)
        if code:
            return CudaAnswer(code)
        other = f"GPU-{UUID(bytes=bytes(found))}"
        return CudaAnswer(0) if other.lower() == uuid.lower() else CudaAnswer(_OTHER_CARD, other)


if __name__ == "__main__":
    *roots, parent_pid = sys.argv[1:]
    main(CudaProgram(*roots), int(parent_pid))
