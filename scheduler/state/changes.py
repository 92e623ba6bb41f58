"""Changes per row and version, so that only rules that read a changed field run again, on the changed rows only."""

from array import array
from collections.abc import Iterable, Iterator
from enum import IntFlag, auto
from functools import reduce
from operator import or_
from typing import Final, NamedTuple

import numpy as np

from scheduler.pods.pod_volumes import ClaimKey
from scheduler.state.columns.arrays import RowArray

_LONGEST_LOG: Final = 65_536
# Outside the API server's range, above and below.
ANY_PRIORITY: Final = 2**32
_NO_PRIORITY: Final = -(2**32)


class Change(IntFlag):
    """Fields that a rule may read. A rule declares those that can alter its answer; a change names those altered.

    EXISTENCE: the node was added or deleted, which implicitly concerns every rule. LABELS to IMAGES: fields of the node
    itself. INVENTORY: its cards, and which of them can be allocated. FEATURES: features that its kubelet declares.
    IMAGES: images on the node.
    PODS: a pod on the row was added, removed or changed. PORTS, CARDS: the pod has host ports, or GPU memory.
    COMPANY: other pods may have affinity to the pod. DOMAINS: a topology domain opened or closed, so rows other than
    the changed one may accept or reject pods now.
    ATTACHMENTS: the node's limits for attached volumes changed, or attachments that do not belong to its pods; or a pod
    was added whose attached volume others may share. An added pod can help other pods only by COMPANY and ATTACHMENTS.
    VOLUMES: a volume, or capacity for one, became available, on any row.
    REJECTIONS: its kubelet has rejected a pod, or a rejection has expired.
    FACTS: a fact changed its values of the row by itself (`Fact.pod_placed`).
    """

    EXISTENCE = auto()
    LABELS = auto()
    TAINTS = auto()
    UNSCHEDULABLE = auto()
    ALLOCATABLE = auto()
    INVENTORY = auto()
    ANNOTATIONS = auto()
    FEATURES = auto()
    IMAGES = auto()
    PODS = auto()
    PORTS = auto()
    CARDS = auto()
    COMPANY = auto()
    DOMAINS = auto()
    ATTACHMENTS = auto()
    VOLUMES = auto()
    REJECTIONS = auto()
    FACTS = auto()

    NODE = EXISTENCE | LABELS | TAINTS | UNSCHEDULABLE | ALLOCATABLE | INVENTORY | ANNOTATIONS | FEATURES | IMAGES
    BOOKINGS = PODS | PORTS | CARDS | COMPANY
    ANY = NODE | BOOKINGS | DOMAINS | ATTACHMENTS | VOLUMES | REJECTIONS | FACTS


# In the same number as the bits of Change, so that an opened domain wakes only the pods that wait for it.
_FIRST_DOMAIN_BIT: Final = 18
_DOMAIN_BITS: Final = 44
ANY_DOMAIN: Final = int(Change.DOMAINS) | (((1 << _DOMAIN_BITS) - 1) << _FIRST_DOMAIN_BIT)
ANYTHING: Final = int(Change.ANY) | ANY_DOMAIN


def domain_bit(number: int) -> int:
    """Bit for one cause that opens and closes topology domains, such as an affinity term of running pods.

    number: of the cause; several causes share a bit. A change carries the bits of the causes that opened domains. A
    class of pods carries the bits of the causes that exclude it. Change.DOMAINS alone names no cause.
    """
    return 1 << (_FIRST_DOMAIN_BIT + number % _DOMAIN_BITS)


class ChangedRows(NamedTuple):
    """Changed rows. rows: distinct. kinds: bits of every Change on any of them."""

    rows: list[int]
    kinds: int


_NONE: Final = ChangedRows([], 0)


class ChangeLog:
    """Rows in the order of their changes. version: number of changes so far; read-only."""

    def __init__(self) -> None:
        self.version = 0
        # Numbers, not objects: objects would take six times the memory.
        self._rows = array("i")
        self._kinds = array("q")

    @property
    def oldest(self) -> int:
        """Oldest version from which `since` knows all later changes."""
        return self.version - len(self._rows)

    def note(self, row: int, kinds: int) -> None:
        """Record a change of one row. kinds: bits of Change, as a plain number: an IntFlag costs ten times as much."""
        if len(self._rows) >= _LONGEST_LOG:
            del self._rows[: _LONGEST_LOG // 2]
            del self._kinds[: _LONGEST_LOG // 2]
        self.version += 1
        self._rows.append(row)
        self._kinds.append(kinds)

    def kinds_since(self, version: int) -> int | None:
        """Bits of every Change after `version`; None if that is too long ago."""
        count = self.version - version
        if count > len(self._rows):
            return None
        noted = np.frombuffer(self._kinds[len(self._rows) - count :], dtype=np.int64)
        return int(np.bitwise_or.reduce(noted))

    def since(self, version: int) -> ChangedRows | None:
        """Changes after `version`; None if that is too long ago."""
        count = self.version - version
        if count > len(self._rows):
            return None
        if count == 0:
            return _NONE
        if count == 1:
            return ChangedRows([self._rows[-1]], self._kinds[-1])
        start = len(self._rows) - count
        return ChangedRows(list(set(self._rows[start:])), reduce(or_, self._kinds[start:]))


class ClusterEvents:
    """Cluster events that may make waiting pods schedulable, until they are taken.

    rows: row -> bits of Change. everywhere: bits for every row. claims: concern all pods that use one of them.
    namespaces: their pods' signatures may have changed.
    up_to: row -> the highest priority for which preemption can free more than before. When a pod leaves, this is the
    priority of that pod, because pods of higher priority could have evicted it anyway.
    """

    def __init__(self) -> None:
        self.rows: dict[int, int] = {}
        self.up_to: dict[int, int] = {}
        self.everywhere = 0
        self.claims: dict[ClaimKey, None] = {}
        self.namespaces: dict[str, None] = {}

    def note(self, row: int, kinds: int, up_to: int = ANY_PRIORITY) -> None:
        """Record an event on one row."""
        self.rows[row] = self.rows.get(row, 0) | kinds
        if up_to > self.up_to.get(row, _NO_PRIORITY):
            self.up_to[row] = up_to

    def note_everywhere(self, kinds: int) -> None:
        """Record an event on all rows."""
        self.everywhere |= kinds

    def note_claims(self, claims: Iterable[ClaimKey]) -> None:
        """Record claims whose state may have changed, or that lost a user."""
        self.claims.update(dict.fromkeys(claims))

    def note_namespace(self, name: str) -> None:
        """Record a namespace whose pods' signatures may have changed, whatever its pods wait for."""
        self.namespaces[name] = None

    def add(self, other: "ClusterEvents") -> None:
        """Add the events of another object."""
        for row, kinds in other.rows.items():
            self.note(row, kinds, other.up_to[row])
        self.note_everywhere(other.everywhere)
        self.claims.update(other.claims)
        self.namespaces.update(other.namespaces)

    def by_kinds(self) -> Iterator[tuple[int, RowArray]]:
        """Yield (kinds, rows with exactly those kinds)."""
        rows_of: dict[int, list[int]] = {}
        for row, kinds in self.rows.items():
            rows_of.setdefault(kinds, []).append(row)
        for kinds, rows in rows_of.items():
            yield kinds, np.array(rows, dtype=np.intp)

    def __bool__(self) -> bool:
        return bool(self.rows or self.everywhere or self.claims or self.namespaces)
