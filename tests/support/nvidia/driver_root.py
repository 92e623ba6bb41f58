"""The root folder of a driver, as in a driver container: libraries and device nodes, without a driver."""

import os
import stat
from collections.abc import Iterable
from pathlib import Path
from typing import Final

from tests.support.nvidia import libraries
from tests.support.nvidia.world import DRIVER

CARDS_MAJOR: Final = 195
UVM_MAJOR: Final = 511
CAPS_MAJOR: Final = 238
CONTROL: Final = {
    "nvidiactl": (CARDS_MAJOR, 255),
    "nvidia-modeset": (CARDS_MAJOR, 254),
    "nvidia-uvm": (UVM_MAJOR, 0),
    "nvidia-uvm-tools": (UVM_MAJOR, 1),
}
LIBRARIES: Final = "usr/lib/x86_64-linux-gnu"


def make_nodes(
    folder: Path, minors: Iterable[int], control: Iterable[str] = CONTROL, *, uvm_major: int = UVM_MAJOR
) -> None:
    """Create the nodes of cards and control nodes, which requires root. No driver is behind them.

    uvm_major: of nvidia-uvm, which the kernel chooses at each boot.
    """
    folder.mkdir(parents=True, exist_ok=True)
    for name, numbers in {f"nvidia{minor}": (CARDS_MAJOR, minor) for minor in minors}.items():
        make_node(folder / name, numbers)
    for name in control:
        major, minor = CONTROL[name]
        make_node(folder / name, (uvm_major if major == UVM_MAJOR else major, minor))


def make_caps(folder: Path, minors: Iterable[int], *, major: int = CAPS_MAJOR) -> None:
    """Create the nodes of MIG instances with these minors, which requires root."""
    (folder / "nvidia-caps").mkdir(exist_ok=True)
    for minor in minors:
        make_node(folder / "nvidia-caps" / f"nvidia-cap{minor}", (major, minor))


def make_node(path: Path, numbers: tuple[int, int]) -> None:
    """Create a character device. numbers: major and minor."""
    os.mknod(path, stat.S_IFCHR, os.makedev(*numbers))
    path.chmod(0o666)


def make_libraries(root: Path, version: str = DRIVER) -> None:
    """Put NVML and CUDA of this version where a driver's installer puts them."""
    folder = root / LIBRARIES
    for compile_in, name in ((libraries.compile_nvml, "libnvidia-ml.so"), (libraries.compile_cuda, "libcuda.so")):
        compile_in(folder).rename(folder / f"{name}.{version}")
        (folder / f"{name}.1").symlink_to(f"{name}.{version}")
