"""The UUID of a card: docs/develop/protocol.md, "Inventory". Pure.

It appears in comma-separated lists with indexes and words, in names of directories and devices, in commands that people
type, and on their terminals. So the scheduler and the device plugin accept no other text as a UUID. Only MIG instances
of drivers before 470 have slashes: `MIG-GPU-<UUID>/<GPU instance>/<compute instance>`. No file is named after these.
"""

import re
from typing import Final

# NVIDIA's have 40 characters: GPU- or MIG- and 36 of a UUID. As a directory, a UUID is part of a socket's path.
LONGEST: Final = 64
_FORM: Final = re.compile(
    rf"[0-9A-Za-z][-_.0-9A-Za-z]{{0,{LONGEST - 1}}}|MIG-GPU-[-0-9A-Fa-f]{{36}}/[0-9]{{1,2}}/[0-9]{{1,2}}", re.ASCII
)
# Words in our annotations, and in NVIDIA_VISIBLE_DEVICES. Digits alone are the index of a card.
_TAKEN: Final = frozenset({"all", "none", "void"})


def objection(uuid: str) -> str:
    """Return why no card can have this UUID, in printable characters; "" for a valid one."""
    if _FORM.fullmatch(uuid) and not uuid.isdigit() and uuid not in _TAKEN:
        return ""
    return (
        f"{uuid[:LONGEST]!r} cannot be the UUID of a card: expected 1 to {LONGEST} letters, digits, '-', '_' and '.', "
        "beginning with a letter or digit; not digits alone, all, none or void"
    )
