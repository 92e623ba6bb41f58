"""A driver of simulated cards: the cards that a cluster file lists for this node, with its timed faults.

Made for people without GPUs, and for tests. `fault_control` injects more faults while it runs.
"""

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final, TypeAlias

from config.clusterfile import reading as clusterfile_reading
from config.clusterfile.model import ClusterFile, DescribedFault
from config.protocol import inventory, names
from deviceplugin.driver.cards import (
    CardFailed,
    CardKey,
    CardReading,
    DriverCard,
    MemoryLimits,
    Opened,
    Process,
    SourceFailed,
    Xid,
    card_of,
)

DRIVER: Final = "simulated"
_TEMPERATURE_C: Final = 40
_POWER_W: Final = 60.0


class SimulationError(ValueError):
    """The cluster file has no cards for this node, or a fault for a missing card; the message says which."""


class FaultError(ValueError):
    """A fault that cannot happen here; the message says why."""


@dataclass(frozen=True, slots=True)
class XidFault:
    """A card reports an XID. card: index or UUID, as in the other faults."""

    card: str
    number: int


@dataclass(frozen=True, slots=True)
class LostFault:
    """The card stops answering. card: "" for every card."""

    card: str


@dataclass(frozen=True, slots=True)
class BackFault:
    """The card answers again, or has been reset. card: "" for every card."""

    card: str


@dataclass(frozen=True, slots=True)
class ResetFault:
    """An operator resets the card; rejected, as by a real driver, while a process holds the card."""

    card: str


@dataclass(frozen=True, slots=True)
class HangFault:
    """Calls about this card hang from now on, until a later fault sets `hang` to False."""

    card: str
    hang: bool


@dataclass(frozen=True, slots=True)
class DieFault:
    """The process that queries the driver dies."""


@dataclass(frozen=True, slots=True)
class UseFault:
    """From now on, process `pid` holds this many MiB of the card; 0 if it has released the card."""

    card: str
    pid: int
    mib: int


@dataclass(frozen=True, slots=True)
class LimitFault:
    """From now on, a cgroup has these limits on the card; None: none. Only for a card with `limits`."""

    card: str
    cgroup: str
    limits: MemoryLimits | None


@dataclass(frozen=True, slots=True)
class ReadingFault:
    """From now on, these fields of the card's `CardReading` have these values."""

    card: str
    fields: Mapping[str, object]


@dataclass(frozen=True, slots=True)
class DriverFault:
    """From now on, every call takes `slow_s` longer, hangs until the next such fault, or fails."""

    slow_s: float = 0.0
    hang: bool = False
    fail: bool = False


Fault: TypeAlias = (
    XidFault
    | LostFault
    | BackFault
    | ResetFault
    | HangFault
    | UseFault
    | LimitFault
    | ReadingFault
    | DriverFault
    | DieFault
)

CardFault: TypeAlias = XidFault | LostFault | BackFault | ResetFault | HangFault | UseFault | LimitFault | ReadingFault


@dataclass(frozen=True, slots=True)
class TimedFault:
    """A fault at a set time. at_s: seconds from the start."""

    at_s: float
    fault: Fault


def read_simulation(path: Path, node: str) -> tuple[tuple[DriverCard, ...], tuple[TimedFault, ...]]:
    """Read the file's cards and faults for the node; UUIDs equal those of the scheduler's simulator.

    Raises ConfigurationError for a file with mistakes. Raises SimulationError if the file has no cards for this node,
    and for cards and faults that only a node annotation shows to be wrong.
    """
    cluster = clusterfile_reading.read(path)
    metadata: list[Any] = [manifest["metadata"] for manifest in clusterfile_reading.node_manifests(cluster, unit_mib=1)]
    found = {said["name"]: said["annotations"].get(names.INVENTORY) for said in metadata}
    text = found.get(node)
    if text is None:
        there = ", ".join(sorted(name for name, text in found.items() if text)) or "none"
        raise SimulationError(f"{path}: there is no node {node} with cards; nodes with cards: {there}")
    try:
        cards = tuple(card_of(card) for card in inventory.decode(text).cards)
        return cards, tuple(_timeline(cluster, node, cards))
    except (inventory.InventoryError, FaultError) as error:
        raise SimulationError(f"{path}: node {node}: {error}") from error


@dataclass(slots=True)
class _State:
    """Current state of one card.

    reset_s: time of the last reset, 0 if never; its clock, like a real card, is not affected by a restart of this
    process. xids: not yet reported.
    """

    lost: bool = False
    hangs: bool = False
    reset_s: float = 0.0
    uses: dict[int, int] = field(default_factory=dict)
    limits: dict[str, MemoryLimits | None] = field(default_factory=dict)
    fields: dict[str, object] = field(default_factory=dict)
    xids: list[Xid] = field(default_factory=list)


class SimulatedDriver:
    """The cards and their faults; `SimulatedSession` is a process's view of them.

    `happen` may be called from any thread. It never blocks.
    """

    def __init__(
        self, cards: Sequence[DriverCard], faults: Sequence[TimedFault], now_s: Callable[[], float] = time.monotonic
    ) -> None:
        """faults: their times count from now. now_s: seconds from any origin."""
        self.listed = tuple(cards)
        self.moved = threading.Condition()
        self.now_s = now_s
        self.fault = DriverFault()
        began_s = now_s()
        self.states = {card.uuid: _State() for card in cards}
        self._due = sorted((replace(one, at_s=began_s + one.at_s) for one in faults), key=lambda one: one.at_s)
        self._sessions: list[SimulatedSession] = []

    def opened(self) -> "SimulatedSession":
        """Return a session for one process."""
        session = SimulatedSession(self)
        self._sessions = [one for one in self._sessions if not one.over] + [session]
        return session

    def happen(self, fault: Fault) -> None:
        """Inject this fault now. Raises FaultError."""
        if isinstance(fault, DieFault):
            for session in self._sessions:
                session.end()
            return
        with self.moved:
            self._take(fault)
            self.moved.notify_all()

    def let_happen_what_is_due(self) -> float | None:
        """Inject the faults that are due. Return when the next one is due, or None. The caller holds the lock."""
        while self._due and self._due[0].at_s <= self.now_s():
            self._take(self._due.pop(0).fault)
        return self._due[0].at_s if self._due else None

    def _take(self, fault: Fault) -> None:
        if isinstance(fault, DriverFault):
            self.fault = fault
        elif not isinstance(fault, DieFault):
            for uuid in _named(self.listed, fault.card):
                self._befall(self.states[uuid], uuid, fault)

    def _befall(self, state: _State, uuid: str, fault: CardFault) -> None:
        match fault:
            case LostFault():
                state.lost = True
            case BackFault():
                self._reset(state)
            case ResetFault():
                if holders := [session for session in self._sessions if uuid in session.holds and not session.over]:
                    message = f"card {uuid} cannot be reset: {len(holders)} process of the device plugin holds it"
                    raise FaultError(message)
                self._reset(state)
            case HangFault(hang=hang):
                state.hangs = hang
            case XidFault(number=number) if not state.lost:
                state.xids.append(Xid(uuid, number))
            case UseFault(pid=pid, mib=mib):
                state.uses = {p: used for p, used in (state.uses | {pid: mib}).items() if used}
            case LimitFault(cgroup=cgroup, limits=limits):
                state.limits = {**state.limits, cgroup: limits}
            case ReadingFault(fields=fields):
                state.fields |= fields

    def _reset(self, state: _State) -> None:
        state.lost, state.reset_s = False, self.now_s()


class SimulatedSession:
    """`process.Session` of simulated cards. Its calls block, as a driver's do."""

    def __init__(self, driver: SimulatedDriver) -> None:
        self.holds: set[str] = set()
        self.over = False
        self._driver = driver
        self._callbacks: list[Callable[[], None]] = []

    def open(self) -> Opened:
        """Return the driver's version and number of cards."""
        with self._driver.moved:
            self._answer()
            return Opened(DRIVER, len(self._driver.listed))

    def describe(self, key: CardKey) -> DriverCard:
        """Return the card, without its links; fails for a lost card."""
        with self._driver.moved:
            card = next((card for card in self._driver.listed if key in {card.index, card.pci, card.uuid}), None)
            if card is None:
                raise CardFailed(f"there is no simulated card {key}", lost=True)
            self.holds.add(card.uuid)
            self._state(card.uuid)
            return replace(card, links={})

    def links(self, uuids: Sequence[str]) -> dict[str, dict[str, str]]:
        there = [card for card in self._driver.listed if card.uuid in uuids]
        indexes = {str(card.index) for card in there}
        return {card.uuid: {to: kind for to, kind in card.links.items() if to in indexes} for card in there}

    def read(self, uuid: str) -> CardReading:
        """Return the card's current reading."""
        with self._driver.moved:
            state = self._state(uuid)
            well = CardReading(
                used_mib=sum(state.uses.values()),
                processes=tuple(Process(pid, mib) for pid, mib in sorted(state.uses.items())),
                utilisation=0,
                temperature_c=_TEMPERATURE_C,
                power_w=_POWER_W,
                uncorrected_ecc=0,
                attached=0,
                energy_mj=round((self._driver.now_s() - state.reset_s) * _POWER_W * 1000),
                persistent=True,
            )
            return replace(well, **state.fields)  # type: ignore[arg-type]

    def memory_limits(self, uuid: str, cgroups: Sequence[str]) -> dict[str, MemoryLimits]:
        with self._driver.moved:
            limits = self._state(uuid).limits
            return {cgroup: found for cgroup in cgroups if (found := limits.get(cgroup)) is not None}

    def set_compute_mode(self, uuid: str, mode: str) -> None:
        """Set the mode in the card's readings."""
        with self._driver.moved:
            self._state(uuid).fields["compute_mode"] = mode

    def wait(self, uuid: str, timeout_s: float) -> tuple[Xid, ...]:
        """Return the card's next errors; errors without a listener are kept."""
        driver = self._driver
        until_s = driver.now_s() + timeout_s
        with driver.moved:
            self._answer()
            xids = driver.states[uuid].xids
            while not xids and not self.over and driver.now_s() < until_s:
                next_s = driver.let_happen_what_is_due()
                driver.moved.wait(max(0.0, min(until_s, next_s or until_s) - driver.now_s()))
            heard = tuple(xids)
            xids.clear()
            return heard

    def end(self) -> None:
        """End the session: release cards, and make pending calls return."""
        with self._driver.moved:
            self.over = True
            self._driver.moved.notify_all()
        for callback in self._callbacks:
            callback()

    def on_end(self, callback: Callable[[], None]) -> None:
        """Register a callback for the end of the session; it may be called from any thread."""
        self._callbacks.append(callback)

    def _state(self, uuid: str) -> _State:
        """Return the card's state once the card answers. The caller holds the lock. Raises CardFailed."""
        self._answer()
        state = self._driver.states[uuid]
        while state.hangs and not self.over:
            self._driver.moved.wait()
        if state.lost:
            raise CardFailed(f"simulated card {uuid} does not answer", lost=True)
        return state

    def _answer(self) -> None:
        """Inject due faults, then be slow, hang or fail if the driver does. The caller holds the lock."""
        driver = self._driver
        driver.let_happen_what_is_due()
        slow_until_s = driver.now_s() + driver.fault.slow_s
        while not self.over and (driver.fault.hang or driver.now_s() < slow_until_s):
            driver.moved.wait(None if driver.fault.hang else slow_until_s - driver.now_s())
        if driver.fault.fail or self.over:
            message = "the simulated driver's process has ended" if self.over else "the simulated driver is failing"
            raise SourceFailed(message)


def _named(cards: Sequence[DriverCard], name: str) -> list[str]:
    """Return the UUIDs of the cards that `name` means. Raises FaultError if there are none."""
    found = [card.uuid for card in cards if name in {"", str(card.index), card.uuid}]
    if not found:
        there = ", ".join(f"{card.index} ({card.uuid})" for card in cards)
        raise FaultError(f"there is no card {name}; cards: {there or 'none'}")
    return found


def _timeline(cluster: ClusterFile, node: str, cards: Sequence[DriverCard]) -> list[TimedFault]:
    return [TimedFault(fault.at_s, _fault(fault, cards)) for fault in cluster.faults if fault.node == node]


def _fault(fault: DescribedFault, cards: Sequence[DriverCard]) -> Fault:
    card = "" if fault.card is None else str(fault.card)
    # Reading the file did not check cards that an annotation describes.
    _named(cards, card)
    if fault.xid is not None:
        return XidFault(card, fault.xid)
    return LostFault(card) if fault.lost else BackFault(card)
