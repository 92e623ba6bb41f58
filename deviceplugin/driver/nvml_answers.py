"""What NVML's answers mean: which of its errors say that a value, a card or the whole driver is not there."""

import ctypes
from collections.abc import Callable
from dataclasses import dataclass
from types import ModuleType
from typing import Any, Final, TypeAlias, TypeVar

import pynvml  # type: ignore[import-untyped] # nvidia-ml-py has no annotations

T = TypeVar("T")
RawHandle: TypeAlias = Any  # a pointer of ctypes, opaque

UNSUPPORTED: Final = (
    pynvml.NVMLError_NotSupported,
    pynvml.NVMLError_FunctionNotFound,
    pynvml.NVMLError_ArgumentVersionMismatch,
)

# Every argument but the handle is right, so an invalid one means that the handle is of a card that is gone.
# A card that requires a reset answers nothing until it has had it, and then it is back.
LOST: Final = (
    pynvml.NVMLError_GpuIsLost,
    pynvml.NVMLError_GpuNotFound,
    pynvml.NVMLError_NotFound,
    pynvml.NVMLError_InvalidArgument,
    pynvml.NVMLError_ResetRequired,
    pynvml.NVMLError_Unknown,
)

_ADVICE: Final = (
    (pynvml.NVMLError_LibraryNotFound, ": is the driver installed on this node?"),
    (pynvml.NVMLError_DriverNotLoaded, ": is the driver's kernel module loaded on this node?"),
    # The library stays loaded as long as the process lives.
    (pynvml.NVMLError_LibRmVersionMismatch, ": the driver was replaced; restart the device plugin"),
)
GONE: Final = (pynvml.NVMLError_Uninitialized, *(kind for kind, _ in _ADVICE))


@dataclass(frozen=True, slots=True)
class Handle:
    """A card as NVML counts it while it is initialised. raw: good until NVML is shut down."""

    index: int
    uuid: str
    raw: RawHandle


def answer(function: Callable[..., T], *arguments: object) -> T | None:
    """What the function returns; None where the card or the driver does not support it. Raises NVMLError."""
    try:
        return function(*arguments)
    except UNSUPPORTED:
        return None


def message_of(error: Exception) -> str:
    """An error of NVML for people, with advice where there is some."""
    advice = next((advice for kind, advice in _ADVICE if isinstance(error, kind)), "")
    return f"NVML answered {str(error) or type(error).__name__!r}{advice}"


def text(value: str | bytes) -> str:
    """NVML's text, which older versions of pynvml leave as bytes."""
    return value.decode(errors="replace") if isinstance(value, bytes) else value


def address(raw: RawHandle) -> int:
    """Tells handles apart: two ctypes pointers to the same card are not equal. 0 for no card."""
    return ctypes.cast(raw, ctypes.c_void_p).value or 0


def handles(library: ModuleType) -> tuple[list[Handle], dict[int, str]]:
    """Every card that gives a handle; by index, why others do not. Raises NVMLError when the driver as a whole fails.

    By index, not by UUID: `nvmlDeviceGetHandleByUUID` may fail for a healthy card while another one is lost
    (NVML API reference, its return values).
    """
    found: list[Handle] = []
    refused: dict[int, str] = {}
    for index in range(library.nvmlDeviceGetCount()):
        try:
            raw = library.nvmlDeviceGetHandleByIndex(index)
            found.append(Handle(index, text(library.nvmlDeviceGetUUID(raw)), raw))
        except GONE:
            raise
        except pynvml.NVMLError as error:
            refused[index] = message_of(error)
    return found, refused
