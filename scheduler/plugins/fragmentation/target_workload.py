"""The workload that packing is measured against: the usual requests, weighted by how scarce room for them is.

    seen requests ──┐                           ┌── rows before `_reached`: the new workload
    room for them ──┴─ recomputed every pass ─▶ ┤
                                                └── the other rows: the previous workload

Usually both have the same requests, and share their columns (`scheduler.plugins.fragmentation.room_columns`).

Room for a request gets scarce long before it is used up. So a request's weight is its share of all requests, times the
free memory over the memory that it can use: the gradient of the sum of share x log(usable).

A new workload changes every score of every row. So rows adopt it a few at a time, as pods are booked; a pass ends when
all rows have it. The workload of a row is the same for every caller. Placements of a query advance no pass, and a
workload that a query begins ends with it.
Owned by the event loop; no method awaits.
"""

from collections.abc import Callable, Iterator
from typing import Final, NamedTuple

import numpy as np

from scheduler.plugins.fragmentation.card_layouts import CardLayouts
from scheduler.plugins.fragmentation.cards_seen import FreeCardsOf, in_chunks, seen_in_chunks, slices
from scheduler.plugins.fragmentation.distinct import first_of_each
from scheduler.plugins.fragmentation.never_seen import never_seen
from scheduler.plugins.fragmentation.requests_seen import MOST_SHAPES, RequestsSeen, Shape, is_learned
from scheduler.plugins.fragmentation.room_columns import RoomColumns
from scheduler.plugins.fragmentation.row_kinds import RowKinds
from scheduler.plugins.fragmentation.workload import FloatArray, PodMix, Room
from scheduler.pods.pod import Pod
from scheduler.state.changes import Change
from scheduler.state.columns.arrays import ALL_ROWS, RowArray, Rows
from scheduler.state.facts.fact import Fact
from scheduler.state.tables import Tables

# With half as many, a fifth of the requests that name models would not be included.
_MOST_REQUESTS: Final = 64
# Number of cached answers: more than the number of requests at any time.
_MOST_KEPT: Final = 2 * MOST_SHAPES
# Share that each such request gets.
_NEVER_SEEN: Final = 0.002
# Maximum weight factor, for a request that fits almost nowhere.
_SCARCEST: Final = 1_000.0
# Differences of worth below this share of a card do not count: docs/packing.md.
_STEP: Final = 0.09
# Four per booked pod. Sixty rows together cost little more than one.
_ROWS_PER_STEP: Final = 64
_PODS_PER_STEP: Final = 16
_FACTS: Final = int(Change.FACTS)
# Changes that alter the requests never seen.
_OF_NODES: Final = int(Change.EXISTENCE | Change.ALLOCATABLE | Change.INVENTORY)


class Part(NamedTuple):
    """Rows with one workload. places: positions among the requested rows."""

    columns: RoomColumns
    places: slice | RowArray
    rows: Rows


class TargetWorkload(Fact):
    """The workload and the room of every row. It always learns; the rest is computed from the first query on.

    seen: the learned requests.
    """

    def __init__(self, tables: Tables) -> None:
        super().__init__(tables)
        self._tables = tables
        self.seen = RequestsSeen()
        # The second one exists only while rows still have a workload of other requests.
        self._new: RoomColumns | None = None
        self._old: RoomColumns | None = None
        self._kinds = RowKinds(tables)
        self._placed = 0  # pods since the last step
        # The what-if query that began the workload; 0 for placements that stay.
        self._query = 0
        # Version of the tables at which kinds and columns were up to date.
        self._version = 0
        self._never_seen: list[Shape] = []
        self._layouts: CardLayouts
        self._held: dict[Shape, bool] = {}
        self._step_units = 1.0
        self._of_nodes_at = -1  # version of the tables

    def pod_seen(self, pod: Pod, came_s: float) -> None:
        """Learn the pod's request."""
        if is_learned(pod):
            self.seen.note(Shape.of(pod), came_s)

    def pod_placed(self) -> None:
        """Every few pods, let more rows adopt the new workload; after the last row, begin a new pass."""
        self._placed += self._new is not None and not self._query
        if self._placed < _PODS_PER_STEP:
            return
        self._placed = 0
        new, tables = self._follow(), self._tables
        if new is None:
            return
        if new.reached >= tables.capacity:
            new = self._begin(new)
        ahead = tables.valid[new.reached :].nonzero()[0][:_ROWS_PER_STEP] + new.reached
        new.reached = int(ahead[-1]) + 1 if len(ahead) == _ROWS_PER_STEP else tables.capacity
        # A row without free cards has no worth to any workload.
        cards = tables.cards.stored
        rows = ahead[np.logical_or.reduce(cards.available[:, ahead] & (cards.free[:, ahead] > 0))]
        for row in rows.tolist():
            tables.changes.note(row, _FACTS)
        if self._old is None:
            # The cards are unchanged: reweighting takes a third of the time of a recomputation.
            new.weigh(rows)
            self._version = tables.changes.version

    def parts(self, rows: Rows) -> Iterator[Part]:
        """All of `rows`, each with its workload, in chunks of the best size."""
        new, old = self._current()
        if isinstance(rows, slice):
            start, stop, _ = rows.indices(self._tables.capacity)
            middle = stop if old is None else min(max(start, new.reached), stop)
            for columns, first, last in ((new, start, middle), (old or new, middle, stop)):
                for here in slices(first, last):
                    yield Part(columns, slice(here.start - start, here.stop - start), here)
        elif old is None:
            for here in slices(0, len(rows)):
                yield Part(new, here, rows[here])
        else:
            for columns, chosen in ((new, rows < new.reached), (old, rows >= new.reached)):
                (places,) = chosen.nonzero()
                for here in slices(0, len(places)):
                    some = places[here]
                    yield Part(columns, some, rows[some])

    def columns_of(self, row: int) -> RoomColumns:
        """Columns of this row's workload."""
        new, old = self._current()
        return new if old is None or row < new.reached else old

    def usual(self) -> PodMix:
        """Usual requests weighted by their shares, which add up to 1; empty before the first pod.

        Excludes requests never seen, and requests that no node could hold even if empty.
        """
        self._look_at_nodes()
        return PodMix.of(self._shares(), self._tables.cards.model_code, 0.0)

    def _shares(self) -> list[tuple[Shape, float]]:
        """The most frequent requests that some node could hold, with their shares, which add up to 1."""
        return self.seen.shares(_MOST_REQUESTS, self._could_be_held)

    def _could_be_held(self, shape: Shape) -> bool:
        if (found := self._held.get(shape)) is None:
            if len(self._held) >= _MOST_KEPT:
                self._held.clear()
            found = self._held[shape] = self._layouts.hold(shape.cards, shape.units, shape.models)
        return found

    def _current(self) -> tuple[RoomColumns, RoomColumns | None]:
        """Return (columns of the rows before its `reached`, columns of the others if different), up to date."""
        new = self._follow() or self._begin(None)
        return new, self._old

    def _follow(self) -> RoomColumns | None:
        """Return the newest columns, brought up to date; None if there are none, or it is unknown what has changed."""
        new, tables = self._new, self._tables
        changed = None
        # The workload of a query that has ended is weighted with pods that never came.
        if new is not None and len(new.worth) == tables.capacity and self._query in {0, tables.query}:
            changed = tables.changes.since(self._version)
        if new is None or changed is None:
            self._new = self._old = None
            return None
        if changed.rows:
            self._work_out(new, changed.rows)
        self._version = tables.changes.version
        return new

    def _work_out(self, new: RoomColumns, changed: list[int]) -> None:
        """Recompute these rows."""
        old, cards = self._old or new, self._tables.cards
        if len(changed) == 1:
            (row,) = changed
            seen = FreeCardsOf.row(self._tables, row)
            self._kinds.work_out_row(row, seen)
            (new if row < new.reached else old).work_out_row(row, seen)
            return
        rows = np.array(changed, dtype=np.intp)
        sides = ((new, rows),) if old is new else ((new, rows[rows < new.reached]), (old, rows[rows >= new.reached]))
        for columns, some in sides:
            for group in cards.groups(some) if len(some) else ():
                with cards.viewing(group.width):
                    self._kinds.work_out(group.rows)
                    columns.work_out(group.rows)

    def _begin(self, now: RoomColumns | None) -> RoomColumns:
        """Begin a new workload, which no row has yet unless it is the first one. now: the result of `_follow`."""
        by_shares = self._by_shares(now)
        is_same = now is not None and by_shares.shapes is now.workload.shapes
        if now is None:
            self._kinds = RowKinds(self._tables)
            self._for_all(self._kinds.work_out)
        free, usable = self._usable(by_shares, now if is_same else None)
        workload = by_shares.reweighted(free / np.maximum(usable, max(free, 1.0) / _SCARCEST))
        if now is not None and is_same:
            now.begin(workload)
            self._old = None
            return now
        self._query = self._tables.query
        self._old, self._new = now, RoomColumns(workload, self._tables, self._kinds)
        if now is None:
            self._new.reached = self._tables.capacity
            self._for_all(self._new.work_out)
            self._version = self._tables.changes.version
        return self._new

    def _by_shares(self, now: RoomColumns | None) -> PodMix:
        """The usual requests and those never seen. Weights are shares, and add up to 1.

        now: columns of a workload that is reweighted if its requests are the same.
        """
        self._look_at_nodes()
        weights, models = dict(self._shares()), self._tables.cards.model_code
        for shape in self._never_seen:
            weights[shape] = weights.get(shape, 0.0) + _NEVER_SEEN
        total = sum(weights.values()) or 1.0
        shares = {shape: weight / total for shape, weight in weights.items()}
        if now is not None and now.workload.models == len(models) and shares.keys() == set(now.workload.shapes):
            return now.workload.weighing(shares, self._step_units)
        return PodMix.of(list(shares.items()), models, self._step_units)

    def _look_at_nodes(self) -> None:
        """Recompute values that depend only on nodes and cards, if these changed: this takes as long as a decision."""
        changes, cards = self._tables.changes, self._tables.cards.stored
        kinds = changes.kinds_since(self._of_nodes_at) if self._of_nodes_at >= 0 else None
        if kinds is None or kinds & _OF_NODES:
            self._never_seen = never_seen(self._tables)
            self._layouts = CardLayouts(self._tables)
            self._held.clear()
            # A card without units, such as one in MIG mode, is never used, so it does not count in the mean.
            usable = cards.units[cards.usable & (cards.units > 0)]
            self._step_units = _STEP * float(usable.mean()) if len(usable) else 1.0
        self._of_nodes_at = changes.version

    def _for_all(self, work_out: Callable[[Rows], None]) -> None:
        """Call `work_out` for all rows, with rows that are evaluated together."""
        for group in self._tables.cards.groups(ALL_ROWS):
            with self._tables.cards.viewing(group.width):
                for _, some in in_chunks(group.rows, self._tables.capacity):
                    work_out(some)

    def _usable(self, workload: PodMix, columns: RoomColumns | None) -> tuple[float, FloatArray]:
        """Return (free units of the cluster, float64[requests]: units that each request can use).

        columns: for these requests, up to date with the tables; None if there are no columns.
        """
        free, usable = 0.0, np.zeros(len(workload.weights))
        first, like = first_of_each(self._kinds.of(ALL_ROWS))
        counts = np.bincount(like)
        for places, seen in seen_in_chunks(self._tables, first):
            rows, count = first[places], counts[places]
            free += float(seen.free.sum(axis=0) @ count)
            rooms = seen.rooms(workload) if columns is None else columns.rooms_on(rows)
            usable += workload.worth_by_request(Room.of(rooms), seen.cpu) @ count
        return free, usable / np.maximum(workload.weights[:, 0], 1.0)
