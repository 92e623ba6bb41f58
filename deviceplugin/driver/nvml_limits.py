"""Limits that the driver puts on the memory of a cgroup's processes, through NVML (driver 615 and later).

NVML names a cgroup by a directory of the cgroup v2 hierarchy (nvml.h, `nvmlGetMemoryLimits_v1_t`). Reading needs no
rights.
"""

from collections.abc import Sequence
from types import ModuleType
from typing import Any, Final, TypeAlias

import pynvml  # type: ignore[import-untyped] # nvidia-ml-py has no annotations

from deviceplugin.driver.cards import MemoryLimits

_RawHandle: TypeAlias = Any  # an opaque ctypes pointer

# The cgroup of this process, as seen from inside a container; any readable cgroup serves the purpose.
_OWN_CGROUP: Final = "/sys/fs/cgroup"
_MIB: Final = 1024**2


def supported(library: ModuleType, raw: _RawHandle) -> bool:
    """Return True if the driver knows of limits on this card, set or not. Raises NVMLError otherwise."""
    _limits(library, raw, _OWN_CGROUP)
    return True


def limits_of(library: ModuleType, raw: _RawHandle, cgroups: Sequence[str]) -> dict[str, MemoryLimits]:
    """Return cgroup -> its limits, for each of these cgroups that exists and has some. Raises NVMLError."""
    found: dict[str, MemoryLimits] = {}
    for cgroup in cgroups:
        try:
            limits = _limits(library, raw, cgroup)
        except pynvml.NVMLError_OperatingSystem:  # The cgroup is gone: its container has ended.
            continue
        if limits is not None:
            found[cgroup] = limits
    return found


def _limits(library: ModuleType, raw: _RawHandle, cgroup: str) -> MemoryLimits | None:
    asked = pynvml.c_nvmlGetMemoryLimits_v1_t(nameSpace=cgroup.encode())
    try:
        library.nvmlDeviceGetMemoryLimits_v1(raw, asked)
    except pynvml.NVMLError_NotFound:
        return None
    unlimited = asked.hardLimit == pynvml.NVML_DEVICE_MEMORY_LIMIT_MAX
    if unlimited and not asked.softLimit:
        return None
    hard_mib = None if unlimited else int(asked.hardLimit) // _MIB
    return MemoryLimits(hard_mib, int(asked.softLimit) // _MIB, int(asked.currentUsed) // _MIB)
