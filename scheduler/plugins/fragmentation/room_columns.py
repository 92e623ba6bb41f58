"""Stored values of every row for a workload: the room on its cards, and its worth.

If two workloads have the same requests, only their weights differ. The room is then the same for both, so rows of
either workload are evaluated together.
"""

import numpy as np

from scheduler.plugins.fragmentation.cards_seen import FreeCards, FreeCardsOf, free_cpu, rows_at
from scheduler.plugins.fragmentation.row_kinds import KindArray, RowKinds, alike
from scheduler.plugins.fragmentation.workload import FloatArray, PodMix, Room
from scheduler.state.columns.arrays import BoolArray, RowArray, Rows
from scheduler.state.tables import Tables


class RoomColumns:
    """Room of every row for one workload, as last computed.

    workload: the new one, which rows before `reached` have. before: the previous one, which the other rows still have:
    the same requests, other weights.
    worth: float64[nodes], see PodMix.worth. The room of a row is contiguous, because it is written and read a row at a
    time.
    """

    def __init__(self, workload: PodMix, tables: Tables, kinds: RowKinds) -> None:
        """No rows; the same workload applies to all. kinds: always up to date for the computed rows."""
        self.workload, self.before, self._tables, self._kinds = workload, workload, tables, kinds
        self.reached = 0
        self._rooms = np.zeros((tables.capacity, len(Room._fields) * len(workload.units)))
        self.worth: FloatArray = np.zeros(tables.capacity)

    @property
    def width(self) -> int:
        """Length of one row's room: 3 x asks."""
        return self._rooms.shape[1]

    def begin(self, workload: PodMix) -> None:
        """Begin a new workload, which no row has yet.

        workload: has the same requests as the current workload, which all rows must have by now.
        """
        self.before, self.workload, self.reached = self.workload, workload, 0

    def workload_of(self, row: int) -> PodMix:
        """Workload of one row."""
        return self.workload if row < self.reached else self.before

    def workload_on(self, rows: RowArray) -> PodMix:
        """Workload of `rows`; with weights per row if their workloads differ."""
        sides = self.sides(rows)
        if sides is not None:
            return self.workload.beside(self.before, sides)
        return self.workload_of(int(rows[0])) if len(rows) else self.workload

    def sides(self, rows: Rows) -> BoolArray | None:
        """bool[rows]: True for rows with the new workload; None if all rows have the same workload."""
        if self.before is self.workload:
            return None
        found = rows_at(rows) < self.reached
        return found if 0 < np.count_nonzero(found) < len(found) else None

    def kinds(self, rows: Rows) -> KindArray:
        """uint64[rows]: a number that is equal for equal rows with the same workload."""
        return self._kinds.of(rows, self.sides(rows))

    def work_out(self, rows: Rows) -> None:
        """Recompute `rows`, which are evaluated together."""
        rows = rows_at(rows)
        first, like = alike(self.kinds(rows))
        seen, workload = FreeCards.of(self._tables, rows[first]), self.workload_on(rows[first])
        rooms = seen.rooms(workload)
        self._rooms[rows] = rooms[like]
        self.worth[rows] = workload.worth(Room.of(rooms), seen.cpu)[like]

    def weigh(self, rows: RowArray) -> None:
        """Recompute the worth of `rows` after their workload's weights changed; requests and rooms are as before."""
        room = Room.of(self.rooms_on(rows))
        self.worth[rows] = self.workload_on(rows).worth(room, free_cpu(self._tables, rows))

    def work_out_row(self, row: int, seen: FreeCardsOf) -> None:
        """Recompute this one row."""
        workload = self.workload_of(row)
        held = [workload.on_card(free, model) for free, model in zip(seen.free, seen.model, strict=True) if free]
        room = np.add.reduce(held) if held else np.zeros_like(self._rooms[row])
        self._rooms[row] = room
        self.worth[row] = workload.worth(Room.of(room[np.newaxis]), np.array([float(seen.cpu)]))[0]

    def room_of(self, row: int) -> FloatArray:
        """float64[3 x asks]: Room of one row, flattened; read-only."""
        found: FloatArray = self._rooms[row]
        return found

    def rooms_on(self, rows: RowArray) -> FloatArray:
        """float64[rows, 3 x asks]: Room of each of `rows`, flattened; a copy."""
        return self._rooms.take(rows, axis=0)
