"""This scheduler's count of pods that other schedulers bound: `kubectl gpushare adopt --check`. Pure.

Nothing is counted here: the tables hold each pod's units, as `config.protocol.booked_cards` reads them. Blockers are in
`scheduler.tools.adoption.adoption_checks`.
"""

from collections import Counter
from typing import Final

from scheduler.state.cards.node_inventory import GpuState
from scheduler.state.pod_record import PodRecord
from scheduler.state.tables import Tables
from scheduler.tools.adoption.adoption_checks import (
    AdoptionBlocker,
    BoundBy,
    blockers,
    bound_by,
    has_inventory,
    of_nodes,
    of_pods,
    waiting,
)
from scheduler.tools.explain.answers import Answer
from scheduler.tools.explain.audit import holding, of_node, without_node
from scheduler.tools.explain.findings import ClusterFinding, Findings, Severity
from scheduler.tools.explain.reading import ClusterSnapshot

_BY: Final = {BoundBy.SCHEDULER: "this scheduler", BoundBy.EXTENDER: "the extender", BoundBy.NOBODY: "nobody"}


class CountedUnits(Answer, frozen=True):
    """Units of a pod on a card, in the node's unit."""

    index: int
    units: int


class AdoptedPod(Answer, frozen=True):
    """A pod with a node. units: its request, in its own unit. known: whether its cards are known.

    cards: where it counts; every card of the node if unknown. problems: its failed checks.
    """

    pod: str
    by: BoundBy
    units: int
    known: bool
    terminating: bool
    cards: tuple[CountedUnits, ...]
    problems: tuple[str, ...]


class AdoptedCard(Answer, frozen=True):
    """uuid: "" where the node announces none. units: that it has. counted: that pods hold of it."""

    index: int
    uuid: str
    units: int
    counted: int


class AdoptedNode(Answer, frozen=True):
    """inventory: whether our device plugin has announced the cards. pods: by name."""

    node: str
    inventory: bool
    cards: tuple[AdoptedCard, ...]
    pods: tuple[AdoptedPod, ...]


class Adoption(Findings, frozen=True):
    """nodes: with GPU memory, or with pods that hold some, by name."""

    nodes: tuple[AdoptedNode, ...]


def adoption(reading: ClusterSnapshot, unread: tuple[str, ...] = ()) -> Adoption:
    """Adoption of every node and pod. unread: objects that could not be read, a line each."""
    tables, nodes, blocked = reading.engine.tables, list[AdoptedNode](), list[AdoptionBlocker]()
    found = [ClusterFinding(check="object", severity=Severity.WARNING, message=line) for line in unread]
    for name in sorted(tables.row_of):
        records = sorted(holding(tables.records_on(name)), key=lambda record: str(record.pod.key))
        if tables.inventory(name).state is GpuState.NO_CARDS and not records:
            continue
        of_its_pods = {record.pod.key.uid: list(blockers(reading, record)) for record in records}
        blocked += [one for each in of_its_pods.values() for one in each]
        nodes.append(_node(tables, name, records, of_its_pods))
        audited = reading.engine.audit_node(name)
        found += of_node(tables, audited) if audited is not None else ()
    homeless = without_node(tables)
    blocked += [one for record in homeless for one in blockers(reading, record)]
    found += of_nodes(reading, [node.node for node in nodes])
    found += of_pods(reading, (*blocked, *waiting(reading)))
    return Adoption(looked_at=_looked_at(nodes, len(homeless)), findings=tuple(found), nodes=tuple(nodes))


def _node(
    tables: Tables, name: str, records: list[PodRecord], blocked: dict[str, list[AdoptionBlocker]]
) -> AdoptedNode:
    announced, row = tables.inventory(name), tables.row_of[name]
    cards = tuple(
        AdoptedCard(
            index=slot.card.index,
            uuid=slot.card.uuid if announced.has_uuids else "",
            units=slot.card.units,
            counted=int(tables.cards.stored.taken[number, row]),
        )
        for number, slot in enumerate(tables.cards.slots[row])
    )
    return AdoptedNode(
        node=name,
        inventory=has_inventory(tables, name),
        cards=cards,
        pods=tuple(_pod(record, cards, blocked[record.pod.key.uid]) for record in records),
    )


def _pod(record: PodRecord, cards: tuple[AdoptedCard, ...], blocked: list[AdoptionBlocker]) -> AdoptedPod:
    held = record.held
    places = () if held is None else held.places
    return AdoptedPod(
        pod=str(record.pod.key),
        by=bound_by(record.pod),
        units=record.written.units,
        known=held is not None and not held.unknown,
        terminating=record.pod.terminating,
        cards=tuple(CountedUnits(index=cards[slot].index, units=units) for slot, units in places),
        problems=tuple(one.check for one in blocked),
    )


def _looked_at(nodes: list[AdoptedNode], homeless: int) -> str:
    by = Counter(pod.by for node in nodes for pod in node.pods)
    total = sum(by.values()) + homeless
    told = ", ".join(f"{words}: {by[one]}" for one, words in _BY.items())
    return f"Nodes with GPU memory: {len(nodes)}, pods with GPU memory: {total}; cards chosen by {told}"
