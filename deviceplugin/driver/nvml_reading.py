"""The current reading of one card, from NVML."""

from types import ModuleType
from typing import Final

import pynvml  # type: ignore[import-untyped] # nvidia-ml-py has no annotations

from deviceplugin.driver.cards import Process, Reading
from deviceplugin.driver.nvml_answers import RawHandle, answer

_MIB: Final = 1024**2
_MILLIWATTS: Final = 1000.0

# Advice that is not in this table, from a newer driver, keeps new pods away until it is withdrawn.
_UNKNOWN_ADVICE: Final = "drain"
_RECOVERY: Final = {
    pynvml.NVML_GPU_RECOVERY_ACTION_NONE: "",
    pynvml.NVML_GPU_RECOVERY_ACTION_GPU_RESET: "reset",
    pynvml.NVML_GPU_RECOVERY_ACTION_BUS_RESET: "reset",
    pynvml.NVML_GPU_RECOVERY_ACTION_NODE_REBOOT: "reboot",
    pynvml.NVML_GPU_RECOVERY_ACTION_SYSTEM_REBOOT: "reboot",
    pynvml.NVML_GPU_RECOVERY_ACTION_DRAIN_P2P: "drain",
    pynvml.NVML_GPU_RECOVERY_ACTION_DRAIN_AND_RESET: "drain-reset",
}


def read(library: ModuleType, raw: RawHandle) -> Reading:
    """Of a card with unified memory, used is what its processes use. Raises NVMLError.

    An error that is not "not supported" fails the whole reading: half a reading would look like a healthy card.
    """
    processes = _processes(library, raw)
    memory = _memory(library, raw)
    utilisation = answer(library.nvmlDeviceGetUtilizationRates, raw)
    milliwatts = answer(library.nvmlDeviceGetPowerUsage, raw)
    return Reading(
        used_mib=sum(process.used_mib for process in processes) if memory is None else int(memory.used) // _MIB,
        processes=processes,
        utilisation=None if utilisation is None else int(utilisation.gpu),
        temperature_c=_temperature(library, raw),
        power_w=None if milliwatts is None else milliwatts / _MILLIWATTS,
        remap_pending=_remap_pending(library, raw),
        uncorrected_ecc=answer(
            library.nvmlDeviceGetTotalEccErrors,
            raw,
            pynvml.NVML_MEMORY_ERROR_TYPE_UNCORRECTED,
            pynvml.NVML_VOLATILE_ECC,
        ),
        recovery=_recovery(library, raw),
    )


def _memory(library: ModuleType, raw: RawHandle) -> "pynvml.c_nvmlMemory_t | None":
    """Of version 2, whose `used` is without what the driver reserves, where there is one."""
    memory = answer(library.nvmlDeviceGetMemoryInfo, raw, pynvml.nvmlMemory_v2)
    return memory if memory is not None else answer(library.nvmlDeviceGetMemoryInfo, raw)


def _processes(library: ModuleType, raw: RawHandle) -> tuple[Process, ...]:
    """Ordered by pid. One that computes and draws is listed twice by NVML, with the same memory."""
    used_mib: dict[int, int] = {}
    for newer, older in (
        (library.nvmlDeviceGetComputeRunningProcesses_v3, library.nvmlDeviceGetComputeRunningProcesses_v2),
        (library.nvmlDeviceGetGraphicsRunningProcesses_v3, library.nvmlDeviceGetGraphicsRunningProcesses_v2),
    ):
        listed = answer(newer, raw)
        for process in (answer(older, raw) or ()) if listed is None else listed:
            # None: the driver knows the process, not its memory.
            mib = (process.usedGpuMemory or 0) // _MIB
            used_mib[process.pid] = max(mib, used_mib.get(process.pid, 0))
    return tuple(Process(pid, mib) for pid, mib in sorted(used_mib.items()))


def _temperature(library: ModuleType, raw: RawHandle) -> int | None:
    sensor = pynvml.NVML_TEMPERATURE_GPU
    celsius = answer(library.nvmlDeviceGetTemperature, raw, sensor)
    # The older function is announced to go.
    return celsius if celsius is not None else answer(library.nvmlDeviceGetTemperatureV, raw, sensor)


def _remap_pending(library: ModuleType, raw: RawHandle) -> bool:
    """Also true after a remap that failed. Cards before Ampere retire pages instead."""
    rows = answer(library.nvmlDeviceGetRemappedRows, raw)
    if rows is not None:
        _, _, pending, failed = rows
        return bool(pending or failed)
    retiring = answer(library.nvmlDeviceGetRetiredPagesPendingStatus, raw)
    return bool(retiring == pynvml.NVML_FEATURE_ENABLED)


def _recovery(library: ModuleType, raw: RawHandle) -> str:
    fields = answer(library.nvmlDeviceGetFieldValues, raw, [pynvml.NVML_FI_DEV_GET_GPU_RECOVERY_ACTION])
    # Drivers that do not know the field refuse the field, not the call.
    if not fields or fields[0].nvmlReturn != pynvml.NVML_SUCCESS:
        return ""
    return _RECOVERY.get(fields[0].value.uiVal, _UNKNOWN_ADVICE)
