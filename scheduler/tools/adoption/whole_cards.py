"""Finds pods that request what the legacy plugin counts as a whole card: docs/user-guide.md, "Units of a card". Pure.

The legacy plugin counts a card's total memory; ours counts the memory that programs can use. So a card with a whole
number of units has one unit less here. Such a pod keeps running, but another one like it fits no card once all nodes
have our device plugin.
"""

from scheduler.pods.gpu_request import GpuRequest, unit_name
from scheduler.state.cards.node_inventory import NodeInventory
from scheduler.state.tables import Tables


def largest_mib(tables: Tables) -> int:
    """Return the shared memory of the largest card in the cluster, in MiB; 0 if there are no cards."""
    inventories = (tables.inventory(name) for name in tables.row_of)
    return max((card.units * each.unit_mib for each in inventories for card in each.cards), default=0)


def concern(request: GpuRequest | None, unit_mib: int, largest: int, announced: NodeInventory | None = None) -> str:
    """Return why a pod like this one may fit no card later; "" if it will fit or requests no memory.

    unit_mib: the request's unit. largest: from `largest_mib`. announced: the legacy inventory of the pod's node; None
    if our device plugin has announced its cards, or the pod has no node.
    """
    if request is None:
        return ""
    units, unit = request.units_per_card, unit_name(unit_mib)
    if 0 < largest < units * unit_mib:
        return f"{units} {unit} of one card, the largest card has {largest // unit_mib}"
    if announced is not None and units * unit_mib in {card.units * announced.unit_mib for card in announced.cards}:
        return f"{units} {unit}, all of a card"
    return ""
