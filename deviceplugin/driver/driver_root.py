"""NVIDIA's libraries of a driver that is installed below another root directory.

The loader's search path cannot name a directory of that root: the C library of that root would come along, and does not
fit this container's loader. So a library is loaded by its path; the loader then finds it again by its name.
"""

import ctypes
from pathlib import Path
from typing import Final

# Where distributions and NVIDIA's driver containers have libraries, the first that has this one.
DIRECTORIES: Final = (
    "usr/lib/x86_64-linux-gnu",
    "usr/lib/aarch64-linux-gnu",
    "usr/lib64",
    "usr/lib",
    "lib64",
    "lib",
)


def load(root: Path, library: str) -> None:
    """Load a library of the driver into this process. Raises OSError, in the loader's words where it finds the file."""
    found = next((path for name in DIRECTORIES if (path := root / name / library).exists()), None)
    if found is None:
        raise FileNotFoundError(f"no {library} under driverRoot {root}: looked in {', '.join(DIRECTORIES)}")
    ctypes.CDLL(str(found))
