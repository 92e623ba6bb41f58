"""The cards of one node as their driver describes them, and the ports of a driver. Pure.

`nvml` implements `CardSource` with a real driver, `simulated` with the cards of a cluster file.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final, Protocol, TypeAlias

from config.protocol import inventory, isolation
from deviceplugin.driver.cuda import CudaAnswer

# A card's compute mode: one process at a time.
EXCLUSIVE_PROCESS: Final = "EXCLUSIVE_PROCESS"
# The inventory's reason for a card that is split into MIG instances.
MIG: Final = "mig"


class SourceFailed(Exception):
    """The driver as a whole is absent, hung or broken; the message gives the call and the answer."""


class NotOpened(SourceFailed):
    """The driver cannot be opened.

    If this lasts, only a new container may help: its library belongs to another driver, the library was installed after
    the container started, or the container has lost access to the cards.
    """


class NoAnswer(SourceFailed):
    """One card did not answer in time, or reported nothing about its health. This does not mean that it is faulty."""


class CardFailed(SourceFailed):
    """The driver answers for one card with an error. lost: the error means that the card is missing."""

    def __init__(self, message: str, *, lost: bool) -> None:
        super().__init__(message)
        self.lost = lost


@dataclass(frozen=True, slots=True, kw_only=True)
class DriverCard:
    """A card's facts that do not change while the driver runs.

    index: the current one; another card may have it after a reboot. minor: the number in /dev/nvidia<minor>; None for a
    card without a device node. memory_mib: memory that programs can use, that is, the total less reserved_mib, which
    the driver reserves. links: index of another card -> kind of link, such as `NV12` or `PIX`. mig: split into
    instances, so that only these are shared. absent: optional facts that the driver failed to report, each `name: why`.
    limits: the driver can limit the memory that a cgroup uses on it.

    A MIG instance is a card of its own, with the minor and PCI address of the card that it is a part of. parent: UUID
    of that card; "" for a whole card. instance: IDs of its GPU instance and compute instance, None for a whole card or
    if unknown. instances: of a split card, while it is not listed together with them (`with_instances`).
    """

    index: int
    uuid: str
    model: str
    memory_mib: int
    reserved_mib: int = 0
    minor: int | None = None
    pci: str = ""
    numa: int | None = None
    links: Mapping[str, str] = field(default_factory=dict)
    mig: bool = False
    absent: tuple[str, ...] = ()
    limits: bool = False
    parent: str = ""
    instance: tuple[int, int] | None = None
    instances: tuple["DriverCard", ...] = ()


def with_instances(cards: Iterable[DriverCard]) -> list[DriverCard]:
    """Return the cards and their MIG instances as one list, ordered by index."""
    flat = [one for card in cards for one in (replace(card, instances=()), *card.instances)]
    return sorted(flat, key=lambda card: card.index)


def and_instances(uuids: Collection[str], cards: Iterable[DriverCard]) -> frozenset[str]:
    """Return the UUIDs and those of the MIG instances of these cards."""
    return frozenset(uuids) | {card.uuid for card in cards if card.parent in uuids}


@dataclass(frozen=True, slots=True)
class MemoryLimits:
    """Limits of the processes of one cgroup on one card, as the driver enforces them.

    hard_mib: None if there is none. soft_mib: the guaranteed part, 0 if there is none. used_mib: what they use now.
    """

    hard_mib: int | None
    soft_mib: int
    used_mib: int


@dataclass(frozen=True, slots=True)
class DriverCards:
    """Every card that the driver names, ordered by index; UUIDs are unique.

    driver: its version. unasked: known cards that were not queried or did not answer in time; they are missing from
    `cards`, which says nothing about them. silent: a card, known or not, did not answer in time; its initialization may
    be slow.
    """

    driver: str
    cards: tuple[DriverCard, ...]
    unasked: frozenset[str] = frozenset()
    silent: bool = False


@dataclass(frozen=True, slots=True)
class Xid:
    """An error from the driver. uuid: "" if the card is unknown. number: XID. times: >= 1, within about a moment."""

    uuid: str
    number: int
    times: int = 1


@dataclass(frozen=True, slots=True)
class Process:
    """A process that holds memory on a card. pid: in the host's namespace."""

    pid: int
    used_mib: int


@dataclass(frozen=True, slots=True, kw_only=True)
class CardReading:
    """A card's current values; None if the driver does not support one.

    utilisation: duty cycle, 0..100. temperature_c. power_w. remap_pending: a row remap, or page retirement, waits for
    a reset. uncorrected_ecc: volatile uncorrected errors since the driver started. recovery: what the driver advises:
    "" nothing, else `reset`, `reboot`, `drain` or `drain-reset`. compute_mode: "" for the default, else the mode that
    prevents sharing: `EXCLUSIVE_PROCESS`, `PROHIBITED`. absent: optional values that could not be read, each `name:
    why`. fabric: state of the NVSwitch fabric if CUDA has to wait for it: `not-started`, `in-progress` or `failed`; ""
    if it is complete or does not exist.

    Signs of a reset: attached changes whenever the driver attaches to the card again. energy_mj counts from the moment
    when the driver initialized the card. persistent: the driver keeps an unused card initialized.

    instances: the MIG instances that exist now.
    """

    used_mib: int
    processes: tuple[Process, ...] = ()
    utilisation: int | None = None
    temperature_c: int | None = None
    power_w: float | None = None
    remap_pending: bool | None = False
    uncorrected_ecc: int | None = None
    recovery: str | None = ""
    compute_mode: str = ""
    absent: tuple[str, ...] = ()
    fabric: str = ""
    attached: int | None = None
    energy_mj: int | None = None
    persistent: bool = False
    instances: tuple["InstanceReading", ...] = ()


@dataclass(frozen=True, slots=True)
class InstanceReading:
    """A MIG instance. reading: None if it cannot be read; only its memory and processes are not the whole card's."""

    card: DriverCard
    reading: CardReading | None


@dataclass(frozen=True, slots=True)
class Opened:
    """An opened driver. version: the driver's. count: number of cards that it counts, including unresponsive ones."""

    version: str
    count: int


def card_of(card: inventory.Card) -> DriverCard:
    """Convert a card of an inventory to a DriverCard, without a minor; whether it has limits is known from before."""
    return DriverCard(
        index=card.index,
        uuid=card.uuid,
        model=card.model,
        memory_mib=card.memory_mib,
        pci=card.pci,
        numa=card.numa,
        links=card.links,
        mig=card.reason == MIG,
        limits=card.isolation == isolation.DRIVER,
        parent=card.parent,
    )


CardKey: TypeAlias = int | str
"""How a card is first asked for: its index, its PCI address, or its UUID. A PCI address touches no other card."""


class CardSource(Protocol):
    """A driver that several threads query at once. Each method blocks until the driver answers.

    Every method raises only SourceFailed, and touches only the cards that it is called for.
    """

    def open(self) -> Opened:
        """Open the driver. Call once, before any other method. Raises NotOpened."""
        ...

    def describe(self, key: CardKey) -> DriverCard:
        """Return the card with its instances, without its links; from now on it is known by its UUID."""
        ...

    def links(self, uuids: Sequence[str]) -> dict[str, dict[str, str]]:
        """Return UUID -> index of another of these cards -> kind of link. All of them have been described."""
        ...

    def read(self, uuid: str) -> CardReading:
        """Return the current reading of a card that has been described."""
        ...

    def memory_limits(self, uuid: str, cgroups: Sequence[str]) -> dict[str, MemoryLimits]:
        """Return cgroup -> its limits on a described card, for each of these cgroups that exists and has limits.

        cgroups: absolute paths of directories of the cgroup v2 hierarchy.
        """
        ...

    def set_compute_mode(self, uuid: str, mode: str) -> None:
        """Set the mode of a described card, until the driver releases the card. mode: as in `CardReading`."""
        ...

    def wait(self, uuid: str, timeout_s: float) -> tuple[Xid, ...] | None:
        """Return the card's next errors as soon as they occur; empty after the timeout; None if unsupported."""
        ...


class Driver(Protocol):
    """A driver as the event loop queries it: no call takes longer than a few seconds, whatever the driver does."""

    def remember(self, cards: Iterable[DriverCard]) -> None:
        """Start with these cards, which are known from an earlier run."""
        ...

    async def cards(self) -> DriverCards:
        """Return every card, described again. Raises SourceFailed."""
        ...

    def grown(self) -> bool:
        """Return whether there may be a card or instance that `cards` has not named."""
        ...

    async def readings(self, uuids: Iterable[str]) -> dict[str, CardReading | SourceFailed]:
        """Return a reading or error per whole card: NoAnswer and CardFailed concern it alone, others the driver.

        The answers of a card's instances are added; those that no longer exist are left out.
        """
        ...

    async def events(self) -> Sequence[Xid]:
        """Wait for the next errors that cards report, and return them."""
        ...

    async def memory_limits(self, uuid: str, cgroups: Sequence[str]) -> dict[str, MemoryLimits]:
        """Return the limits as `CardSource` does, even during a reading of the card. Raises SourceFailed."""
        ...

    async def set_compute_mode(self, uuid: str, mode: str) -> None:
        """Set the mode as `CardSource` does. Raises SourceFailed."""
        ...

    @property
    def tries_cuda(self) -> bool:
        """Whether `cuda` can show anything about a card."""
        ...

    async def cuda(self, uuid: str) -> CudaAnswer:
        """Try CUDA on this card. Raises NoAnswer if it was not tried."""
        ...

    async def release(self, uuids: frozenset[str]) -> None:
        """Stop touching exactly these cards; return when no process of ours holds them.

        Raises SourceFailed if one still does; the cards remain untouched even then.
        """
        ...

    def problems(self) -> tuple[str, ...]:
        """Return messages for operators, in addition to failed calls."""
        ...

    async def close(self) -> None:
        """Release everything."""
        ...
