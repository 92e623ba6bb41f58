"""Isolation of a card, for the inventory."""

from collections.abc import Mapping
from typing import NamedTuple, Protocol


class CardIsolation(NamedTuple):
    """kind, unenforced, compute: the inventory's `isolation`, `unenforced` and `compute` of the card."""

    kind: str = ""
    unenforced: str = ""
    compute: str = ""


class NodeCardIsolation(Protocol):
    """Port: `isolation.node_isolation.NodeIsolation`."""

    def for_inventory(self) -> Mapping[str, CardIsolation]:
        """Return UUID -> what the inventory says of the card."""
        ...
