"""Reads a node object's cards and units.

Written separately from the programs' own codecs, so that it does not share their mistakes.
"""

import json

from config.protocol import names
from e2e.control_plane.admin import Json


def card_units(node: Json) -> dict[str, int]:
    """Return UUID -> units of every card that the node announces."""
    inventory = json.loads(node["metadata"].get("annotations", {}).get(names.INVENTORY, '{"cards":[]}'))
    return {card["uuid"]: card["units"] for card in inventory["cards"]}


def allocatable(node: Json) -> int:
    """Return the units that the kubelet can allocate."""
    return int(node["status"].get("allocatable", {}).get(names.GPU_MEM, "0"))
