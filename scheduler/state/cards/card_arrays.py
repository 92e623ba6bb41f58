"""The columns of cards: stored at the height of the widest node, viewed at the height that the rows need.

stored   [height, nodes]   all slots of all nodes
viewed   [width, nodes]    the first `width` slots: the view of rules

Most nodes of a cluster have about the same number of cards. `usual` is a width that covers three out of four nodes. A
wider node belongs to the group of its own width, a power of two. Rows are evaluated group by group (`groups`,
`viewing`), so that a node of 256 cards does not widen the others. Rules always see the shape [cards, rows evaluated],
and no evaluated row has more cards than that.
"""

from collections import Counter
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, fields
from typing import Any, Final, NamedTuple

import numpy as np

from scheduler.state.columns.arrays import (
    ALL_ROWS,
    FIRST_CAPACITY,
    BoolArray,
    Int8Array,
    Int32Array,
    Int64Array,
    RowArray,
    Rows,
)
from scheduler.state.columns.row_masks import places_of

NARROWEST: Final = 4
# The usual width leaves at most one in this many nodes wider. Wider nodes are evaluated separately: picking rows out
# costs a few times more than a view of all.
_WIDE_SHARE: Final = 4
_AS_IT_IS: Final[AbstractContextManager[None]] = nullcontext()


@dataclass(slots=True)
class CardStore:
    """One set of columns, [slots, nodes] each; `cards.CardColumns` explains their content."""

    units: Int32Array
    free: Int32Array
    taken: Int64Array
    usable: BoolArray
    available: BoolArray
    unhealthy: BoolArray
    out: Int8Array
    holders: Int32Array
    exclusive: Int32Array
    model: Int32Array
    traits: Int8Array

    @staticmethod
    def empty(height: int, nodes: int) -> "CardStore":
        """All columns zero; they take no memory until they are written."""
        shape, int32, boolean = (height, nodes), np.int32, np.bool_
        return CardStore(
            units=np.zeros(shape, dtype=int32),
            free=np.zeros(shape, dtype=int32),
            taken=np.zeros(shape, dtype=np.int64),
            usable=np.zeros(shape, dtype=boolean),
            available=np.zeros(shape, dtype=boolean),
            unhealthy=np.zeros(shape, dtype=boolean),
            out=np.zeros(shape, dtype=np.int8),
            holders=np.zeros(shape, dtype=int32),
            exclusive=np.zeros(shape, dtype=int32),
            model=np.zeros(shape, dtype=int32),
            traits=np.zeros(shape, dtype=np.int8),
        )

    def first(self, slots: int) -> "CardStore":
        """Views of the first slots."""
        return CardStore(*(getattr(self, name)[:slots] for name in _COLUMNS))


_COLUMNS: Final = tuple(field.name for field in fields(CardStore))


class RowGroup(NamedTuple):
    """Rows to be evaluated together. places: positions among all evaluated rows; None if the group has all of them."""

    places: RowArray | None
    rows: Rows
    width: int


class CardArrays:
    """Owner of the columns. mixed: whether any node is wider than usual. width: number of slots in the current view.

    units, free, …: views, see `CardStore`. stored: all slots, for writing.
    """

    units: Int32Array
    free: Int32Array
    usable: BoolArray
    available: BoolArray
    unhealthy: BoolArray
    out: Int8Array
    holders: Int32Array
    exclusive: Int32Array
    model: Int32Array
    traits: Int8Array

    def __init__(self) -> None:
        self.stored = CardStore.empty(NARROWEST, FIRST_CAPACITY)
        self.usual = self.width = NARROWEST
        self.mixed = False
        self._width_of: dict[int, int] = {}
        self._wide: dict[int, int] = {}  # nodes wider than usual
        self._nodes_of: Counter[int] = Counter()
        self._views: dict[int, CardStore] = {}
        self._all: list[RowGroup] | None = None
        self._view(NARROWEST)

    @property
    def height(self) -> int:
        """Number of stored slots."""
        return len(self.stored.units)

    def groups(self, rows: Rows) -> list[RowGroup]:
        """`rows` in groups of one width; every row is in exactly one group."""
        if not self.mixed:
            return [RowGroup(None, rows, self.usual)]
        if isinstance(rows, slice) and rows == ALL_ROWS:
            if self._all is None:
                self._all = self._grouped(np.arange(self.stored.units.shape[1], dtype=np.intp))
            return self._all
        if isinstance(rows, slice):
            start, stop, _ = rows.indices(self.stored.units.shape[1])
            if stop - start == 1:
                return [RowGroup(None, rows, self.width_of(start))]
            rows = np.arange(start, stop, dtype=np.intp)
        return self._grouped(rows)

    def width_of(self, row: int) -> int:
        """Width at which this row is evaluated."""
        return self._wide.get(row, self.usual)

    def viewing(self, width: int) -> AbstractContextManager[None]:
        """Set the number of slots that rules see, for the `with` block."""
        return _AS_IT_IS if width == self.width else self._viewing(width)

    @contextmanager
    def _viewing(self, width: int) -> Iterator[None]:
        before = self.width
        self._view(width)
        try:
            yield
        finally:
            self._view(before)

    def _grouped(self, rows: RowArray) -> list[RowGroup]:
        widths = np.full(len(rows), self.usual)
        for place, row in places_of(self._wide, rows):
            widths[place] = self._wide[row]
        places = [np.flatnonzero(widths == width) for width in np.unique(widths)]
        return [RowGroup(found, rows[found], int(widths[found[0]])) for found in places]

    def _make_wide(self, row: int, cards: int) -> None:
        """Record the number of cards of a row; 0 if there are none."""
        width = 0 if cards == 0 else max(NARROWEST, 1 << (cards - 1).bit_length())
        before = self._width_of.pop(row, 0)
        if width:
            self._width_of[row] = width
        if width != before:
            self._nodes_of[width] += 1
            self._nodes_of[before] -= 1
            self._settle(row, width)

    def _settle(self, row: int, width: int) -> None:
        """Set the width of a row: choose the usual width, and extend the storage if needed."""
        widths = sorted(width for width, nodes in self._nodes_of.items() if width and nodes > 0)
        nodes = sum(self._nodes_of[width] for width in widths)
        usual, wider = NARROWEST, nodes - self._nodes_of[NARROWEST]
        for above in widths:
            if wider * _WIDE_SHARE <= nodes:
                break
            if above > NARROWEST:
                usual, wider = above, wider - self._nodes_of[above]
        if usual != self.usual:
            self._wide = {other: wide for other, wide in self._width_of.items() if wide > usual}
        elif width > usual:
            self._wide[row] = width
        else:
            self._wide.pop(row, None)
        height = max([NARROWEST, *widths])
        same = (usual, height) == (self.usual, self.height)
        self.usual, self.mixed, self._all = usual, height > usual, None
        if not same:
            self._store(height, self.stored.units.shape[1])

    def _store(self, height: int, nodes: int) -> None:
        old, new = self.stored, CardStore.empty(height, nodes)
        common, rows = min(height, self.height), old.units.shape[1]
        slots = min(self.usual, common)
        # Only columns in use are copied: the rest stays untouched memory.
        wide = list(self._wide)
        for name in _COLUMNS:
            column, grown = getattr(old, name), getattr(new, name)
            grown[:slots, :rows] = column[:slots]
            grown[slots:common, wide] = column[slots:common, wide]
        self.stored = new
        self._all = None
        self._views.clear()
        self._view(self.usual)

    def _view(self, width: int) -> None:
        views = self._views.get(width)
        if views is None:
            views = self._views[width] = self.stored.first(width)
        self.width = width
        self.units, self.free, self.usable, self.available = views.units, views.free, views.usable, views.available
        self.unhealthy, self.out, self.holders = views.unhealthy, views.out, views.holders
        self.exclusive, self.model, self.traits = views.exclusive, views.model, views.traits


def per_row(answers: list[tuple[RowGroup, Any]], rows: int) -> Any:  # noqa: ANN401 - an array of what the answers are
    """One array over all evaluated rows, assembled from the results of each group."""
    group, answer = answers[0]
    if group.places is None:
        return answer
    whole = np.zeros(rows, dtype=answer.dtype)
    for group, answer in answers:
        whole[group.places] = answer
    return whole
