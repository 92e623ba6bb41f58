"""The cards of one node as their driver describes them, and what is asked of a driver. Pure.

`nvml` satisfies `CardSource` with a real driver, `simulated` with the cards of a cluster file.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol, TypeAlias


class SourceFailed(Exception):
    """The driver is absent, too late, hung or broken; the message says what was asked and what it answered."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DriverCard:
    """What does not change while the driver runs.

    index: as the driver counts now; another card may have it after a reboot. minor: of /dev/nvidia<minor>; None for a
    card without a device node. memory_mib: what programs can use: total less what the driver reserves.
    links: index of another card -> kind of link, such as `NV12` or `PIX`. mig: split into instances, not shared here.
    """

    index: int
    uuid: str
    model: str
    memory_mib: int
    minor: int | None = None
    pci: str = ""
    numa: int | None = None
    links: Mapping[str, str] = field(default_factory=dict)
    mig: bool = False


@dataclass(frozen=True, slots=True)
class DriverCards:
    """Every card that the driver names, ordered by index; UUIDs are unique. driver: its version."""

    driver: str
    cards: tuple[DriverCard, ...]


@dataclass(frozen=True, slots=True)
class Xid:
    """The driver reported an error. uuid: "" where it did not say of which card."""

    uuid: str
    number: int


@dataclass(frozen=True, slots=True)
class Lost:
    """The card has stopped answering (fell off the bus, handle lost). Reported once."""

    uuid: str


@dataclass(frozen=True, slots=True)
class Back:
    """A card that was lost answers again, or has been reset. Reported once."""

    uuid: str


CardEvent: TypeAlias = Xid | Lost | Back


@dataclass(frozen=True, slots=True)
class Process:
    """A process that holds memory on a card. pid: in the host's namespace."""

    pid: int
    used_mib: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """What changes from moment to moment; None where the driver does not support it.

    utilisation: duty cycle, 0..100. temperature_c. power_w. remap_pending: a row remap, or page retirement, waits for
    a reset. uncorrected_ecc: volatile uncorrected errors since the driver started. recovery: what the driver advises:
    "" nothing, else `reset`, `reboot`, `drain` or `drain-reset`.
    """

    used_mib: int
    processes: tuple[Process, ...] = ()
    utilisation: int | None = None
    temperature_c: int | None = None
    power_w: float | None = None
    remap_pending: bool = False
    uncorrected_ecc: int | None = None
    recovery: str = ""


class CardSource(Protocol):
    """A driver. Its methods block, for as long as the driver likes: call them in a thread of their own.

    Every method raises SourceFailed and nothing else.
    """

    def cards(self) -> DriverCards:
        """Every card, read again."""
        ...

    def wait(self, timeout_s: float) -> Sequence[CardEvent]:
        """What happened since the last call, as soon as something does; empty when nothing did in time."""
        ...

    def reading(self, uuid: str) -> Reading:
        """The current reading of one card."""
        ...

    def close(self) -> None:
        """Let go of the driver."""
        ...
