"""Node changes that affect topology domains: deleted nodes, changed labels, changed taints.

A rule that compares domains may accept a node of one domain because a node of another was deleted or no longer counts.
Each label key has its own bit, so that only rules that read the key run again. A new node can take pods itself, but
only its pods can make other nodes acceptable, and `MatchingPods` notes these.
"""

from collections.abc import Mapping
from functools import lru_cache
from hashlib import blake2b
from typing import Final

from scheduler.kube.objects import Node, Taint
from scheduler.state.changes import Change, domain_bit
from scheduler.state.facts.fact import Columns, Fact

_NONE: Final[Mapping[str, str]] = {}
_KEPT_KEYS: Final = 4096


@lru_cache(maxsize=_KEPT_KEYS)
def label_bit(key: str) -> int:
    """Bit that a change carries if a node with this label was deleted, or the label changed; see `domain_bit`."""
    return domain_bit(int.from_bytes(blake2b(key.encode(), digest_size=4).digest()))


TAINTS_BIT: Final = label_bit("taints of nodes")
"""Bit that is noted when a node's taints change."""
SELECTORS_BIT: Final = label_bit("selectors of Services and controllers")
"""Bit that is noted when a pod without constraints of its own may be spread with other pods than before."""


class NodeDomains(Fact):
    """Source of `label_bit` and TAINTS_BIT; holds no counts."""

    def __init__(self, tables: Columns) -> None:
        super().__init__(tables)
        self._labels: dict[int, Mapping[str, str]] = {}
        self._taints: dict[int, tuple[Taint, ...]] = {}

    def node_changed(self, row: int, node: Node | None) -> Change:
        """Record the bits, which concern other rows: the node's own change already concerns its row."""
        old = self._labels.pop(row, None)
        if node is None:
            self._taints.pop(row, None)
        else:
            self._labels[row] = node.metadata.labels or _NONE
            taints, self._taints[row] = self._taints.get(row, node.spec.taints), node.spec.taints
            if taints != node.spec.taints:
                self.moved |= TAINTS_BIT
        self.moved |= self._moved_by(old, self._labels.get(row))
        return Change(0)

    def _moved_by(self, old: Mapping[str, str] | None, new: Mapping[str, str] | None) -> int:
        """Bits of the labels that differ. None stands for a node that does not exist."""
        if old is None or old == new:
            return 0
        # A deleted node may have hundreds of labels; only those in use matter.
        keys = self.tables.labels.asked() & old.keys() if new is None else {key for key, _ in old.items() ^ new.items()}
        bits = 0
        for key in keys:
            bits |= label_bit(key)
        return bits
