"""Pods that request all of a card as the legacy device plugin counts it: docs/user-guide.md, "Units of a card". Pure.

It counts a card's total memory, ours what programs can use, so a card of a whole number of units has one unit less.
Such a pod runs on; another one like it fits no card once all nodes have our device plugin.
"""

from scheduler.pods.gpu_request import GpuRequest, unit_name
from scheduler.state.cards.node_inventory import NodeInventory
from scheduler.state.tables import Tables


def largest_mib(tables: Tables) -> int:
    """The shared memory of the largest card of the cluster; 0 without any card."""
    inventories = (tables.inventory(name) for name in tables.row_of)
    return max((card.units * each.unit_mib for each in inventories for card in each.cards), default=0)


def concern(request: GpuRequest | None, unit_mib: int, largest: int, announced: NodeInventory | None = None) -> str:
    """Why a pod like this one may fit no card later; "" where it will, or requests no memory.

    unit_mib: of the request. largest: as `largest_mib` returns it. announced: of the pod's node while it has no
    inventory of ours; None for others.
    """
    if request is None:
        return ""
    units, unit = request.units_per_card, unit_name(unit_mib)
    if 0 < largest < units * unit_mib:
        return f"{units} {unit} of one card, the largest card has {largest // unit_mib}"
    if announced is not None and units * unit_mib in {card.units * announced.unit_mib for card in announced.cards}:
        return f"{units} {unit}, all of a card"
    return ""
