"""The workload that packing is measured against: what pods usually ask, and how scarce room for it is at present.

    seen requests ──┐                      ┌── rows before `_reached`: the new workload
    room for them ──┴─ every pass again ─▶ ┤
                                           └── the others: the one before

Room for a request gets scarce long before it is gone. So a request counts by its share of those that come, times what
is free in the cluster over what it can use of that: the gradient of the sum of share x log(usable).

A new workload changes every score of every row. So rows take it up some at a time, as pods are booked; a pass ends
when all have. Which row has which is state of the tables: the same for whoever asks.
Owned by the event loop; no method awaits.
"""

from collections.abc import Iterator
from typing import Final, NamedTuple, Protocol

import numpy as np

from scheduler.pods.pod import Pod
from scheduler.state.changes import Change, ChangeLog
from scheduler.state.columns.arrays import ALL_ROWS, BoolArray, RowArray, Rows
from scheduler.state.packing import cards_seen
from scheduler.state.packing.cards_seen import RoomColumns, in_chunks, seen_in_chunks, slices
from scheduler.state.packing.never_seen import never_seen
from scheduler.state.packing.requests_seen import RequestsSeen, Shape, is_learned
from scheduler.state.packing.workload import FloatArray, Workload

# With half as many, a fifth of requests that name models are too many for them.
_MOST_REQUESTS: Final = 64
# Each as if it came as often as that.
_NEVER_SEEN: Final = 0.002
# The room for a request that fits almost nowhere counts so many times at most.
_SCARCEST: Final = 1_000.0
# Differences of worth below this share of a card are none: docs/packing.md.
_STEP: Final = 0.09
# Four for each pod that is booked. Sixty together cost little more than one.
_ROWS_PER_STEP: Final = 64
_PODS_PER_STEP: Final = 16
_WORKLOAD: Final = int(Change.WORKLOAD)
# By which what was never seen becomes another.
_OF_NODES: Final = int(Change.EXISTENCE | Change.ALLOCATABLE | Change.INVENTORY)


class Part(NamedTuple):
    """Rows with one workload. places: where they stand among those asked for."""

    columns: RoomColumns
    places: slice | RowArray
    rows: Rows


class ChangingTables(cards_seen.SeenTables, Protocol):
    """The tables, as far as they are read here."""

    changes: ChangeLog

    @property
    def valid(self) -> BoolArray:
        """bool[nodes]: which rows are nodes."""


class TargetWorkload:
    """Learns always; costs more than that from the first question on."""

    def __init__(self, tables: ChangingTables, half_life_s: float) -> None:
        """tables: that own it. half_life_s: as RequestsSeen."""
        self._tables = tables
        self._seen = RequestsSeen(half_life_s)
        self._old: RoomColumns | None = None
        self._new: RoomColumns | None = None
        self._reached = 0
        self._booked = 0  # since the last step
        # Of the tables, when the columns were true of the rows that have them.
        self._version = 0
        self._never_seen: list[Shape] = []
        self._never_seen_at = -1  # version of the tables

    def note(self, pod: Pod, came_s: float) -> None:
        """A pod was seen for the first time. came_s: as RequestsSeen."""
        if is_learned(pod):
            self._seen.note(Shape.of(pod), came_s)

    def booked(self) -> None:
        """A pod was booked: now and then some rows take the new workload up; after the last one there is another."""
        self._booked += self._new is not None
        if self._booked < _PODS_PER_STEP:
            return
        self._booked = 0
        if self._reached >= self._tables.capacity:
            self._begin()
        tables, cards = self._tables, self._tables.cards.stored
        ahead = tables.valid[self._reached :].nonzero()[0][:_ROWS_PER_STEP] + self._reached
        self._reached = int(ahead[-1]) + 1 if len(ahead) == _ROWS_PER_STEP else tables.capacity
        # A row without anything free is worth nothing to whatever workload.
        some_free = (cards.available[:, ahead] & (cards.free[:, ahead] > 0)).any(axis=0)
        for row in ahead[some_free].tolist():
            tables.changes.note(row, _WORKLOAD)

    def parts(self, rows: Rows) -> Iterator[Part]:
        """Every one of `rows`, each with its workload, as many at a time as are best judged together."""
        new, old, reached = self._current()
        if isinstance(rows, slice):
            start, stop, _ = rows.indices(self._tables.capacity)
            middle = min(max(start, reached), stop)
            for columns, first, last in ((new, start, middle), (old, middle, stop)):
                for here in slices(first, last):
                    yield Part(columns, slice(here.start - start, here.stop - start), here)
        else:
            for columns, chosen in ((new, rows < reached), (old, rows >= reached)):
                (places,) = chosen.nonzero()
                for here in slices(0, len(places)):
                    some = places[here]
                    yield Part(columns, some, rows[some])

    def columns_of(self, row: int) -> RoomColumns:
        """Of the workload that this row has."""
        new, old, reached = self._current()
        return new if row < reached else old

    def usual(self) -> Workload:
        """What is usually asked, weighed by its shares alone, which add up to 1; empty before anybody asked.

        Without what was never seen: what is shown is of pods that come.
        """
        return Workload.of(self._seen.shares(_MOST_REQUESTS), self._tables.cards.model_code, 0.0)

    def _current(self) -> tuple[RoomColumns, RoomColumns, int]:
        """(columns of the rows before the third, columns of the others), true of the tables as they are."""
        tables, new = self._tables, self._new
        if new is None:
            new = self._begin()
        changed = tables.changes.since(self._version)
        if changed is None or len(new.worth) != tables.capacity:
            new, changed = self._begin(), None
        old = self._old or new
        if changed is not None and len(changed.rows) == 1:
            (row,) = changed.rows
            (new if row < self._reached else old).work_out_row(row)
        elif changed is not None and changed.rows:
            rows = np.array(changed.rows, dtype=np.intp)
            for columns, some in ((new, rows[rows < self._reached]), (old, rows[rows >= self._reached])):
                for group in tables.cards.groups(some) if len(some) else ():
                    with tables.cards.viewing(group.width):
                        columns.work_out(group.rows)
        self._version = tables.changes.version
        return new, old, self._reached

    def _begin(self) -> RoomColumns:
        """A new workload; no row has it yet, unless it is the first, or rows are more than they were."""
        by_shares = self._by_shares()
        free, usable = self._usable(by_shares)
        scarcity = free / np.maximum(usable, max(free, 1.0) / _SCARCEST)
        self._old, self._new = self._new, RoomColumns(by_shares.reweighted(scarcity), self._tables)
        if self._old is not None and len(self._old.worth) != self._tables.capacity:
            self._old = None
        self._reached = 0
        if self._old is None:
            self._reached = self._tables.capacity
            self._work_out_all(self._new)
            self._version = self._tables.changes.version
        return self._new

    def _by_shares(self) -> Workload:
        """What usually comes, and what was never seen. Weights are shares, and add up to 1."""
        weighted = self._seen.shares(_MOST_REQUESTS)
        weighted += [(shape, _NEVER_SEEN) for shape in self._never_seen_now()]
        total = sum(weight for _, weight in weighted) or 1.0
        cards = self._tables.cards
        usable = cards.stored.units[cards.stored.usable]
        step = _STEP * float(usable.mean()) if len(usable) else 1.0
        return Workload.of([(shape, weight / total) for shape, weight in weighted], cards.model_code, step)

    def _never_seen_now(self) -> list[Shape]:
        """Kept while nodes and cards stay as they are: to count them takes as long as a decision."""
        changes = self._tables.changes
        changed = changes.since(self._never_seen_at) if self._never_seen_at >= 0 else None
        if changed is None or changed.kinds & _OF_NODES:
            self._never_seen = never_seen(self._tables)
        self._never_seen_at = changes.version
        return self._never_seen

    def _work_out_all(self, columns: RoomColumns) -> None:
        for group in self._tables.cards.groups(ALL_ROWS):
            with self._tables.cards.viewing(group.width):
                for _, some in in_chunks(group.rows, self._tables.capacity):
                    columns.work_out(some)

    def _usable(self, workload: Workload) -> tuple[float, FloatArray]:
        """(units that are free in the cluster, float64[requests]: what each request can use of them)."""
        free, usable = 0.0, np.zeros(len(workload.weights))
        for _, seen in seen_in_chunks(self._tables, ALL_ROWS):
            free += float(seen.free.sum())
            first, like = seen.kinds_of_rows()
            kinds = seen.of_rows(first)
            worth = workload.worth_by_request(kinds.room(workload), kinds.cpu)
            usable += worth.sum(axis=1) if isinstance(like, slice) else worth @ np.bincount(like)
        return free, usable / np.maximum(workload.weights[:, 0], 1.0)
