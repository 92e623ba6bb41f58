"""Isolation of a card, for the inventory."""

from typing import NamedTuple


class CardIsolation(NamedTuple):
    """kind, unenforced, compute: the inventory's `isolation`, `unenforced` and `compute` of the card."""

    kind: str = ""
    unenforced: str = ""
    compute: str = ""
