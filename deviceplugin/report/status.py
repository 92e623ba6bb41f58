"""The `/status` document, which `gpushare-device-plugin status` prints. Pure.

It shows nothing that must be hidden from users who may see the node's pods, but it is served only on the node itself.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import msgspec

from config.protocol import inventory
from config.protocol.inventory import Health
from config.protocol.isolation import worded
from deviceplugin.driver.cards import CardReading, DriverCard
from scheduler.process.terminal import columns, one_line

_NOTHING: Final = "-"


class CardStatus(msgspec.Struct, frozen=True, rename="camel"):
    """One card. units: announced. used_mib: None if the driver does not report it. health, reason: as announced.

    absent: optional facts that the driver fails to report, each `name: why`. isolation: as in the inventory.
    """

    index: int
    uuid: str
    model: str
    memory_mib: int = msgspec.field(name="memoryMiB")
    units: int
    allocated_units: int
    health: str
    used_mib: int | None = msgspec.field(default=None, name="usedMiB")
    reason: str = ""
    absent: tuple[str, ...] = ()
    isolation: str = ""


class AllocationStatus(msgspec.Struct, frozen=True, rename="camel"):
    """One container with cards. units: card UUID -> units there. isolation: what enforces them, as in the inventory.

    used_mib: on all of them; None if unknown. exact: it is the driver's own count, for a container that it limits.
    """

    namespace: str
    pod: str
    container: str
    units: dict[str, int]
    used_mib: int | None = msgspec.field(default=None, name="usedMiB")
    isolation: str = ""
    exact: bool = False


class DriftStatus(msgspec.Struct, frozen=True, rename="camel"):
    """A difference from the scheduler's decision. actions: what follows, such as `event`."""

    kind: str
    message: str
    actions: tuple[str, ...] = ()


class DevicePluginStatus(msgspec.Struct, frozen=True, rename="camel"):
    """The state of the plugin and its node.

    mode: the chosen one, `cdi` or `environment`. registered: with the kubelet.
    announced_units: healthy devices listed for the kubelet. on_node: the node object is up to date. problems: messages,
    such as that the driver does not answer. toolkit_missing: cards cannot be injected into containers; a problem says
    why. nvidia_runtime: that runtime runs the plugin's container. runtime_class: the plugin pod's, "" if unset.
    isolation: the node's kind, such as `driver`, `none`, or a path; "" while undecided.
    """

    node: str
    mode: str
    driver: str
    unit_mib: int = msgspec.field(name="unitMiB")
    announced_units: int
    registered: bool
    on_node: bool = True
    simulated: bool = False
    toolkit_missing: bool = False
    nvidia_runtime: bool = False
    runtime_class: str = ""
    isolation: str = ""
    problems: tuple[str, ...] = ()
    cards: tuple[CardStatus, ...] = ()
    containers: tuple[AllocationStatus, ...] = ()
    drift: tuple[DriftStatus, ...] = ()


def encode(status: DevicePluginStatus) -> bytes:
    """Return the document as JSON."""
    return msgspec.json.encode(status)


def decode(text: bytes) -> DevicePluginStatus:
    """Read the document. Raises msgspec.DecodeError, UnicodeError or RecursionError for anything else."""
    return msgspec.json.decode(text, type=DevicePluginStatus)


def as_text(status: DevicePluginStatus) -> str:
    """Return the document as readable text, which ends with a line break."""
    parts = [
        "\n".join(map(one_line, _head(status))),
        _table(
            ("CARD", "UUID", "MODEL", "HEALTH", "UNITS", "ALLOCATED", "USED MiB", "OF MiB", "ISOLATION"),
            _card_rows(status),
        ),
        _table(("NAMESPACE", "POD", "CONTAINER", "CARD: UNITS", "USED MiB", "ISOLATION"), _container_rows(status)),
        "\n".join(map(one_line, _drift_lines(status))),
    ]
    return "\n\n".join(part for part in parts if part) + "\n"


def _head(status: DevicePluginStatus) -> Iterator[str]:
    cards = "simulated cards" if status.simulated else f"driver {status.driver or 'unknown'}"
    isolation = status.isolation or "undecided"
    yield f"Node {status.node}: {cards}, mode {status.mode}, isolation {isolation}, unit {status.unit_mib} MiB"
    registered = "registered with the kubelet" if status.registered else "NOT registered with the kubelet"
    if not status.simulated:
        by = f" through runtimeClassName {status.runtime_class}" if status.runtime_class else ""
        yield f"NVIDIA runtime: {f'runs this pod{by}' if status.nvidia_runtime else 'does not run this pod'}"
    yield f"{status.announced_units} units listed for the kubelet, {registered}"
    if not status.on_node:
        yield "The node object is NOT up to date"
    if status.toolkit_missing:
        yield "Containers cannot get their cards: see the problems"
    for problem in status.problems:
        yield f"Problem: {problem}"
    for card in status.cards:
        if card.absent:
            yield f"Card {card.index}: the driver does not report: {'; '.join(card.absent)}"


def _card_rows(status: DevicePluginStatus) -> list[tuple[str, ...]]:
    return [
        (
            str(card.index),
            card.uuid,
            card.model or _NOTHING,
            f"{card.health}: {card.reason}" if card.reason else card.health,
            str(card.units),
            str(card.allocated_units),
            _number(card.used_mib),
            str(card.memory_mib),
            worded(card.isolation),
        )
        for card in sorted(status.cards, key=lambda card: card.index)
    ]


def _container_rows(status: DevicePluginStatus) -> list[tuple[str, ...]]:
    index_of = {card.uuid: str(card.index) for card in status.cards}
    return [
        (
            one.namespace,
            one.pod,
            one.container,
            ", ".join(f"{index_of.get(uuid, uuid)}: {units}" for uuid, units in one.units.items()) or _NOTHING,
            f"{one.used_mib} exact" if one.exact else _number(one.used_mib),
            worded(one.isolation),
        )
        for one in sorted(status.containers, key=lambda one: (one.namespace, one.pod, one.container))
    ]


def _drift_lines(status: DevicePluginStatus) -> Iterator[str]:
    yield f"Drift: {len(status.drift) or 'none'}"
    for drift in status.drift:
        follows = f" ({', '.join(drift.actions)})" if drift.actions else ""
        yield f"  {drift.kind}: {drift.message}{follows}"


def _number(value: int | None) -> str:
    return _NOTHING if value is None else str(value)


def _table(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Return a table with columns as wide as their widest cell; "" if there are no rows."""
    if not rows:
        return ""
    return "\n".join(columns(heads, [[one_line(cell) for cell in row] for row in rows]))


@dataclass(frozen=True, slots=True)
class ShownCard:
    """A card's current state. units: announced; allocated_units: decided for live pods. reading: None while unknown.

    isolation: as in the inventory.
    """

    card: DriverCard
    units: int
    allocated_units: int
    health: Health
    reading: CardReading | None = None
    isolation: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ShownContainer:
    """A container on one card; a container with several cards has several of these. used_mib: None if unknown.

    exact: `used_mib` is the driver's own count.
    """

    card: DriverCard
    namespace: str
    pod: str
    container: str
    requested_units: int
    used_mib: int | None = None
    exact: bool = False


def card_statuses(
    cards: Sequence[inventory.Card],
    allocated: Mapping[str, int],
    readings: Mapping[str, CardReading],
    absent: Mapping[str, tuple[str, ...]],
) -> tuple[CardStatus, ...]:
    """Return one status for each card. allocated, readings, absent: by UUID."""
    return tuple(
        CardStatus(
            index=card.index,
            uuid=card.uuid,
            model=card.model,
            memory_mib=card.memory_mib,
            units=card.units,
            allocated_units=allocated.get(card.uuid, 0),
            health=card.health.value,
            used_mib=readings[card.uuid].used_mib if card.uuid in readings else None,
            reason=card.reason,
            absent=absent.get(card.uuid, ()),
            isolation=card.isolation,
        )
        for card in cards
    )


def shown_cards(
    found: Sequence[DriverCard],
    cards: Sequence[inventory.Card],
    allocated: Mapping[str, int],
    readings: Mapping[str, CardReading],
) -> list[ShownCard]:
    """Return one entry for each announced card."""
    by_uuid = {card.uuid: card for card in found}
    return [
        ShownCard(
            by_uuid[card.uuid],
            card.units,
            allocated.get(card.uuid, 0),
            card.health,
            readings.get(card.uuid),
            card.isolation,
        )
        for card in cards
        if card.uuid in by_uuid
    ]
