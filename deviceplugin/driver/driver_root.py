"""Loads the libraries of an NVIDIA driver that is installed below another root directory.

The loader's search path must not name a directory of that root: that root's C library would be loaded too, and does not
fit this container's loader. So a library is loaded by its path; the loader then finds it again by its name.
"""

import ctypes
from pathlib import Path
from typing import Final

# Where distributions and NVIDIA's driver containers keep libraries; the first that has this one is used.
DIRECTORIES: Final = (
    "usr/lib/x86_64-linux-gnu",
    "usr/lib/aarch64-linux-gnu",
    "usr/lib64",
    "usr/lib",
    "lib64",
    "lib",
)


def load(root: Path, library: str) -> None:
    """Load a driver library into this process. Raises OSError, with the loader's message if the file exists."""
    found = next((path for name in DIRECTORIES if (path := root / name / library).exists()), None)
    if found is None:
        raise FileNotFoundError(f"no {library} under driverRoot {root}: looked in {', '.join(DIRECTORIES)}")
    ctypes.CDLL(str(found))
