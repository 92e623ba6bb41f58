"""The cards of a node, in one annotation: docs/develop/protocol.md, "Inventory".

The device plugin encodes, the scheduler decodes. A document that breaks a rule is rejected as a whole, because half an
inventory would offer memory that does not exist.
"""

import json
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Annotated, Final

import msgspec

from config.protocol import card_uuid

VERSION: Final = 1
_LARGEST_TEXT: Final = 262_144  # Kubernetes' own limit for all annotations of an object
MAX_CARDS: Final = 256
_LONGEST_KIND: Final = 63
# Of `Card.unenforced`; the rest is cut off.
LONGEST_REASON: Final = 160
# Cards cannot be injected into containers on this node.
NO_INJECTION: Final = "no-way-in"
MAX_UNITS: Final = 2**24
MAX_UNIT_MIB: Final = 2**30


class InventoryError(ValueError):
    """An invalid inventory; the message names the place and the expected form."""


class Health(StrEnum):
    """A card's health in the inventory. CORDONED counts as healthy: the cordon has its own annotation."""

    HEALTHY = "healthy"
    SUSPECT = "suspect"
    UNHEALTHY = "unhealthy"
    CORDONED = "cordoned"


_KNOWN_HEALTH: Final = frozenset(health.value for health in Health)


@dataclass(frozen=True, slots=True, kw_only=True)
class Card:
    """One card.

    memory_mib: memory that programs can use, in MiB; all memory of the card if the node counts reserved memory.
    units: whole memory units to allocate, >= 0.
    reason: one word for a health that is not healthy, such as `mig` or `xid-79`; "" otherwise.
    links: index of another card -> the kind of link, such as `NV12`.
    isolation: what enforces the share of memory on it: `driver`, `mps`, `hami-core` or `own`; "" if nothing does.
    unenforced: why nothing does; "" if something does, or if it is not known.
    compute: `mps` if programs share its processors through MPS; "" if they take turns.
    parent: UUID of the card that a MIG instance is a part of; "" for a whole card.
    """

    index: int
    uuid: str
    model: str
    memory_mib: int
    units: int
    health: Health = Health.HEALTHY
    reason: str = ""
    numa: int | None = None
    pci: str = ""
    links: dict[str, str] = field(default_factory=dict)
    isolation: str = ""
    unenforced: str = ""
    compute: str = ""
    parent: str = ""


@dataclass(frozen=True, slots=True)
class Inventory:
    """A node's cards, ordered by index; UUIDs and indexes are unique. unit_mib: MiB per memory unit.

    withheld: one-word reason why no new pod gets any of them, such as NO_INJECTION; "" otherwise.
    """

    unit_mib: int
    driver: str
    cards: tuple[Card, ...]
    withheld: str = ""


class _WireCard(msgspec.Struct, rename="camel", omit_defaults=True):
    index: Annotated[int, msgspec.Meta(ge=0, le=65535)]
    uuid: Annotated[str, msgspec.Meta(min_length=1, max_length=card_uuid.LONGEST)]
    units: Annotated[int, msgspec.Meta(ge=0, le=MAX_UNITS)]
    model: str = ""
    memory_mib: Annotated[int, msgspec.Meta(ge=0, le=2**40)] = msgspec.field(default=0, name="memoryMiB")
    health: str = "healthy"
    reason: str = ""
    numa: int | None = None
    pci: str = ""
    links: dict[str, str] = {}
    isolation: Annotated[str, msgspec.Meta(max_length=_LONGEST_KIND)] = ""
    unenforced: str = ""
    compute: Annotated[str, msgspec.Meta(max_length=_LONGEST_KIND)] = ""
    parent: Annotated[str, msgspec.Meta(max_length=card_uuid.LONGEST)] = ""


class _WireInventory(msgspec.Struct, rename="camel"):
    version: int
    unit_mib: Annotated[int, msgspec.Meta(ge=1, le=MAX_UNIT_MIB)] = msgspec.field(name="unitMiB")
    cards: Annotated[list[_WireCard], msgspec.Meta(max_length=MAX_CARDS)]
    driver: str = ""
    withheld: str = ""


class _WireVersion(msgspec.Struct):
    version: int


def nameless(index: int) -> str:
    """Return the stand-in UUID of a card on a node that announces only totals."""
    return f"#{index}"


def encode(inventory: Inventory) -> str:
    """Return the annotation's value."""
    cards = [
        _WireCard(
            index=card.index,
            uuid=card.uuid,
            units=card.units,
            model=card.model,
            memory_mib=card.memory_mib,
            health=card.health.value,
            reason=card.reason,
            numa=card.numa,
            pci=card.pci,
            links=card.links,
            isolation=card.isolation,
            unenforced=card.unenforced[:LONGEST_REASON],
            compute=card.compute,
            parent=card.parent,
        )
        for card in inventory.cards
    ]
    # `health` is always written, for readers of the annotation.
    documents = [msgspec.to_builtins(card) | {"health": card.health} for card in cards]
    whole: dict[str, object] = {"version": VERSION, "unitMiB": inventory.unit_mib, "driver": inventory.driver}
    if inventory.withheld:
        whole["withheld"] = inventory.withheld
    whole["cards"] = documents
    return json.dumps(whole, separators=(",", ":"))


def decode(text: str) -> Inventory:
    """Return the inventory in an annotation's value.

    An unknown health counts as suspect: a newer device plugin may write one for a card that is not fully healthy.
    Raises InventoryError if `text` is not JSON, has another version, or breaks a rule of the document.
    """
    if len(text) > _LARGEST_TEXT:
        raise InventoryError(f"inventory has {len(text)} characters; expected at most {_LARGEST_TEXT}")
    try:
        version = msgspec.json.decode(text, type=_WireVersion).version
        if version != VERSION:
            raise InventoryError(f"inventory version is {version}; expected {VERSION}")
        wire = msgspec.json.decode(text, type=_WireInventory)
    except (msgspec.DecodeError, UnicodeEncodeError, RecursionError) as error:
        raise InventoryError(f"inventory cannot be read: {error}") from error
    cards = tuple(sorted((_card(card) for card in wire.cards), key=lambda card: card.index))
    _refuse_twins("UUID", [card.uuid for card in cards])
    _refuse_twins("index", [str(card.index) for card in cards])
    return Inventory(unit_mib=wire.unit_mib, driver=wire.driver, cards=cards, withheld=wire.withheld)


def _card(wire: _WireCard) -> Card:
    if problem := card_uuid.objection(wire.uuid):
        raise InventoryError(f"inventory has an invalid UUID: card {wire.index}: {problem}")
    known = wire.health in _KNOWN_HEALTH
    return Card(
        index=wire.index,
        uuid=wire.uuid,
        model=wire.model,
        memory_mib=wire.memory_mib,
        units=wire.units,
        health=Health(wire.health) if known else Health.SUSPECT,
        reason=wire.reason if known else f"unknown-health-{wire.health[:32]}",
        numa=wire.numa,
        pci=wire.pci,
        links=wire.links,
        isolation=wire.isolation,
        unenforced=wire.unenforced[:LONGEST_REASON],
        compute=wire.compute,
        parent=wire.parent,
    )


def _refuse_twins(what: str, values: list[str]) -> None:
    seen: set[str] = set()
    for value in values:
        if value in seen:
            raise InventoryError(f"inventory lists card {what} {value} twice; expected each once")
        seen.add(value)
