"""NVML of a driver that is installed below another root directory.

The loader's search path cannot name a directory of that root: the C library of that root would come along, and does not
fit this container's loader. So NVML alone is loaded by its path; the loader then finds it again by its name.
"""

import ctypes
from pathlib import Path
from typing import Final

from deviceplugin.driver.cards import NotOpened

NVML: Final = "libnvidia-ml.so.1"
# Where distributions and NVIDIA's driver containers have libraries, the first that has this one.
DIRECTORIES: Final = (
    "usr/lib/x86_64-linux-gnu",
    "usr/lib/aarch64-linux-gnu",
    "usr/lib64",
    "usr/lib",
    "lib64",
    "lib",
)


def load_nvml(root: Path) -> None:
    """Load the driver's NVML into this process. Raises NotOpened."""
    found = next((path for name in DIRECTORIES if (path := root / name / NVML).exists()), None)
    if found is None:
        raise NotOpened(f"the driver: no {NVML} below driverRoot {root}: looked in {', '.join(DIRECTORIES)}")
    try:
        ctypes.CDLL(str(found))
    except OSError as error:
        raise NotOpened(f"the driver: {error}") from error
