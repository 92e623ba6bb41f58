"""The series of nodes and cards, as text straight from a copy of the columns.

    event loop: copied() ──▶ ClusterCopy ──▶ another thread: text()

At 5,000 nodes of 8 cards these are 90,000 lines. As objects of prometheus-client they cost seconds and hundreds of
megabytes, so the text is written here. Each piece of it is small, so that whoever renders can pause between two.
Source of the form: prometheus.io/docs/instrumenting/exposition_formats, "Text-based format".
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import islice
from typing import Final

import numpy as np

from scheduler.state.cards.card_columns import Slot
from scheduler.state.columns.arrays import Int32Array, Int64Array
from scheduler.state.tables import Tables

_FREE_SHARES: Final = (0.0, 0.1, 0.25, 0.5, 0.75, 0.9, 1.0)
# Of each of two families, lines in one piece: about a millisecond.
_PIECE: Final = 500


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterCopy:
    """What the tables held. nodes, rows: of every node. units, lost: as CardColumns; free: units less taken.

    Of free and lost, places that are kept for preemptors are no part: their victims are, as long as they are there.
    slots: of each row, None where cards have no series of their own. The tables replace a row's list or append to it.
    rejections: by reason.
    """

    queues: Mapping[str, int]
    nodes: list[str]
    rows: list[int]
    units: Int32Array
    free: Int64Array
    lost: Int64Array
    slots: list[list[Slot]] | None
    rejections: Mapping[str, int]

    def text(self) -> Iterator[bytes]:
        """All series, in pieces of a few hundred lines."""
        yield _head("scheduler_pending_pods", "gauge", "Pending pods, by queue.") + _lines(
            f'scheduler_pending_pods{{queue="{queue}"}} {length}' for queue, length in self.queues.items()
        )
        name = "gpushare_scheduler_kubelet_rejections_total"
        yield _head(name, "counter", "Pods of ours that a kubelet has rejected at admission, by its reason.") + _lines(
            f'{name}{{reason="{_escaped(reason)}"}} {count}' for reason, count in self.rejections.items()
        )
        yield self._free_shares()
        yield from _two_gauges(
            "gpushare_node_gpu_memory_units",
            "Memory units of the node's cards.",
            "gpushare_node_gpu_memory_booked_units",
            "Memory units booked on them, without what is kept for preemptors.",
            self._node_sums(),
        )
        if self.slots is not None:
            yield from _two_gauges(
                "gpushare_card_memory_units",
                "Memory units of the card.",
                "gpushare_card_memory_booked_units",
                "Memory units booked on the card, without what is kept for preemptors.",
                self._cards(self.slots),
            )

    def _node_sums(self) -> Iterator[tuple[str, int, int]]:
        totals, left = self.units.sum(axis=0).tolist(), (self.free.sum(axis=0) - self.lost).tolist()
        for name, row in zip(self.nodes, self.rows, strict=True):
            if totals[row] or left[row]:
                yield f'node="{_escaped(name)}"', totals[row], totals[row] - left[row]

    def _cards(self, slots: list[list[Slot]]) -> Iterator[tuple[str, int, int]]:
        for name, row in zip(self.nodes, self.rows, strict=True):
            node = _escaped(name)
            units, free = self.units[:, row].tolist(), self.free[:, row].tolist()
            # A slot that has come since the copy has no numbers in it.
            for slot, total, left in zip(slots[row], units, free, strict=False):
                labels = f'card="{slot.card.index}",node="{node}",uuid="{_escaped(slot.card.uuid)}"'
                yield labels, total, total - left

    def _free_shares(self) -> bytes:
        name = "gpushare_card_free_share"
        exists = self.units > 0
        shares = np.clip(self.free[exists] / self.units[exists], 0.0, 1.0)
        buckets = [(str(bound), np.count_nonzero(shares <= bound)) for bound in _FREE_SHARES]
        lines = [f'{name}_bucket{{le="{bound}"}} {count}' for bound, count in (*buckets, ("+Inf", len(shares)))]
        lines += [f"{name}_count {len(shares)}", f"{name}_sum {float(shares.sum())}"]
        return _head(name, "histogram", "Cards by the share of their memory that is free.") + _lines(lines)


def copied(tables: Tables, queues: Mapping[str, int], *, per_card: bool) -> ClusterCopy:
    """A copy of what a scrape shows, on the event loop. per_card: with every card.

    Nothing in it is an object per node: at 5,000 nodes these would cost milliseconds, and the collector's attention.
    """
    cards = tables.cards
    free, lost = cards.stored.units - cards.stored.taken, cards.lost.copy()
    # Of these the columns show now one and now another, and often their victims are still there.
    for row, held in tables.kept_on_cards():
        for slot, units in held.places:
            free[slot, row] += units
        lost[row] -= sum(units for _, units in held.lost)
    return ClusterCopy(
        queues=queues,
        nodes=list(tables.row_of),
        rows=list(tables.row_of.values()),
        units=cards.stored.units.copy(),
        free=free,
        lost=lost,
        slots=cards.slots.copy() if per_card else None,
        rejections=dict(tables.rejections.counted),
    )


def _two_gauges(
    first: str, first_says: str, second: str, second_says: str, values: Iterable[tuple[str, int, int]]
) -> Iterator[bytes]:
    """Two families over the same series; a family's lines are together, so the second one waits for the first."""
    waiting = [_head(second, "gauge", second_says)]
    yield _head(first, "gauge", first_says)
    rest = iter(values)
    while piece := list(islice(rest, _PIECE)):
        waiting.append(_lines(f"{second}{{{labels}}} {value}" for labels, _, value in piece))
        yield _lines(f"{first}{{{labels}}} {value}" for labels, value, _ in piece)
    yield from waiting


def _head(name: str, kind: str, says: str) -> bytes:
    return f"# HELP {name} {says}\n# TYPE {name} {kind}\n".encode()


def _lines(lines: Iterable[str]) -> bytes:
    return "".join(f"{line}\n" for line in lines).encode()


def _escaped(value: str) -> str:
    """As a label's value: a node's annotation may hold anything."""
    return value.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")
