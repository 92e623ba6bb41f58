"""The UUID of a card: docs/develop/protocol.md, "Inventory". Pure.

It stands in comma lists beside indexes and words, in names of directories and devices, in commands that people type
and on their terminals. So neither the scheduler nor the device plugin takes any other text for one.
"""

import re
from typing import Final

# NVIDIA's have 40 characters: GPU- or MIG- and 36 of a UUID. As a directory, one is part of the path of a socket.
LONGEST: Final = 64
_FORM: Final = re.compile(rf"[0-9A-Za-z][-_.0-9A-Za-z]{{0,{LONGEST - 1}}}", re.ASCII)
# Words of our annotations, and of NVIDIA_VISIBLE_DEVICES. Digits alone are the index of a card.
_TAKEN: Final = frozenset({"all", "none", "void"})


def objection(uuid: str) -> str:
    """Why no card can have this UUID, in words that a terminal can show; "" for a valid one."""
    if _FORM.fullmatch(uuid) and not uuid.isdigit() and uuid not in _TAKEN:
        return ""
    return (
        f"{uuid[:LONGEST]!r} cannot be the UUID of a card: expected 1 to {LONGEST} letters, digits, '-', '_' and '.', "
        "beginning with a letter or digit; not digits alone, all, none or void"
    )
