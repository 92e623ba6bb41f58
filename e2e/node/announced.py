"""What a node object says of its cards and units.

Written apart from the programs' own codecs, so that it does not share their mistakes.
"""

import json

from config.protocol import names
from e2e.control_plane.admin import Json


def card_units(node: Json) -> dict[str, int]:
    """UUID -> units of every card that the node announces."""
    inventory = json.loads(node["metadata"].get("annotations", {}).get(names.INVENTORY, '{"cards":[]}'))
    return {card["uuid"]: card["units"] for card in inventory["cards"]}


def allocatable(node: Json) -> int:
    """Units that the kubelet gives away."""
    return int(node["status"].get("allocatable", {}).get(names.GPU_MEM, "0"))
