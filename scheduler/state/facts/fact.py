"""Facts: counts of the pods on each node or card, made for a rule and kept up to date by the tables.

    tables.fact(SomeFact) ── first call: creates it and counts every existing node and pod ──▶ SomeFact
         │
         └─ from then on it receives every booking, unbooking, node and namespace

A fact reads a pod once, at the booking, and the value is stored with the pod. Unbooking uses exactly that value,
whatever has happened to the pod since; a change of the value moves the booking. An unused fact does not exist and costs
nothing.
"""

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Collection, Hashable, Iterable, Mapping
from typing import Any, ClassVar, Final, Generic, Protocol, TypeAlias, TypeVar

import numpy as np

from scheduler.kube.objects import Node
from scheduler.pods.pod import Pod
from scheduler.state.cards.card_columns import CardColumns, Held
from scheduler.state.changes import Change, ChangeLog
from scheduler.state.columns.arrays import Int64Array, Rows
from scheduler.state.columns.labels import Labels
from scheduler.state.columns.row_masks import values_of
from scheduler.state.volumes.volumes import Changes, Volumes

ReadT = TypeVar("ReadT")
KeyT = TypeVar("KeyT", bound=Hashable)
_NOTHING: Final[Mapping[int, int]] = {}


class Columns(Protocol):
    """The part of the tables that facts read."""

    changes: ChangeLog
    cards: CardColumns
    labels: Labels
    namespaces: dict[str, dict[str, str]]
    volumes: Volumes

    @property
    def capacity(self) -> int:
        """Number of rows in every column."""

    @property
    def row_of(self) -> dict[str, int]:
        """Node name -> row."""

    @property
    def any_nominated(self) -> bool:
        """Whether `nominated` returns any pod."""

    def nominated(self) -> Iterable[tuple[int, Pod]]:
        """Yield (row, pod) for each booked nominated pod."""


class Fact:
    """A cluster-wide count. The tables create one per class and arguments, shared by all rules.

    A fact that inherits this class directly ignores bookings. booking_change: changes noted for a counted booking,
    besides Change.PODS.
    """

    booking_change: ClassVar[Change] = Change(0)

    def __init__(self, tables: Columns) -> None:
        """tables: owner of the rows; read-only. A subclass may take further arguments, which must be hashable.

        booking_kinds is `booking_change` as a plain number. moved: further changes of the last booking or node update,
        such as bits of `domain_bit`; the table collects and clears them.
        """
        self.tables = tables
        self.booking_kinds = int(self.booking_change)
        self.moved = 0

    def node_changed(self, row: int, node: Node | None) -> Change:  # noqa: ARG002 - few facts look at nodes
        """Update the counts for a node that was added, changed or deleted (None; its pods are already unbooked).

        Returns Change.DOMAINS if topology domains opened or closed, otherwise an empty Change.
        """
        return Change(0)

    def namespaces_changed(self) -> None:
        """Update the counts because labels of a namespace changed."""

    def volumes_changed(self, changes: Changes) -> Collection[int]:  # noqa: ARG002 - few facts look at volumes
        """Update the counts because claims or attachments changed. Returns the rows whose values changed."""
        return ()

    def pod_seen(self, pod: Pod, came_s: float) -> None:
        """Learn from a pod that is seen for the first time, before its booking: it has a node, or is ours and waits.

        came_s: when it was created, in monotonic seconds.
        """

    def pod_placed(self) -> None:
        """Follow after a pod has got a node, except in a query.

        A slow recomputation may advance here. It notes the rows whose values it changes in `tables.changes`, as
        Change.FACTS.
        """

    def grow(self, capacity: int) -> None:
        """Extend every column to `capacity` rows."""


class _PodFact(Fact, ABC, Generic[ReadT]):
    @abstractmethod
    def read(self, pod: Pod) -> ReadT | None:
        """Return the value to count for a pod, or None not to count it. It may depend on the pod only."""


class NodeFact(_PodFact[ReadT]):
    """A fact counted per node."""

    @abstractmethod
    def book(self, row: int, read: ReadT, sign: int) -> None:
        """Count a pod with this value on `row` (sign 1), or uncount it (sign -1)."""


class CardFact(_PodFact[ReadT]):
    """A fact counted per card."""

    booking_change: ClassVar[Change] = Change.CARDS

    @abstractmethod
    def book(self, row: int, slots: tuple[int, ...], read: ReadT, sign: int) -> None:
        """Count a pod with this value on these cards of `row` (sign 1), or uncount it (sign -1).

        slots: in `tables.cards`. When a node's cards change, all its pods are unbooked first and booked again
        afterwards.
        """


class CountByKey(NodeFact[KeyT]):
    """Number of pods per key on each node. `read` returns the key. Stores an entry per key and node in use."""

    def __init__(self, tables: Columns) -> None:
        super().__init__(tables)
        self._counts: dict[KeyT, Counter[int]] = {}

    def book(self, row: int, read: KeyT, sign: int) -> None:
        counts = self._counts.setdefault(read, Counter())
        counts[row] += sign
        if not counts[row]:
            del counts[row]
        if not counts:
            del self._counts[read]

    def counts(self, key: KeyT, rows: Rows) -> Int64Array:
        """int64[rows]: number of pods with `key` on each row."""
        return values_of(self._counts.get(key, _NOTHING), rows, self.tables.capacity)


class CardSums(CardFact[int]):
    """A sum per card, over the values that `read` returns for the pods on it.

    sums: int64[cards, nodes], in the same slots as `tables.cards.stored`.
    """

    def __init__(self, tables: Columns) -> None:
        super().__init__(tables)
        self.sums: Int64Array = np.zeros(tables.cards.stored.units.shape, dtype=np.int64)

    def book(self, row: int, slots: tuple[int, ...], read: int, sign: int) -> None:
        """Count or uncount one pod's cards."""
        self._fit()
        for slot in slots:
            self.sums[slot, row] += sign * read

    def over(self, rows: Rows) -> Int64Array:
        """int64[cards, rows], with as many cards as `tables.cards` shows; a view if `rows` is a slice."""
        self._fit()
        return self.sums[: self.tables.cards.width, rows]

    def grow(self, capacity: int) -> None:  # noqa: ARG002 - the cards know it
        self._fit()

    def _fit(self) -> None:
        shape = self.tables.cards.stored.units.shape
        if self.sums.shape != shape:
            fitting = np.zeros(shape, dtype=np.int64)
            slots, rows = min(shape[0], self.sums.shape[0]), self.sums.shape[1]
            fitting[:slots, :rows] = self.sums[:slots]
            self.sums = fitting


FactT = TypeVar("FactT", bound=Fact)
AnyFact: TypeAlias = NodeFact[Any] | CardFact[Any]
_PODS: Final = int(Change.PODS)


class Booked(Protocol):
    """A pod on a node, as facts see it. read: the value of each fact that counts pods, in the order of the facts.

    lifted: whether it is temporarily not booked.
    """

    pod: Pod
    node: str
    read: list[Any]
    held: Held | None
    lifted: bool


class FactTable:
    """All facts, owned by the tables. Most methods return bits of Change. made: facts by class and arguments."""

    def __init__(self, tables: Columns) -> None:
        """tables: owner of these facts."""
        self._tables = tables
        self._facts: list[Fact] = []
        self._counting: list[AnyFact] = []
        self.made: dict[tuple[type[Fact], tuple[Hashable, ...]], Fact] = {}

    def make(
        self,
        kind: type[FactT],
        arguments: tuple[Hashable, ...],
        nodes: Mapping[str, Node],
        records: Iterable[Booked],
    ) -> FactT:
        """Create the fact, and count every existing node and pod."""
        fact = self.made[kind, arguments] = kind(self._tables, *arguments)
        self._facts.append(fact)
        row_of = self._tables.row_of
        for name, node in nodes.items():
            fact.node_changed(row_of[name], node)
        if not isinstance(fact, NodeFact | CardFact):
            return fact
        self._counting.append(fact)
        for record in records:
            read = fact.read(record.pod)
            record.read.append(read)
            if read is not None and record.node in row_of and not record.lifted:
                _book(fact, record, row_of[record.node], read, 1)
        return fact

    def read(self, pod: Pod) -> list[Any]:
        """Return the pod's value for each fact that counts pods."""
        return [fact.read(pod) for fact in self._counting]

    def book(self, record: Booked, row: int, sign: int, *, of_cards: bool | None = None) -> int:
        """Book (sign 1) or unbook (sign -1) a pod.

        of_cards: True for facts per card only, False for facts per node only, None for all.
        """
        kinds = 0
        for fact, read in zip(self._counting, record.read, strict=True):
            if read is not None and (of_cards is None or isinstance(fact, CardFact) is of_cards):
                kinds |= fact.booking_kinds | _book(fact, record, row, read, sign)
        return kinds

    def reread(self, record: Booked, pod: Pod, row: int | None) -> int:
        """Move the bookings of a pod whose values may have changed. row: None while its node does not exist."""
        kinds = 0
        for number, fact in enumerate(self._counting):
            old, new = record.read[number], fact.read(pod)
            if old is new or old == new:
                continue
            kinds |= _PODS | fact.booking_kinds
            record.read[number] = new
            for read, sign in ((old, -1), (new, 1)):
                if row is not None and read is not None:
                    kinds |= _book(fact, record, row, read, sign)
        return kinds

    def node_changed(self, row: int, node: Node | None) -> int:
        """Update all facts for a node that was added, changed or deleted."""
        kinds = 0
        for fact in self._facts:
            kinds |= int(fact.node_changed(row, node)) | fact.moved
            fact.moved = 0
        return kinds

    def namespaces_changed(self) -> None:
        """Update all facts for changed namespace labels."""
        for fact in self._facts:
            fact.namespaces_changed()

    def volumes_changed(self, changes: Changes) -> set[int]:
        """Update all facts for changed volumes. Returns the rows whose values changed."""
        return {row for fact in self._facts for row in fact.volumes_changed(changes)}

    def pod_seen(self, pod: Pod, came_s: float) -> None:
        """Show a new pod to all facts."""
        for fact in self._facts:
            fact.pod_seen(pod, came_s)

    def pod_placed(self) -> None:
        """Tell all facts that a pod has got a node."""
        for fact in self._facts:
            fact.pod_placed()

    def grow(self, capacity: int) -> None:
        """Extend every column to `capacity` rows."""
        for fact in self._facts:
            fact.grow(capacity)


def _book(fact: AnyFact, record: Booked, row: int, read: object, sign: int) -> int:
    """Book a pod in one fact. Returns bits of its changes beyond the fact's `booking_change`."""
    if isinstance(fact, NodeFact):
        fact.book(row, read, sign)
    elif record.held is not None:
        fact.book(row, record.held.slots, read, sign)
    moved, fact.moved = fact.moved, 0
    return moved
