"""The current reading of one card, from NVML."""

from collections.abc import Callable
from types import ModuleType
from typing import Any, Final, TypeAlias, TypedDict, TypeVar

import pynvml  # type: ignore[import-untyped] # nvidia-ml-py has no annotations

from deviceplugin.driver.cards import EXCLUSIVE_PROCESS, CardReading, NoAnswer, Process
from deviceplugin.driver.nvml_answers import DOUBTFUL, RawHandle, answer, message_of, optional

T = TypeVar("T")
_AtBest: TypeAlias = Callable[..., Any]  # an NVML function and its arguments after the handle; None: not to be had

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


_SHARING_MODES: Final = {
    pynvml.NVML_COMPUTEMODE_DEFAULT: "",
    pynvml.NVML_COMPUTEMODE_EXCLUSIVE_THREAD: "EXCLUSIVE_THREAD",
    pynvml.NVML_COMPUTEMODE_PROHIBITED: "PROHIBITED",
    pynvml.NVML_COMPUTEMODE_EXCLUSIVE_PROCESS: EXCLUSIVE_PROCESS,
}


def compute_mode(said: str) -> int:
    """NVML's number of a mode that `CardReading` has; of one that it does not know, the default."""
    numbers: dict[str, int] = {mode: number for number, mode in _SHARING_MODES.items()}
    return numbers.get(said, numbers[""])


def read(library: ModuleType, raw: RawHandle) -> CardReading:
    """The card's reading; with unified memory, `used_mib` is the sum over processes. Raises NVMLError.

    Memory shows that the card answers. A failed question about its health fails the reading: without it the card would
    look healthy. All other values are optional.
    """
    absent: list[str] = []

    def at_best(function: Callable[..., T], *arguments: object) -> T | None:
        return optional(function, raw, *arguments, absent=absent)

    memory = _memory(library, raw)
    processes = _processes(library, at_best)
    utilisation = at_best(library.nvmlDeviceGetUtilizationRates)
    milliwatts = at_best(library.nvmlDeviceGetPowerUsage)
    mode = at_best(library.nvmlDeviceGetComputeMode)
    return CardReading(
        used_mib=sum(process.used_mib for process in processes) if memory is None else int(memory.used) // _MIB,
        processes=processes,
        utilisation=None if utilisation is None else int(utilisation.gpu),
        temperature_c=_temperature(library, at_best),
        power_w=None if milliwatts is None else milliwatts / _MILLIWATTS,
        compute_mode="" if mode is None else _SHARING_MODES.get(mode, str(mode)),
        energy_mj=at_best(library.nvmlDeviceGetTotalEnergyConsumption),
        persistent=at_best(library.nvmlDeviceGetPersistenceMode) == pynvml.NVML_FEATURE_ENABLED,
        absent=tuple(absent),
        **_health(library, raw),
    )


class _Health(TypedDict):
    remap_pending: bool
    uncorrected_ecc: int | None
    recovery: str


def _health(library: ModuleType, raw: RawHandle) -> _Health:
    """Raises NVMLError; NoAnswer for what says neither that the card is gone nor that the driver is."""
    try:
        return _Health(
            remap_pending=_remap_pending(library, raw),
            uncorrected_ecc=answer(
                library.nvmlDeviceGetTotalEccErrors,
                raw,
                pynvml.NVML_MEMORY_ERROR_TYPE_UNCORRECTED,
                pynvml.NVML_VOLATILE_ECC,
            ),
            recovery=_recovery(library, raw),
        )
    except DOUBTFUL as error:
        # Its memory has answered, so the card is there.
        raise NoAnswer(f"its health: {message_of(error)}") from error


def _memory(library: ModuleType, raw: RawHandle) -> "pynvml.c_nvmlMemory_t | None":
    """nvmlMemory_v2 if present: its `used` excludes driver-reserved memory."""
    memory = answer(library.nvmlDeviceGetMemoryInfo, raw, pynvml.nvmlMemory_v2)
    return memory if memory is not None else answer(library.nvmlDeviceGetMemoryInfo, raw)


def _processes(library: ModuleType, at_best: _AtBest) -> tuple[Process, ...]:
    """Ordered by pid. One that computes and draws is listed twice by NVML, with the same memory."""
    used_mib: dict[int, int] = {}
    for newer, older in (
        (library.nvmlDeviceGetComputeRunningProcesses_v3, library.nvmlDeviceGetComputeRunningProcesses_v2),
        (library.nvmlDeviceGetGraphicsRunningProcesses_v3, library.nvmlDeviceGetGraphicsRunningProcesses_v2),
    ):
        listed = at_best(newer)
        for process in (at_best(older) or ()) if listed is None else listed:
            # None: the driver knows the process, not its memory.
            mib = (process.usedGpuMemory or 0) // _MIB
            used_mib[process.pid] = max(mib, used_mib.get(process.pid, 0))
    return tuple(Process(pid, mib) for pid, mib in sorted(used_mib.items()))


def _temperature(library: ModuleType, at_best: _AtBest) -> int | None:
    sensor = pynvml.NVML_TEMPERATURE_GPU
    celsius: int | None = at_best(library.nvmlDeviceGetTemperature, sensor)
    # The older function is announced to go.
    if celsius is None:
        celsius = at_best(library.nvmlDeviceGetTemperatureV, sensor)
    return celsius


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
