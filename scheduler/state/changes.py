"""What changed on which row, and when: so that only rules that look at it are asked again, about those rows."""

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
# Above and below what the API server allows.
ANY_PRIORITY: Final = 2**32
_NO_PRIORITY: Final = -(2**32)


class Change(IntFlag):
    """What a rule may look at. A rule declares what can alter its answer; a change says what it has altered.

    EXISTENCE: the node came or went, which concerns every rule without its saying so. LABELS to IMAGES are the node's
    own fields; INVENTORY is its cards, and which of them may be given out. FEATURES: those that its kubelet declares.
    IMAGES: those that it has.
    PODS: a pod came to the row, left it, or reads differently now. PORTS, CARDS: so did one with host ports, with GPU
    memory. COMPANY: one that others may want to be with. DOMAINS: rows other than the one that changed may be open or
    closed now.
    ATTACHMENTS: how many volumes the node attaches, or has attached apart from those of its pods; or a pod that came
    has a volume attached there that others may share. By COMPANY and ATTACHMENTS alone a pod that comes makes room.
    VOLUMES: a volume, or room for one, can be had that could not be before, on whatever row.
    REJECTIONS: its kubelet has rejected a pod, or that is long enough ago.
    WORKLOAD: packing is measured there against what pods have asked since.
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
    WORKLOAD = auto()

    NODE = EXISTENCE | LABELS | TAINTS | UNSCHEDULABLE | ALLOCATABLE | INVENTORY | ANNOTATIONS | FEATURES | IMAGES
    BOOKINGS = PODS | PORTS | CARDS | COMPANY
    ANY = NODE | BOOKINGS | DOMAINS | ATTACHMENTS | VOLUMES | REJECTIONS | WORKLOAD


# Beside the bits of Change, so that a domain that opens for some wakes not everybody who waits for one.
_FIRST_DOMAIN_BIT: Final = 18
_DOMAIN_BITS: Final = 44
ANY_DOMAIN: Final = int(Change.DOMAINS) | (((1 << _DOMAIN_BITS) - 1) << _FIRST_DOMAIN_BIT)
ANYTHING: Final = int(Change.ANY) | ANY_DOMAIN


def domain_bit(number: int) -> int:
    """The bit of one of the things that open and close domains, such as a term of pods that run; several share one.

    A change says which have opened domains, a class which keep it out. Change.DOMAINS alone says neither.
    """
    return 1 << (_FIRST_DOMAIN_BIT + number % _DOMAIN_BITS)


class ChangedRows(NamedTuple):
    """rows: distinct. kinds: the bits of every Change on any of them."""

    rows: list[int]
    kinds: int


_NONE: Final = ChangedRows([], 0)


class ChangeLog:
    """Rows in the order in which they changed. version: changes noted so far, ever; read only."""

    def __init__(self) -> None:
        """Nothing noted."""
        self.version = 0
        # Of numbers, not of objects: these would be six times as large.
        self._rows = array("i")
        self._kinds = array("q")

    @property
    def oldest(self) -> int:
        """The first version of which `since` can say what has changed after it."""
        return self.version - len(self._rows)

    def note(self, row: int, kinds: int) -> None:
        """One row changed. kinds: bits of Change, as a plain number: an IntFlag costs ten times as much."""
        if len(self._rows) >= _LONGEST_LOG:
            del self._rows[: _LONGEST_LOG // 2]
            del self._kinds[: _LONGEST_LOG // 2]
        self.version += 1
        self._rows.append(row)
        self._kinds.append(kinds)

    def kinds_since(self, version: int) -> int | None:
        """Bits of every Change noted after `version`; None when that is too long ago to say."""
        count = self.version - version
        if count > len(self._rows):
            return None
        noted = np.frombuffer(self._kinds[len(self._rows) - count :], dtype=np.int64)
        return int(np.bitwise_or.reduce(noted))

    def since(self, version: int) -> ChangedRows | None:
        """What changed after `version`; None when that is too long ago to say."""
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
    """Cluster events that may help waiting pods, until they are taken.

    rows: row -> bits of Change. everywhere: bits that apply to every row. claims: for pods that use one of them,
    whatever they wait for. namespaces: the signatures of their pods may have changed. up_to: row -> the highest
    priority that gains room there, even counting the room of lower priorities. For a pod that leaves it is its own
    priority: a higher one could have preempted it before.
    """

    def __init__(self) -> None:
        """Starts empty."""
        self.rows: dict[int, int] = {}
        self.up_to: dict[int, int] = {}
        self.everywhere = 0
        self.claims: dict[ClaimKey, None] = {}
        self.namespaces: dict[str, None] = {}

    def note(self, row: int, kinds: int, up_to: int = ANY_PRIORITY) -> None:
        """Note a change of one row."""
        self.rows[row] = self.rows.get(row, 0) | kinds
        if up_to > self.up_to.get(row, _NO_PRIORITY):
            self.up_to[row] = up_to

    def note_everywhere(self, kinds: int) -> None:
        """Note a change that concerns every row."""
        self.everywhere |= kinds

    def note_claims(self, claims: Iterable[ClaimKey]) -> None:
        """The state of these claims may have changed, or they have a user less."""
        self.claims.update(dict.fromkeys(claims))

    def note_namespace(self, name: str) -> None:
        """The signatures of its pods may have changed, whatever they wait for."""
        self.namespaces[name] = None

    def add(self, other: "ClusterEvents") -> None:
        """Add the events of `other`."""
        for row, kinds in other.rows.items():
            self.note(row, kinds, other.up_to[row])
        self.note_everywhere(other.everywhere)
        self.claims.update(other.claims)
        self.namespaces.update(other.namespaces)

    def by_kinds(self) -> Iterator[tuple[int, RowArray]]:
        """(kinds, the rows of exactly those kinds)."""
        rows_of: dict[int, list[int]] = {}
        for row, kinds in self.rows.items():
            rows_of.setdefault(kinds, []).append(row)
        for kinds, rows in rows_of.items():
            yield kinds, np.array(rows, dtype=np.intp)

    def __bool__(self) -> bool:
        """Whether there are any events."""
        return bool(self.rows or self.everywhere or self.claims or self.namespaces)
