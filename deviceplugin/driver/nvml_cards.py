"""Reads a card and its links through NVML, and classifies NVML's errors that mean something is missing."""

import contextlib
import ctypes
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from types import ModuleType
from typing import Any, Final, TypeAlias, TypedDict, TypeVar

import pynvml  # type: ignore[import-untyped] # nvidia-ml-py has no annotations

from deviceplugin.driver import nvml_limits
from deviceplugin.driver.cards import (
    EXCLUSIVE_PROCESS,
    CardFailed,
    CardReading,
    DriverCard,
    NoAnswer,
    Process,
    SourceFailed,
)

T = TypeVar("T")
RawHandle: TypeAlias = Any  # an opaque ctypes pointer

UNSUPPORTED: Final = (
    pynvml.NVMLError_NotSupported,
    pynvml.NVMLError_FunctionNotFound,
    pynvml.NVMLError_ArgumentVersionMismatch,
)

# Every argument but the handle is right, so an invalid one means that the handle's card is gone.\nA card that requires
# a reset gives no answer until the reset, and is back after it.
LOST: Final = (
    pynvml.NVMLError_GpuIsLost,
    pynvml.NVMLError_GpuNotFound,
    pynvml.NVMLError_NotFound,
    pynvml.NVMLError_ResetRequired,
)
# Healthy cards briefly return these too.
DOUBTFUL: Final = (pynvml.NVMLError_InvalidArgument, pynvml.NVMLError_Unknown)

_ADVICE: Final = (
    (pynvml.NVMLError_LibraryNotFound, ": is the driver installed on this node?"),
    (pynvml.NVMLError_DriverNotLoaded, ": is the driver's kernel module loaded on this node?"),
    (pynvml.NVMLError_LibRmVersionMismatch, ": the driver was replaced after this container was made"),
)
GONE: Final = (pynvml.NVMLError_Uninitialized, *(kind for kind, _ in _ADVICE))


@dataclass(frozen=True, slots=True)
class Handle:
    """A card as NVML counts it while initialized. raw: valid until NVML is shut down."""

    index: int
    uuid: str
    raw: RawHandle


def answer(function: Callable[..., T], *arguments: object) -> T | None:
    """Return the function's result; None if the card or the driver does not support it. Raises NVMLError."""
    try:
        return function(*arguments)
    except UNSUPPORTED:
        return None


def message_of(error: Exception) -> str:
    """Return a readable NVML error, with advice if available."""
    advice = next((advice for kind, advice in _ADVICE if isinstance(error, kind)), "")
    return f"NVML returned {str(error) or type(error).__name__!r}{advice}"


def text(value: str | bytes) -> str:
    """Decode NVML's text, which older pynvml versions leave as bytes. Raises UnicodeDecodeError, as newer ones do."""
    return value.decode() if isinstance(value, bytes) else value


def text_for_people(function: Callable[..., str | bytes], *arguments: object) -> str:
    """Return text that nothing depends on, such as a model's name; "" if it is not valid text. Raises NVMLError."""
    try:
        found = text(function(*arguments))
    except UnicodeDecodeError:
        return ""
    return "".join(char if char.isprintable() else " " for char in found).strip()


def optional(function: Callable[..., T], *arguments: object, absent: list[str], what: str = "") -> T | None:
    """Return the result of `answer`; add other card errors to `absent`, without any effect on the card's health.

    what: the name in `absent`; "" for the function's own.
    """
    try:
        return answer(function, *arguments)
    except (*GONE, *LOST):
        raise
    except pynvml.NVMLError as error:
        absent.append(f"{what or function.__name__.removeprefix('nvmlDeviceGet')}: {message_of(error)}")
        return None


@contextlib.contextmanager
def asked(what: str) -> Iterator[None]:
    """Translate NVML errors into errors of a card or of the driver."""
    try:
        yield
    except GONE as error:
        raise SourceFailed(_said(what, error)) from error
    except (*LOST, *DOUBTFUL) as error:
        raise CardFailed(_said(what, error), lost=isinstance(error, LOST)) from error
    except pynvml.NVMLError as error:
        raise NoAnswer(_said(what, error)) from error
    except UnicodeDecodeError as error:  # from pynvml, which decodes the text itself
        raise CardFailed(f"{what}: NVML's text for it is not UTF-8", lost=False) from error


def _said(what: str, error: Exception) -> str:
    return f"{what}: {message_of(error)}"


_MIB: Final = 1024**2
_WORD_BITS: Final = 64
_NODE_WORDS: Final = 16  # the kernel supports at most 1024 NUMA nodes


def card(library: ModuleType, handle: Handle) -> DriverCard:
    """Return the card. Handle, UUID and memory must be known; other failures are listed in `absent`.

    The driver denies a program most facts about a split card, so those are not queried.
    """
    raw, absent = handle.raw, list[str]()

    def at_best(function: Callable[..., T], *arguments: object, what: str = "") -> T | None:
        return optional(function, *arguments, absent=absent, what=what)

    mode = at_best(library.nvmlDeviceGetMigMode, raw)
    mig = mode is not None and mode[0] == pynvml.NVML_DEVICE_MIG_ENABLE
    info = at_best(library.nvmlDeviceGetPciInfo, raw)
    usable_mib, reserved_mib = (0, 0) if mig else memory_mib(library, raw)
    return DriverCard(
        index=handle.index,
        uuid=handle.uuid,
        model=at_best(text_for_people, library.nvmlDeviceGetName, raw, what="Name") or "",
        memory_mib=usable_mib,
        reserved_mib=reserved_mib,
        minor=at_best(library.nvmlDeviceGetMinorNumber, raw),
        pci="" if info is None else pci_address(info),
        numa=None if mig else at_best(_numa, library, raw, what="NumaNodeId"),
        mig=mig,
        # Handles of split cards are rejected.
        limits=not mig and bool(at_best(nvml_limits.supported, library, raw, what="MemoryLimits")),
        absent=tuple(absent),
    )


def memory_mib(library: ModuleType, raw: RawHandle) -> tuple[int, int]:
    """Return (total less the driver's reserve, the reserve); zeros if the card has no memory of its own."""
    memory = answer(library.nvmlDeviceGetMemoryInfo, raw, pynvml.nvmlMemory_v2)
    if memory is not None:
        usable_mib = int(memory.total - memory.reserved) // _MIB
        return usable_mib, int(memory.total) // _MIB - usable_mib
    # Drivers before 510 do not report their reserve.
    memory = answer(library.nvmlDeviceGetMemoryInfo, raw)
    return (int(memory.total) // _MIB if memory is not None else 0), 0


def pci_address(info: "pynvml.nvmlPciInfo_t") -> str:
    """Return the PCI address as the kernel writes it, such as `0000:07:00.0`; NVML's own text has an 8-digit domain."""
    return f"{info.domain:04x}:{info.bus:02x}:{info.device:02x}.0"


def _numa(library: ModuleType, raw: RawHandle) -> int | None:
    """Return the card's NUMA node: the card itself if it is one, else the single nearest node."""
    node = answer(library.nvmlDeviceGetNumaNodeId, raw)
    if node is not None:
        return node if node >= 0 else None
    scope = pynvml.NVML_AFFINITY_SCOPE_NODE
    masks = answer(library.nvmlDeviceGetMemoryAffinity, raw, _NODE_WORDS, scope) or ()
    near = [word * _WORD_BITS + bit for word, mask in enumerate(masks) for bit in range(_WORD_BITS) if mask >> bit & 1]
    return near[0] if len(near) == 1 else None


_AtBest: TypeAlias = Callable[..., Any]  # an NVML function and its arguments after the handle; None if unavailable

_MILLIWATTS: Final = 1000.0

# Unlisted advice, from a newer driver, keeps new pods away until it is withdrawn.
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
    """Return NVML's number for a mode of `CardReading`; for an unknown mode, the number of the default mode."""
    numbers: dict[str, int] = {mode: number for number, mode in _SHARING_MODES.items()}
    return numbers.get(said, numbers[""])


def use(library: ModuleType, raw: RawHandle, absent: list[str]) -> tuple[int, tuple[Process, ...]]:
    """Return (used MiB, processes) of a card or instance, which the memory query shows to answer. Raises NVMLError.

    With unified memory, the used memory is the sum over processes.
    """

    def at_best(function: Callable[..., T], *arguments: object) -> T | None:
        return optional(function, raw, *arguments, absent=absent)

    memory = _memory(library, raw)
    processes = _processes(library, at_best)
    used_mib = sum(process.used_mib for process in processes) if memory is None else int(memory.used) // _MIB
    return used_mib, processes


def read(library: ModuleType, raw: RawHandle, *, mig: bool = False) -> CardReading:
    """Return the card's reading. mig: it is split, so that only its instances have memory and a use. Raises NVMLError.

    Values other than the memory are optional; `absent` names those that failed.
    """
    absent: list[str] = []

    def of_any(function: Callable[..., T], *arguments: object, what: str = "") -> T | None:
        return optional(function, *arguments, absent=absent, what=what)

    def at_best(function: Callable[..., T], *arguments: object) -> T | None:
        return of_any(function, raw, *arguments)

    used_mib, processes = (0, ()) if mig else use(library, raw, absent)
    utilisation = None if mig else at_best(library.nvmlDeviceGetUtilizationRates)
    milliwatts = at_best(library.nvmlDeviceGetPowerUsage)
    mode = None if mig else at_best(library.nvmlDeviceGetComputeMode)
    health = _health(library, raw, of_any)  # before `absent` is complete
    temperature_c = _temperature(library, at_best)
    return CardReading(
        used_mib=used_mib,
        processes=processes,
        utilisation=None if utilisation is None else int(utilisation.gpu),
        temperature_c=temperature_c,
        power_w=None if milliwatts is None else milliwatts / _MILLIWATTS,
        compute_mode="" if mode is None else _SHARING_MODES.get(mode, str(mode)),
        energy_mj=at_best(library.nvmlDeviceGetTotalEnergyConsumption),
        persistent=at_best(library.nvmlDeviceGetPersistenceMode) == pynvml.NVML_FEATURE_ENABLED,
        absent=tuple(absent),
        **health,
    )


class _Health(TypedDict):
    remap_pending: bool | None
    uncorrected_ecc: int | None
    recovery: str | None
    fabric: str


def _health(library: ModuleType, raw: RawHandle, at_best: _AtBest) -> _Health:
    uncorrected, volatile = pynvml.NVML_MEMORY_ERROR_TYPE_UNCORRECTED, pynvml.NVML_VOLATILE_ECC
    return _Health(
        remap_pending=at_best(_remap_pending, library, raw, what="RemappedRows"),
        uncorrected_ecc=at_best(library.nvmlDeviceGetTotalEccErrors, raw, uncorrected, volatile),
        recovery=at_best(_recovery, library, raw, what="FieldValues"),
        fabric=at_best(_fabric, library, raw, what="GpuFabricInfoV") or "",
    )


def _memory(library: ModuleType, raw: RawHandle) -> "pynvml.c_nvmlMemory_t | None":
    """Return nvmlMemory_v2 if the library has it, because its `used` excludes driver-reserved memory."""
    memory = answer(library.nvmlDeviceGetMemoryInfo, raw, pynvml.nvmlMemory_v2)
    return memory if memory is not None else answer(library.nvmlDeviceGetMemoryInfo, raw)


def _processes(library: ModuleType, at_best: _AtBest) -> tuple[Process, ...]:
    """Return the processes, ordered by pid. NVML lists one that computes and draws twice, with the same memory."""
    used_mib: dict[int, int] = {}
    for newer, older in (
        (library.nvmlDeviceGetComputeRunningProcesses_v3, library.nvmlDeviceGetComputeRunningProcesses_v2),
        (library.nvmlDeviceGetGraphicsRunningProcesses_v3, library.nvmlDeviceGetGraphicsRunningProcesses_v2),
    ):
        listed = at_best(newer)
        for process in (at_best(older) or ()) if listed is None else listed:
            # None: the driver knows the process, but not its memory.
            mib = (process.usedGpuMemory or 0) // _MIB
            used_mib[process.pid] = max(mib, used_mib.get(process.pid, 0))
    return tuple(Process(pid, mib) for pid, mib in sorted(used_mib.items()))


def _temperature(library: ModuleType, at_best: _AtBest) -> int | None:
    sensor = pynvml.NVML_TEMPERATURE_GPU
    celsius: int | None = at_best(library.nvmlDeviceGetTemperature, sensor)
    # The older function is deprecated.
    if celsius is None:
        celsius = at_best(library.nvmlDeviceGetTemperatureV, sensor)
    return celsius


def _remap_pending(library: ModuleType, raw: RawHandle) -> bool:
    """Return whether a remap is pending or has failed. Cards before Ampere retire pages instead."""
    rows = answer(library.nvmlDeviceGetRemappedRows, raw)
    if rows is not None:
        _, _, pending, failed = rows
        return bool(pending or failed)
    retiring = answer(library.nvmlDeviceGetRetiredPagesPendingStatus, raw)
    return bool(retiring == pynvml.NVML_FEATURE_ENABLED)


_FABRIC: Final = {
    pynvml.NVML_GPU_FABRIC_STATE_NOT_STARTED: "not-started",
    pynvml.NVML_GPU_FABRIC_STATE_IN_PROGRESS: "in-progress",
}


def _fabric(library: ModuleType, raw: RawHandle) -> str:
    """Return the fabric's state, as in `CardReading`. The status counts only once the state is complete (nvml.h)."""
    # Version 2, which drivers have had as long as the function.
    info = pynvml.c_nvmlGpuFabricInfo_v2_t()
    library.nvmlDeviceGetGpuFabricInfoV(raw, ctypes.byref(info))
    complete = info.state == pynvml.NVML_GPU_FABRIC_STATE_COMPLETED
    return "failed" if complete and info.status != pynvml.NVML_SUCCESS else _FABRIC.get(info.state, "")


def _recovery(library: ModuleType, raw: RawHandle) -> str:
    fields = answer(library.nvmlDeviceGetFieldValues, raw, [pynvml.NVML_FI_DEV_GET_GPU_RECOVERY_ACTION])
    # Drivers that do not know the field reject the field, not the call.
    if not fields or fields[0].nvmlReturn != pynvml.NVML_SUCCESS:
        return ""
    return _RECOVERY.get(fields[0].value.uiVal, _UNKNOWN_ADVICE)
