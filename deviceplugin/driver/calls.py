"""Calls to a driver's process, as values and on the wire: one JSON object per line, answers in any order."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final, Generic, Literal, Protocol, TypeAlias, TypeVar

import msgspec

from deviceplugin.driver.cards import (
    CardFailed,
    CardKey,
    CardReading,
    DriverCard,
    MemoryLimits,
    NoAnswer,
    NotOpened,
    Opened,
    SourceFailed,
    Xid,
)
from deviceplugin.driver.cuda import CudaAnswer

T = TypeVar("T")
Name: TypeAlias = Literal[
    "open", "describe", "links", "read", "memory_limits", "set_compute_mode", "wait", "start_cuda"
]
LONGEST_LINE: Final = 2**20


class WorkerDied(SourceFailed):
    """The queried process has ended. killed: by a SIGKILL that is not ours, such as the kernel's at a memory limit."""

    def __init__(self, message: str, *, killed: bool = False) -> None:
        super().__init__(message)
        self.killed = killed


@dataclass(frozen=True, slots=True)
class Call(Generic[T]):
    """A method of `cards.CardSource`, or of `cuda_child.CudaProgram`. answer: the type of its result."""

    name: Name
    arguments: tuple[Any, ...]
    answer: Any

    def of(self, source: object) -> T:
        """Make the call in this thread. Raises SourceFailed."""
        method: Callable[..., T] = getattr(source, self.name)
        return method(*self.arguments)


OPEN: Final[Call[Opened]] = Call("open", (), Opened)


def describe(key: CardKey) -> Call[DriverCard]:
    """`CardSource.describe`."""
    return Call("describe", (key,), DriverCard)


def links(uuids: Sequence[str]) -> Call[dict[str, dict[str, str]]]:
    """`CardSource.links`."""
    return Call("links", (tuple(uuids),), dict[str, dict[str, str]])


def read(uuid: str) -> Call[CardReading]:
    """`CardSource.read`."""
    return Call("read", (uuid,), CardReading)


def memory_limits(uuid: str, cgroups: Sequence[str]) -> Call[dict[str, MemoryLimits]]:
    """`CardSource.memory_limits`."""
    return Call("memory_limits", (uuid, tuple(cgroups)), dict[str, MemoryLimits])


def set_compute_mode(uuid: str, mode: str) -> Call[None]:
    """`CardSource.set_compute_mode`."""
    return Call("set_compute_mode", (uuid, mode), None)


def wait(uuid: str, timeout_s: float) -> Call[tuple[Xid, ...] | None]:
    """`CardSource.wait`."""
    return Call("wait", (uuid, timeout_s), tuple[Xid, ...] | None)


def start_cuda(uuid: str) -> Call[CudaAnswer]:
    """`cuda_child.CudaProgram.start_cuda`."""
    return Call("start_cuda", (uuid,), CudaAnswer)


class Worker(Protocol):
    """Port: a process that queries a driver, or a stand-in. It serves calls concurrently."""

    @property
    def pid(self) -> int:
        """Process id."""
        ...

    @property
    def alive(self) -> bool:
        """Whether the process still exists."""
        ...

    async def ask(self, call: Call[T]) -> T:
        """Wait for the answer without a time limit. Raises SourceFailed or its subclass WorkerDied."""
        ...

    def kill(self) -> None:
        """Kill the process at once; pending calls raise WorkerDied."""
        ...

    async def ended(self, within_s: float) -> bool:
        """Return whether the process is gone after at most `within_s`. The kernel may hold a killed process."""
        ...


class CallRequest(msgspec.Struct, frozen=True):
    """A call on the wire."""

    number: int
    name: Name
    arguments: tuple[Any, ...]


class CallFailure(msgspec.Struct, frozen=True):
    """One of the errors of `cards`, on the wire."""

    kind: Literal["driver", "not-opened", "no-answer", "card", "card-lost"]
    message: str


class CallAnswer(msgspec.Struct, frozen=True):
    """The answer to the call with this number. result: JSON of the call's result type."""

    number: int
    result: msgspec.Raw = msgspec.Raw(b"null")
    failure: CallFailure | None = None


def failure_of(error: SourceFailed) -> CallFailure:
    """Return the error in its wire form."""
    match error:
        case CardFailed():
            return CallFailure("card-lost" if error.lost else "card", str(error))
        case NoAnswer():
            return CallFailure("no-answer", str(error))
        case NotOpened():
            return CallFailure("not-opened", str(error))
    return CallFailure("driver", str(error))


def error_of(failure: CallFailure) -> SourceFailed:
    """Return the error that was sent."""
    match failure.kind:
        case "card" | "card-lost":
            return CardFailed(failure.message, lost=failure.kind == "card-lost")
        case "no-answer":
            return NoAnswer(failure.message)
        case "not-opened":
            return NotOpened(failure.message)
    return SourceFailed(failure.message)
