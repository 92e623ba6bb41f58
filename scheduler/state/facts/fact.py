"""What a rule counts of the pods on each node or card: a Fact, kept true by the tables.

    tables.fact(SomeFact) ── first call: made, and told of every node and pod that is there ──▶ SomeFact
         │
         └─ from then on told of every booking, unbooking, node and namespace; never asked what to undo

What a fact reads of a pod is read once, at the booking, and kept beside the pod: unbooking gives back exactly that,
whatever has become of the pod since; and a change of exactly that moves the booking. A fact that nobody asks for does
not exist and costs nothing.
"""

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Collection, Hashable, Iterable, Mapping
from typing import ClassVar, Final, Generic, Protocol, TypeVar

import numpy as np

from scheduler.kube.objects import Node
from scheduler.pods.pod import Pod
from scheduler.state.cards.card_columns import CardColumns
from scheduler.state.changes import Change
from scheduler.state.columns.arrays import Int64Array, Rows
from scheduler.state.columns.labels import Labels
from scheduler.state.columns.row_masks import values_of
from scheduler.state.volumes.volumes import Changes, Volumes

ReadT = TypeVar("ReadT")
KeyT = TypeVar("KeyT", bound=Hashable)
_NOTHING: Final[Mapping[int, int]] = {}


class Columns(Protocol):
    """The tables, as far as facts read them."""

    cards: CardColumns
    labels: Labels
    namespaces: dict[str, dict[str, str]]
    volumes: Volumes

    @property
    def capacity(self) -> int:
        """Rows of every column."""

    @property
    def row_of(self) -> dict[str, int]:
        """Node name -> row."""

    @property
    def any_nominated(self) -> bool:
        """Whether `nominated` gives any."""

    def nominated(self) -> Iterable[tuple[int, Pod]]:
        """(row, pod) of the nominated pods that are booked."""


class Fact(ABC, Generic[ReadT]):
    """Of the cluster as a whole; made by the tables, one for all rules that ask for it with the same arguments.

    booking_change: what a booking that it counts changes beyond Change.PODS. counts_pods: False for a fact of nodes
    alone, which is asked nothing at bookings.
    """

    booking_change: ClassVar[Change] = Change(0)
    counts_pods: ClassVar[bool] = True

    def __init__(self, tables: Columns) -> None:
        """tables: whose rows these are; read only. A subclass takes its arguments, hashable, after them.

        booking_kinds is `booking_change` as a plain number. moved: what else the last booking, or change of a node, has
        changed, such as bits of `domain_bit`; the table takes it.
        """
        self.tables = tables
        self.booking_kinds = int(self.booking_change)
        self.moved = 0

    @abstractmethod
    def read(self, pod: Pod) -> ReadT | None:
        """What is counted of a pod, compared by `==`; None: nothing. Depends on the pod alone."""

    def node_changed(self, row: int, node: Node | None) -> Change:  # noqa: ARG002 - few facts look at nodes
        """The node of `row` came, changed, or (None) went, its pods unbooked before. Returns DOMAINS or nothing."""
        return Change(0)

    def namespaces_changed(self) -> None:
        """Labels of some namespace are others."""

    def volumes_changed(self, changes: Changes) -> Collection[int]:  # noqa: ARG002 - few facts look at volumes
        """Claims stand otherwise, or nodes attach other volumes. Returns the rows of which it holds something else."""
        return ()

    def grow(self, capacity: int) -> None:
        """Every column has `capacity` rows from now on."""


class NodeFact(Fact[ReadT]):
    """Counted per node."""

    @abstractmethod
    def book(self, row: int, read: ReadT, sign: int) -> None:
        """One pod of which `read` was read is on `row` (sign 1), or no longer (sign -1)."""


class CardFact(Fact[ReadT]):
    """Counted per card."""

    booking_change: ClassVar[Change] = Change.CARDS

    @abstractmethod
    def book(self, row: int, slots: tuple[int, ...], read: ReadT, sign: int) -> None:
        """One pod of which `read` was read holds these cards of `row` (sign 1), or no longer (sign -1).

        slots: of `tables.cards`. Before a node's cards are laid out again everything is unbooked, and booked after.
        """


class CountByKey(NodeFact[KeyT]):
    """How many pods of each key a node has: what `read` returns is the key. Holds an entry per key and node in use."""

    def __init__(self, tables: Columns) -> None:
        """Nothing counted."""
        super().__init__(tables)
        self._counts: dict[KeyT, Counter[int]] = {}

    def book(self, row: int, read: KeyT, sign: int) -> None:
        """As NodeFact."""
        counts = self._counts.setdefault(read, Counter())
        counts[row] += sign
        if not counts[row]:
            del counts[row]
        if not counts:
            del self._counts[read]

    def counts(self, key: KeyT, rows: Rows) -> Int64Array:
        """int64[rows]: pods of `key` on each of them."""
        return values_of(self._counts.get(key, _NOTHING), rows, self.tables.capacity)


class CardSums(CardFact[int]):
    """A number per card: what `read` returns of each pod on it, added up.

    sums: int64[cards, nodes], in the same slots as `tables.cards.stored`.
    """

    def __init__(self, tables: Columns) -> None:
        """Nothing booked."""
        super().__init__(tables)
        self.sums: Int64Array = np.zeros(tables.cards.stored.units.shape, dtype=np.int64)

    def book(self, row: int, slots: tuple[int, ...], read: int, sign: int) -> None:
        """As CardFact."""
        self._fit()
        for slot in slots:
            self.sums[slot, row] += sign * read

    def over(self, rows: Rows) -> Int64Array:
        """int64[cards, rows], as many cards as `tables.cards` shows; a view where `rows` is a slice."""
        self._fit()
        return self.sums[: self.tables.cards.width, rows]

    def grow(self, capacity: int) -> None:  # noqa: ARG002 - the cards know it
        """As Fact."""
        self._fit()

    def _fit(self) -> None:
        shape = self.tables.cards.stored.units.shape
        if self.sums.shape != shape:
            fitting = np.zeros(shape, dtype=np.int64)
            slots, rows = min(shape[0], self.sums.shape[0]), self.sums.shape[1]
            fitting[:slots, :rows] = self.sums[:slots]
            self.sums = fitting
