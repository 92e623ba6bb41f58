"""Attachment limits of nodes, and the attachments that the API server shows."""

from collections.abc import Hashable, Iterator, Mapping
from typing import Final, NamedTuple, TypeVar

_NO_LIMITS: Final[Mapping[str, int]] = {}
KeyT = TypeVar("KeyT", bound=Hashable)
ValueT = TypeVar("ValueT", bound=Hashable)


class Attachment(NamedTuple):
    """A volume that a node has attached, or is attaching or detaching."""

    driver: str
    node: str
    volume: str


class Attachments:
    """Attachments by node. Each change returns the affected nodes."""

    def __init__(self) -> None:
        """Nothing attached, no limits."""
        self._limits: dict[str, Mapping[str, int]] = {}
        self._attachments: dict[str, Attachment] = {}
        # Names of attachments, by node and by volume.
        self._of_node: dict[str, set[str]] = {}
        self._of_volume: dict[str, set[str]] = {}

    def set_limits(self, node: str, limits: Mapping[str, int]) -> tuple[str, ...]:
        """How many volumes of each driver the node attaches; those that are not named without limit."""
        if self.limits(node) == limits:
            return ()
        if limits:
            self._limits[node] = limits
        else:
            del self._limits[node]
        return (node,)

    def set(self, name: str, attachment: Attachment | None) -> tuple[str, ...]:
        """Set an attachment by name; None when it is deleted."""
        old = self._attachments.pop(name, None)
        if old is not None:
            drop(self._of_node, old.node, name)
            drop(self._of_volume, old.volume, name)
        if attachment is not None:
            self._attachments[name] = attachment
            self._of_node.setdefault(attachment.node, set()).add(name)
            self._of_volume.setdefault(attachment.volume, set()).add(name)
        return tuple({one.node for one in (old, attachment) if one is not None})

    def limits(self, node: str) -> Mapping[str, int]:
        """Limits of the node."""
        return self._limits.get(node, _NO_LIMITS)

    def of_node(self, node: str) -> Iterator[Attachment]:
        """Attachments of a node."""
        return (self._attachments[name] for name in self._of_node.get(node, ()))

    def nodes_with(self, volume: str) -> frozenset[str]:
        """The nodes to which a volume is attached."""
        return frozenset(self._attachments[name].node for name in self._of_volume.get(volume, ()))


def drop(index: dict[KeyT, set[ValueT]], key: KeyT, value: ValueT) -> None:
    """Out of an index, which holds no empty sets; nothing when it is not there."""
    values = index.get(key)
    if values is not None:
        values.discard(value)
        if not values:
            del index[key]
