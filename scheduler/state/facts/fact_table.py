"""The facts in use, and what each has read of every pod. The part of the tables that `facts` promises."""

from collections.abc import Hashable, Iterable, Mapping
from typing import Any, Final, Protocol, TypeAlias, TypeVar, cast

from scheduler.kube.objects import Node
from scheduler.pods.pod import Pod
from scheduler.state.cards.card_columns import Held
from scheduler.state.changes import Change
from scheduler.state.facts.fact import CardFact, Columns, Fact, NodeFact
from scheduler.state.volumes.volumes import Changes

FactT = TypeVar("FactT", bound=Fact[Any])
AnyFact: TypeAlias = NodeFact[Any] | CardFact[Any]
_PODS: Final = int(Change.PODS)


class Booked(Protocol):
    """A pod on a node, as facts see it. read: value of each fact that counts pods, in their order.

    lifted: temporarily not booked.
    """

    pod: Pod
    node: str
    read: list[Any]
    held: Held | None
    lifted: bool


class FactTable:
    """Owned by the tables; its methods return bits of Change. made: by kind and arguments."""

    def __init__(self, tables: Columns) -> None:
        """tables: whose facts these are."""
        self._tables = tables
        self._facts: list[AnyFact] = []
        self._counting: list[AnyFact] = []
        self.made: dict[tuple[type[Fact[Any]], tuple[Hashable, ...]], AnyFact] = {}

    def make(
        self,
        kind: type[FactT],
        arguments: tuple[Hashable, ...],
        nodes: Mapping[str, Node],
        records: Iterable[Booked],
    ) -> FactT:
        """Make the fact, and count every existing node and pod."""
        made = kind(self._tables, *arguments)
        fact = self.made[kind, arguments] = cast("AnyFact", made)
        self._facts.append(fact)
        row_of = self._tables.row_of
        for name, node in nodes.items():
            fact.node_changed(row_of[name], node)
        if not fact.counts_pods:
            return made
        self._counting.append(fact)
        for record in records:
            read = fact.read(record.pod)
            record.read.append(read)
            if read is not None and record.node in row_of and not record.lifted:
                _book(fact, record, row_of[record.node], read, 1)
        return made

    def read(self, pod: Pod) -> list[Any]:
        """Value of each fact for a pod."""
        return [fact.read(pod) for fact in self._counting]

    def book(self, record: Booked, row: int, sign: int, *, of_cards: bool | None = None) -> int:
        """Book (sign 1) or unbook (sign -1) a pod. of_cards: only facts per card, only those per node; None: all."""
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
        """The node of `row` came, changed or went."""
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

    def grow(self, capacity: int) -> None:
        """Every column has `capacity` rows from now on."""
        for fact in self._facts:
            fact.grow(capacity)


def _book(fact: AnyFact, record: Booked, row: int, read: object, sign: int) -> int:
    """Book one fact. Returns bits of its changes beyond the fact's `booking_change`."""
    if isinstance(fact, NodeFact):
        fact.book(row, read, sign)
    elif record.held is not None:
        fact.book(row, record.held.slots, read, sign)
    moved, fact.moved = fact.moved, 0
    return moved
