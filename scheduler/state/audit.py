"""The ledger audit: compares the columns of one node at a time with its objects, as last seen.

The columns are updated incrementally; the audit recounts them from scratch. A difference is a bug in the scheduler. The
audit repairs it by reading the node again. It cannot repair over-commitment, which may come from a second scheduler, an
edited annotation, or a late bind request of a killed process.
"""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from scheduler.state.ledger import of_node, of_row
from scheduler.state.pod_record import PodRecord
from scheduler.state.tables import Tables

_MOST_NAMED: Final = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditRound:
    """Result of one round: nodes with wrong columns, over-committed cards, duplicate UUIDs."""

    nodes: int = 0
    differences: int = 0
    overcommitted: int = 0
    shared: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class OvercommittedCard:
    """A card with more units booked than it has. pods: the largest of its pods, as `namespace/name (units)`."""

    uuid: str
    units: int
    booked: int
    pods: tuple[str, ...]

    def __str__(self) -> str:
        return f"{self.without_pods}: {', '.join(self.pods)}"

    @property
    def without_pods(self) -> str:
        """Description of the card without its pods, for readers who are not allowed to see them."""
        return f"card {self.uuid} has {self.units} units, and {self.booked} are booked"


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeAudit:
    """Result for one node. uid: UID of the Node object. difference: the wrong values of the columns, "" for none.

    shared: maps each UUID of its cards that another node also announces to one such node.
    """

    node: str
    uid: str
    difference: str = ""
    overcommitted: tuple[OvercommittedCard, ...] = ()
    shared: Mapping[str, str]


def audit_node(tables: Tables, name: str) -> NodeAudit | None:
    """Recount one node and repair its columns if they differ. None if the node does not exist."""
    row = tables.row_of.get(name)
    if row is None:
        return None
    announced, records = tables.inventory(name), tables.records_on(name)
    live, nominated = [
        [(record.pod, record.written, record.exclusive) for record in records if record.nominated is nominated]
        for nominated in (False, True)
    ]
    expected = of_node(announced, live, nominated)
    found = of_row(tables, row)
    difference = ""
    if found != expected:
        difference = f"the columns hold {found}, but its pods add up to {expected}"
        # Everything is recomputed from the Node object and the pods, not from the columns.
        node = tables.node(name)
        tables.remove_node(name)
        tables.upsert_node(node)
    names = tables.names
    return NodeAudit(
        node=name,
        uid=tables.node(name).metadata.uid,
        difference=difference,
        overcommitted=_overcommitted({card.uuid: card.units for card in announced.cards}, records),
        shared={uuid: names[rows[0]] for uuid, rows in tables.cards.elsewhere(tables.row_of[name]).items()},
    )


def _overcommitted(units: Mapping[str, int], records: list[PodRecord]) -> tuple[OvercommittedCard, ...]:
    """Over-committed cards. Pods with unknown cards do not count: they are booked on more cards than they hold.

    Nominated pods do not count either: their victims may still hold the memory.
    """
    records = [record for record in records if not record.nominated]
    booked: Counter[str] = Counter()
    for record in records:
        if record.held is not None:
            for card in record.held.booked.cards:
                booked[card.uuid] += card.units
    return tuple(
        OvercommittedCard(uuid=uuid, units=units[uuid], booked=total, pods=_largest(uuid, records))
        for uuid, total in sorted(booked.items())
        if uuid in units and total > units[uuid]
    )


def _largest(uuid: str, records: list[PodRecord]) -> tuple[str, ...]:
    on_it = [
        (card.units, str(record.pod.key))
        for record in records
        if record.held is not None
        for card in record.held.booked.cards
        if card.uuid == uuid
    ]
    named = [f"{pod} ({units})" for units, pod in sorted(on_it, key=lambda one: (-one[0], one[1]))]
    more = len(named) - _MOST_NAMED
    return (*named[:_MOST_NAMED], *([f"and {more} more"] if more > 0 else []))
