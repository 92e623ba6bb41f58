"""A driver of cards that are not there: those that a cluster file has for this node, with its faults in their time.

For people without GPUs, and for tests. More can be injected while it runs: `fault_control`.
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
    Back,
    CardEvent,
    DriverCard,
    DriverCards,
    Lost,
    Process,
    Reading,
    SourceFailed,
    Xid,
)

DRIVER: Final = "simulated"
_TEMPERATURE_C: Final = 40
_POWER_W: Final = 60.0


class SimulationError(ValueError):
    """The cluster file has no cards for this node, or a fault of a card that it lacks; the message says which."""


class FaultError(ValueError):
    """A fault that cannot happen here; the message says why."""


@dataclass(frozen=True, slots=True)
class XidFault:
    """card: index or UUID, here and below."""

    card: str
    number: int


@dataclass(frozen=True, slots=True)
class LostFault:
    """The card stops answering; "" for every card."""

    card: str


@dataclass(frozen=True, slots=True)
class BackFault:
    """The card answers again, or has been reset; "" for every card."""

    card: str


@dataclass(frozen=True, slots=True)
class UseFault:
    """From now on process `pid` holds so many MiB of the card; 0: it has let go of it."""

    card: str
    pid: int
    mib: int


@dataclass(frozen=True, slots=True)
class ReadingFault:
    """From now on these fields of the card's `Reading` have these values."""

    card: str
    fields: Mapping[str, object]


@dataclass(frozen=True, slots=True)
class DriverFault:
    """From now on every call takes `slow_s` longer, hangs until the next such fault, or fails."""

    slow_s: float = 0.0
    hang: bool = False
    fail: bool = False


Fault: TypeAlias = XidFault | LostFault | BackFault | UseFault | ReadingFault | DriverFault


@dataclass(frozen=True, slots=True)
class TimedFault:
    """at_s: seconds from the start."""

    at_s: float
    fault: Fault


def read_simulation(path: Path, node: str) -> tuple[tuple[DriverCard, ...], tuple[TimedFault, ...]]:
    """The cards and the faults that the file has for the node; UUIDs are those that the scheduler's simulator has.

    Raises ConfigurationError for a file with mistakes, SimulationError for one without cards for this node, and for
    cards and faults that only an annotation of the node shows to be wrong.
    """
    cluster = clusterfile_reading.read(path)
    metadata: list[Any] = [manifest["metadata"] for manifest in clusterfile_reading.node_manifests(cluster, unit_mib=1)]
    found = {said["name"]: said["annotations"].get(names.INVENTORY) for said in metadata}
    text = found.get(node)
    if text is None:
        there = ", ".join(sorted(name for name, text in found.items() if text)) or "none"
        message = f"{path}: there is no node {node} with cards; nodes with cards: {there}"
        raise SimulationError(message)
    try:
        cards = tuple(_card(card) for card in inventory.decode(text).cards)
        return cards, tuple(_timeline(cluster, node, cards))
    except (inventory.InventoryError, FaultError) as error:
        message = f"{path}: node {node}: {error}"
        raise SimulationError(message) from error


@dataclass(slots=True)
class _State:
    """What is so now, of one card."""

    lost: bool = False
    uses: dict[int, int] = field(default_factory=dict)
    fields: dict[str, object] = field(default_factory=dict)


class SimulatedSource:
    """`cards.CardSource`. `happen` may be called from any thread; everything else blocks, as a driver does."""

    def __init__(
        self, cards: Sequence[DriverCard], faults: Sequence[TimedFault], now_s: Callable[[], float] = time.monotonic
    ) -> None:
        """faults: their time counts from now. now_s: seconds from any beginning."""
        self._cards = tuple(cards)
        self._states = {card.uuid: _State() for card in cards}
        began_s = now_s()
        self._due = sorted((replace(one, at_s=began_s + one.at_s) for one in faults), key=lambda one: one.at_s)
        self._now_s = now_s
        self._driver = DriverFault()
        self._events: list[CardEvent] = []
        self._closed = False
        self._moved = threading.Condition()

    def cards(self) -> DriverCards:
        """As the port; a lost card is not named."""
        with self._moved:
            self._answer()
            return DriverCards(DRIVER, tuple(card for card in self._cards if not self._states[card.uuid].lost))

    def wait(self, timeout_s: float) -> Sequence[CardEvent]:
        """As the port."""
        until_s = self._now_s() + timeout_s
        with self._moved:
            self._answer()
            while not self._events and not self._closed and self._now_s() < until_s:
                next_s = min(until_s, self._due[0].at_s if self._due else until_s)
                self._moved.wait(max(0.0, next_s - self._now_s()))
                self._answer(begun=True)
            events, self._events = self._events, []
            return events

    def reading(self, uuid: str) -> Reading:
        """As the port."""
        with self._moved:
            self._answer()
            state = self._states.get(uuid)
            if state is None or state.lost:
                message = f"simulated card {uuid} does not answer"
                raise SourceFailed(message)
            processes = tuple(Process(pid, mib) for pid, mib in sorted(state.uses.items()))
            used = sum(state.uses.values())
            well = Reading(
                used_mib=used,
                processes=processes,
                utilisation=0,
                temperature_c=_TEMPERATURE_C,
                power_w=_POWER_W,
                uncorrected_ecc=0,
            )
            return replace(well, **state.fields)  # type: ignore[arg-type]

    def close(self) -> None:
        """As the port; calls that wait end."""
        with self._moved:
            self._closed = True
            self._moved.notify_all()

    def happen(self, fault: Fault) -> None:
        """Let this happen now. Raises FaultError."""
        with self._moved:
            self._take(fault)
            self._moved.notify_all()

    def _answer(self, *, begun: bool = False) -> None:
        """Let happen what is due, then be slow (once: not when `begun`), hung or broken as the driver is; lock held."""
        while self._due and self._due[0].at_s <= self._now_s():
            self._take(self._due.pop(0).fault)
        slow_until_s = self._now_s() + (0.0 if begun else self._driver.slow_s)
        while not self._closed and (self._driver.hang or self._now_s() < slow_until_s):
            self._moved.wait(None if self._driver.hang else slow_until_s - self._now_s())
        if self._driver.fail or self._closed:
            message = "the simulated driver is closed" if self._closed else "the simulated driver is failing"
            raise SourceFailed(message)

    def _take(self, fault: Fault) -> None:
        match fault:
            case DriverFault():
                self._driver = fault
            case LostFault(card) | BackFault(card):
                for uuid in _named(self._cards, card):
                    self._lose(uuid, lost=isinstance(fault, LostFault))
            case XidFault(card, number):
                self._events += [Xid(uuid, number) for uuid in _named(self._cards, card) if not self._states[uuid].lost]
            case UseFault(card, pid, mib):
                for uuid in _named(self._cards, card):
                    self._states[uuid].uses |= {pid: mib}
                    self._states[uuid].uses = {p: used for p, used in self._states[uuid].uses.items() if used}
            case ReadingFault(card, fields):
                for uuid in _named(self._cards, card):
                    self._states[uuid].fields |= fields

    def _lose(self, uuid: str, *, lost: bool) -> None:
        # Back without having been lost: the card was reset.
        if not lost or not self._states[uuid].lost:
            self._events.append(Lost(uuid) if lost else Back(uuid))
        self._states[uuid].lost = lost


def _named(cards: Sequence[DriverCard], name: str) -> list[str]:
    """UUIDs. Raises FaultError when there are none."""
    found = [card.uuid for card in cards if name in {"", str(card.index), card.uuid}]
    if not found:
        there = ", ".join(f"{card.index} ({card.uuid})" for card in cards)
        message = f"there is no card {name}; cards: {there or 'none'}"
        raise FaultError(message)
    return found


def _card(card: inventory.Card) -> DriverCard:
    return DriverCard(
        index=card.index,
        uuid=card.uuid,
        model=card.model,
        memory_mib=card.memory_mib,
        pci=card.pci,
        numa=card.numa,
        links=card.links,
        mig=card.reason == "mig",
    )


def _timeline(cluster: ClusterFile, node: str, cards: Sequence[DriverCard]) -> list[TimedFault]:
    return [TimedFault(fault.at_s, _fault(fault, cards)) for fault in cluster.faults if fault.node == node]


def _fault(fault: DescribedFault, cards: Sequence[DriverCard]) -> Fault:
    card = "" if fault.card is None else str(fault.card)
    # Reading the file has not looked at cards that an annotation describes.
    _named(cards, card)
    if fault.xid is not None:
        return XidFault(card, fault.xid)
    return LostFault(card) if fault.lost else BackFault(card)
