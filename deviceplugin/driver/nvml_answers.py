"""Meaning of NVML's answers: which errors say that a value, a card or the whole driver is missing."""

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Final, TypeAlias, TypeVar

import pynvml  # type: ignore[import-untyped] # nvidia-ml-py has no annotations

from deviceplugin.driver.cards import CardFailed, NoAnswer, SourceFailed

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
    pynvml.NVMLError_ResetRequired,
)
# These come from healthy cards too, for a moment.
DOUBTFUL: Final = (pynvml.NVMLError_InvalidArgument, pynvml.NVMLError_Unknown)

_ADVICE: Final = (
    (pynvml.NVMLError_LibraryNotFound, ": is the driver installed on this node?"),
    (pynvml.NVMLError_DriverNotLoaded, ": is the driver's kernel module loaded on this node?"),
    (pynvml.NVMLError_LibRmVersionMismatch, ": the driver was replaced after this container was made"),
)
GONE: Final = (pynvml.NVMLError_Uninitialized, *(kind for kind, _ in _ADVICE))


@dataclass(frozen=True, slots=True)
class Handle:
    """A card as NVML counts it while it is initialised. raw: good until NVML is shut down."""

    index: int
    uuid: str
    raw: RawHandle


def answer(function: Callable[..., T], *arguments: object) -> T | None:
    """The function's result; None if the card or the driver does not support it. Raises NVMLError."""
    try:
        return function(*arguments)
    except UNSUPPORTED:
        return None


def message_of(error: Exception) -> str:
    """An error of NVML for people, with advice where there is some."""
    advice = next((advice for kind, advice in _ADVICE if isinstance(error, kind)), "")
    return f"NVML answered {str(error) or type(error).__name__!r}{advice}"


def text(value: str | bytes) -> str:
    """NVML's text, which older versions of pynvml leave as bytes. Raises UnicodeDecodeError, as newer ones do."""
    return value.decode() if isinstance(value, bytes) else value


def text_for_people(function: Callable[..., str | bytes], *arguments: object) -> str:
    """Text that nothing depends on, such as a model's name; "" where it is not text. Raises NVMLError."""
    try:
        found = text(function(*arguments))
    except UnicodeDecodeError:
        return ""
    return "".join(char if char.isprintable() else " " for char in found).strip()


def optional(function: Callable[..., T], *arguments: object, absent: list[str]) -> T | None:
    """The result of `answer`; other errors of the card are added to `absent` and do not affect its health."""
    try:
        return answer(function, *arguments)
    except (*GONE, *LOST):
        raise
    except pynvml.NVMLError as error:
        absent.append(f"{function.__name__.removeprefix('nvmlDeviceGet')}: {message_of(error)}")
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
    except UnicodeDecodeError as error:  # of pynvml, which decodes the text itself
        raise CardFailed(f"{what}: NVML's text for it is not UTF-8", lost=False) from error


def _said(what: str, error: Exception) -> str:
    return f"{what}: {message_of(error)}"
