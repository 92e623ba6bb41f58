"""The ledger worked out from scratch: what is booked where, as a function of nodes and live pods.

Pure and slow on purpose: no columns, no increments. It is what the tests hold the tables against.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from config.protocol.inventory import Card, Health, nameless
from scheduler.kube.objects import Node
from scheduler.pods.effective_requests import PODS, Amounts
from scheduler.pods.gpu_request import ResourceNames
from scheduler.pods.pod import Pod
from scheduler.state.booking import Booking, CardShare, booking_of
from scheduler.state.cards import MOST_UNITS
from scheduler.state.node_inventory import NodeInventory, read_inventory
from scheduler.state.tables import Tables


@dataclass(slots=True)
class NodeLedger:
    """One node. free: card UUID -> units left, negative when over-committed; lost cards among them.

    holders: card UUID -> live pods on it. counted: asks that the kubelet's total still covers.
    requested: every other resource, zero amounts left out.
    """

    free: dict[str, int] = field(default_factory=dict)
    holders: dict[str, int] = field(default_factory=dict)
    exclusive: dict[str, int] = field(default_factory=dict)
    counted: int = 0
    requested: Amounts = field(default_factory=dict)


def recompute(
    nodes: Iterable[Node],
    pods: Iterable[tuple[Pod, str, Booking | None]],
    resources: ResourceNames,
    memory_unit_mib: int = 1024,
) -> dict[str, NodeLedger]:
    """Node name -> what its live pods leave of it.

    pods: (pod, node, booking); the booking is None where the pod's annotations say it (every bound pod), and what was
    assumed for the others.
    """
    announced = {node.metadata.name: read_inventory(node, resources, memory_unit_mib) for node in nodes}
    ledger = {name: _empty(cards) for name, cards in announced.items()}
    for pod, node, booking in pods:
        if node in ledger:
            _book(ledger[node], announced[node], pod, booking or booking_of(pod))
    return ledger


def of_tables(tables: Tables) -> dict[str, NodeLedger]:
    """The same, read from the columns."""
    return {name: _row(tables, row) for name, row in tables.row_of.items()}


def _empty(announced: NodeInventory) -> NodeLedger:
    entry = NodeLedger()
    for card in announced.cards:
        entry.free[card.uuid], entry.holders[card.uuid], entry.exclusive[card.uuid] = card.units, 0, 0
    return entry


def _book(entry: NodeLedger, announced: NodeInventory, pod: Pod, booking: Booking) -> None:
    for name, amount in (pod.template.requests | {PODS: 1}).items():
        entry.requested[name] = entry.requested.get(name, 0) + amount
    known = {card.uuid: card for card in announced.cards}
    places = [(_card_of(share, known), min(share.units, MOST_UNITS)) for share in booking.shares]
    if booking.unknown or any(not uuid for uuid, _ in places):
        places = [(uuid, min(booking.units, MOST_UNITS)) for uuid in known]
        entry.counted += booking.units
    else:
        unhealthy = {card.uuid for card in announced.cards if card.health is Health.UNHEALTHY}
        entry.counted += sum(units for uuid, units in places if uuid in known and uuid not in unhealthy)
    for uuid, units in places:
        entry.free[uuid] = entry.free.get(uuid, 0) - units
        entry.holders[uuid] = entry.holders.get(uuid, 0) + 1
        entry.exclusive[uuid] = entry.exclusive.get(uuid, 0) + booking.exclusive


def _card_of(share: CardShare, known: Mapping[str, Card]) -> str:
    """The UUID that counts, "" when the node has no such card; a node of the legacy totals knows indexes only."""
    if nameless(share.index) in known:
        return nameless(share.index)
    by_index = {card.index: uuid for uuid, card in known.items()}
    return share.uuid or by_index.get(share.index, "")


def _row(tables: Tables, row: int) -> NodeLedger:
    entry, cards, resources = NodeLedger(), tables.cards, tables.resources
    for number, slot in enumerate(cards.slots[row]):
        uuid = slot.card.uuid
        entry.free[uuid] = int(cards.free[number, row])
        entry.holders[uuid] = int(cards.holders[number, row])
        entry.exclusive[uuid] = int(cards.exclusive[number, row])
    entry.counted = int(cards.counted[row])
    amounts = {name: int(resources.requested[i, row]) for name, i in resources.index.items()}
    entry.requested = {name: amount for name, amount in amounts.items() if amount}
    return entry
