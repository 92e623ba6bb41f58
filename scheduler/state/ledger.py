"""The ledger computed from scratch: bookings as a function of nodes and live pods.

Pure and deliberately slow: no columns, no increments. The audit and the tests compare the tables with it.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from config.protocol.booked_cards import WrittenAllocation, on_cards
from config.protocol.inventory import Health
from scheduler.kube.objects import Node
from scheduler.pods.effective_requests import PODS, Amounts
from scheduler.pods.gpu_request import ResourceNames
from scheduler.pods.pod import Pod
from scheduler.state.cards.booking import is_exclusive, written_of
from scheduler.state.cards.card_columns import LEAST_FREE, MOST_UNITS
from scheduler.state.cards.node_inventory import NodeInventory, read_inventory
from scheduler.state.tables import Tables


@dataclass(slots=True)
class NodeLedger:
    """Ledger of one node. free: card UUID -> available units, including lost cards; negative if over-committed.

    holders: card UUID -> number of live pods on it. counted: requested units that the kubelet's total covers.
    requested: every other resource, without zero amounts.
    """

    free: dict[str, int] = field(default_factory=dict)
    holders: dict[str, int] = field(default_factory=dict)
    exclusive: dict[str, int] = field(default_factory=dict)
    counted: int = 0
    requested: Amounts = field(default_factory=dict)


def recompute(
    nodes: Iterable[Node],
    pods: Iterable[tuple[Pod, str, WrittenAllocation | None]],
    resources: ResourceNames,
    memory_unit_mib: int = 1024,
    *,
    nominated: Iterable[tuple[Pod, str, WrittenAllocation]] = (),
) -> dict[str, NodeLedger]:
    """Node name -> its ledger, computed from its live pods.

    pods: (pod, node, its first written allocation; None to read it from the annotations). nominated: the same for
    nominated pods.
    """
    announced = {node.metadata.name: read_inventory(node, resources, memory_unit_mib) for node in nodes}
    return of_announced(announced, pods, nominated)


def of_announced(
    announced: Mapping[str, NodeInventory],
    pods: Iterable[tuple[Pod, str, WrittenAllocation | None]],
    nominated: Iterable[tuple[Pod, str, WrittenAllocation]] = (),
) -> dict[str, NodeLedger]:
    """Like `recompute`, for nodes whose inventories have already been read; by node name."""
    ledger = {name: of_node(cards, ()) for name, cards in announced.items()}
    for pod, node, written in pods:
        if node in ledger:
            _book(ledger[node], announced[node], pod, written or written_of(pod), exclusive=is_exclusive(pod))
    for pod, node, written in nominated:
        if node in ledger:
            _keep(ledger[node], announced[node], pod, written, exclusive=is_exclusive(pod))
    return ledger


def of_node(
    announced: NodeInventory,
    pods: Iterable[tuple[Pod, WrittenAllocation, bool]],
    nominated: Iterable[tuple[Pod, WrittenAllocation, bool]] = (),
) -> NodeLedger:
    """The ledger of one node. pods, nominated: (pod, its first written allocation, whether it was exclusive then)."""
    entry = NodeLedger()
    for card in announced.cards:
        entry.free[card.uuid], entry.holders[card.uuid], entry.exclusive[card.uuid] = card.units, 0, 0
    for pod, written, exclusive in pods:
        _book(entry, announced, pod, written, exclusive=exclusive)
    for pod, written, exclusive in nominated:
        _keep(entry, announced, pod, written, exclusive=exclusive)
    return entry


def of_tables(tables: Tables) -> dict[str, NodeLedger]:
    """The ledger read from the columns."""
    return {name: of_row(tables, row) for name, row in tables.row_of.items()}


def of_row(tables: Tables, row: int) -> NodeLedger:
    """Ledger of one node, read from the columns."""
    entry, cards = NodeLedger(), tables.cards
    for number, slot in enumerate(cards.slots[row]):
        uuid = slot.card.uuid
        free = int(cards.stored.free[number, row])
        least = int(cards.stored.units[number, row]) - int(cards.stored.taken[number, row])
        entry.free[uuid] = least if free == LEAST_FREE else free
        entry.holders[uuid] = int(cards.stored.holders[number, row])
        entry.exclusive[uuid] = int(cards.stored.exclusive[number, row])
    for uuid, lost in cards.lost_cards(row).items():
        entry.free[uuid], entry.holders[uuid], entry.exclusive[uuid] = -lost.units, lost.holders, lost.exclusive
    entry.counted = int(cards.counted[row])
    entry.requested = tables.resources.requested_on(row)
    return entry


def _keep(
    entry: NodeLedger, announced: NodeInventory, pod: Pod, written: WrittenAllocation, *, exclusive: bool
) -> None:
    """Book a nominated pod, which the kubelet does not count."""
    counted = entry.counted
    _book(entry, announced, pod, written, exclusive=exclusive)
    entry.counted = counted


def _book(
    entry: NodeLedger, announced: NodeInventory, pod: Pod, written: WrittenAllocation, *, exclusive: bool
) -> None:
    for name, amount in (pod.template.requests | {PODS: 1}).items():
        entry.requested[name] = entry.requested.get(name, 0) + amount
    if not written.units:
        return
    booked = on_cards(written, announced.cards, announced.unit_mib)
    healthy = {card.uuid for card in announced.cards if card.health is not Health.UNHEALTHY}
    places = {card.uuid: card.units for card in booked.cards}
    entry.counted += sum(card.asked for card in booked.cards if card.uuid in healthy)
    if booked.everywhere:
        places = {card.uuid: card.units if booked.blocks else booked.everywhere for card in announced.cards}
        entry.counted += written.units
    for uuid, units in places.items():
        entry.free[uuid] = entry.free.get(uuid, 0) - min(units, MOST_UNITS)
        entry.holders[uuid] = entry.holders.get(uuid, 0) + 1
        entry.exclusive[uuid] = entry.exclusive.get(uuid, 0) + exclusive
