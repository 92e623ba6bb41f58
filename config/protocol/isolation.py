"""Kinds of isolation, which enforce the pods' shares of a card's memory, and the words for them. Pure."""

from typing import Final

DRIVER: Final = "driver"
MPS: Final = "mps"
HAMI_CORE: Final = "hami-core"
OWN: Final = "own"
# Kinds in the inventory (`inventory.Card.isolation`), and what each is called.
WORDS: Final = {DRIVER: "driver", MPS: "MPS", HAMI_CORE: "HAMi-core", OWN: "its own mechanism"}
ADVISORY: Final = "advisory"


def worded(kind: str) -> str:
    """Return text such as `enforced by driver`, or `advisory`. kind: as in the inventory."""
    return f"enforced by {WORDS.get(kind, kind)}" if kind else ADVISORY
