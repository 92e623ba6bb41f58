"""The ledger audit: one node at a time, what the columns hold against what its objects say, as they were last seen.

The columns are kept by increments; here they are counted again from scratch. A difference is a bug of ours and is
repaired by reading the node again. What is over-committed is nobody's to repair, whoever did it: two schedulers, an
edited annotation, or a bind request of a killed process that took effect after it was waited for.
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
    """What one round has found: nodes whose columns were wrong, cards with more booked than they have, shared UUIDs."""

    nodes: int = 0
    differences: int = 0
    overcommitted: int = 0
    shared: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class OvercommittedCard:
    """More is booked on a card than it has. pods: the largest of those on it, as `namespace/name (units)`."""

    uuid: str
    units: int
    booked: int
    pods: tuple[str, ...]

    def __str__(self) -> str:
        return f"{self.without_pods}: {', '.join(self.pods)}"

    @property
    def without_pods(self) -> str:
        """The same for readers who may not see the pods."""
        return f"card {self.uuid} has {self.units} units, and {self.booked} are booked"


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeAudit:
    """What was found of one node. uid: the Node object's. difference: what the columns had wrong, "" when nothing.

    shared: UUIDs of its cards that other nodes announce too -> one of those nodes.
    """

    node: str
    uid: str
    difference: str = ""
    overcommitted: tuple[OvercommittedCard, ...] = ()
    shared: Mapping[str, str]


def audit_node(tables: Tables, name: str) -> NodeAudit | None:
    """Count one node again and repair its columns where they differ; None when it is not there."""
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
        difference = f"the columns hold {found}, its pods make {expected}"
        # Everything of the node is worked out from its object and its pods, whatever the columns hold.
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
    """By what pods are known to hold: one whose card is not known counts on each, and is on one at most.

    What is kept for a nominated pod may still be held by those that have to go.
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
