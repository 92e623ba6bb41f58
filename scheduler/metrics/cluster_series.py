"""Metrics of nodes and cards, written as text from a copy of the columns.

    event loop: copied() ──▶ ClusterCopy ──▶ another thread: text()

For 5,000 nodes with 8 cards each, these are 90,000 lines. As objects of prometheus-client they would cost seconds and
hundreds of megabytes, so the text is written here. Each piece is small, so that the renderer can pause between pieces.
Source of the format: prometheus.io/docs/instrumenting/exposition_formats, "Text-based format".
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from heapq import nlargest
from itertools import islice
from typing import Final

import numpy as np

from config.protocol import isolation
from scheduler.metrics import series
from scheduler.plugins.fragmentation.measure import Copied
from scheduler.plugins.fragmentation.target_workload import TargetWorkload
from scheduler.plugins.fragmentation.workload import FloatArray
from scheduler.process.series import Series
from scheduler.state.cards.card_columns import CardOnNode
from scheduler.state.columns.arrays import BoolArray, Int32Array, Int64Array
from scheduler.state.facts.namespace_memory import NamespaceMemory
from scheduler.state.tables import Tables

_FREE_RATIOS: Final = (0.0, 0.1, 0.25, 0.5, 0.75, 0.9, 1.0)
# Lines per piece for each of two families: about a millisecond.
_PIECE: Final = 500
_MIB: Final = 2**20
_OTHER: Final = "other"
# Not a valid name of a namespace.
_OTHER_NAMESPACES: Final = "_other"


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterCopy:
    """A copy of the tables. nodes, rows: every node. units, lost: see CardColumns. free: units less taken.

    free and lost exclude nominations; their victims count as long as they exist. slots: per row, None if cards have no
    metrics of their own; the tables replace a row's list or append to it. unit_mib: int64[nodes]. cards_seen: for
    packing. rejections: by reason. requested, limits: bytes by namespace. isolation: cards by kind.
    """

    queues: Mapping[str, int]
    nodes: list[str]
    rows: list[int]
    units: Int32Array
    free: Int64Array
    lost: Int64Array
    unit_mib: Int64Array
    slots: list[list[CardOnNode]] | None
    cards_seen: Copied
    rejections: Mapping[str, int]
    requested: Mapping[str, int]
    limits: Mapping[str, int]
    isolation: Mapping[str, int]

    def text(self) -> Iterator[bytes]:
        """All metrics, in pieces of a few hundred lines."""
        yield family(series.PENDING, ((f'queue="{queue}"', length) for queue, length in self.queues.items()))
        rejections = ((f'reason="{escaped(reason)}"', count) for reason, count in self.rejections.items())
        yield family(series.REJECTIONS, rejections)
        yield self._free_ratios()
        yield from _two_gauges(series.NODE_MEMORY, series.NODE_BOOKED, self._node_sums())
        if self.slots is not None:
            yield from _two_gauges(series.CARD_MEMORY, series.CARD_BOOKED, self._cards(self.slots))
        yield from self._fragmentation()
        yield family(series.ISOLATION, ((f'isolation="{escaped(kind)}"', n) for kind, n in self.isolation.items()))
        for one, amounts in ((series.NAMESPACE_REQUESTED, self.requested), (series.NAMESPACE_LIMIT, self.limits)):
            yield family(one, ((f'namespace="{escaped(name)}"', amount) for name, amount in _largest(amounts)))

    def _node_sums(self) -> Iterator[tuple[str, int, int]]:
        totals, left = self.units.sum(axis=0), self.free.sum(axis=0) - self.lost
        # Python integers, so that products of large numbers do not overflow.
        units, booked, unit_mib = totals.tolist(), (totals - left).tolist(), self.unit_mib.tolist()
        for name, row in zip(self.nodes, self.rows, strict=True):
            if units[row] or booked[row]:
                unit_bytes = unit_mib[row] * _MIB
                yield f'node="{escaped(name)}"', units[row] * unit_bytes, booked[row] * unit_bytes

    def _cards(self, slots: list[list[CardOnNode]]) -> Iterator[tuple[str, int, int]]:
        for name, row in zip(self.nodes, self.rows, strict=True):
            node, unit_bytes = escaped(name), int(self.unit_mib[row]) * _MIB
            units, free = self.units[:, row].tolist(), self.free[:, row].tolist()
            # The copy has no numbers for a slot that is newer than it.
            for slot, total, left in zip(slots[row], units, free, strict=False):
                labels = f'card="{slot.card.index}",node="{node}",uuid="{escaped(slot.card.uuid)}"'
                yield labels, total * unit_bytes, (total - left) * unit_bytes

    def _fragmentation(self) -> Iterator[bytes]:
        measured = self.cards_seen.nothing()
        # The renderer pauses after each step.
        yield from (b"" for _ in self.cards_seen.each_measured(measured))
        unit_bytes = self.unit_mib * float(_MIB)
        free, fragmented = measured.free * unit_bytes, measured.unusable * unit_bytes
        for one, amount in ((series.MEMORY_FREE, free.sum()), (series.MEMORY_FRAGMENTED, fragmented.sum())):
            yield one.head() + _lines([f"{one.name} {round(amount)}"])
        if self.slots is not None:
            nodes = self._by_node(self.units.sum(axis=0) > 0, np.rint(free), np.rint(fragmented))
            yield from _two_gauges(series.NODE_FREE, series.NODE_FRAGMENTED, nodes)

    def _by_node(self, shown: BoolArray, first: FloatArray, second: FloatArray) -> Iterator[tuple[str, int, int]]:
        for name, row in zip(self.nodes, self.rows, strict=True):
            if shown[row]:
                yield f'node="{escaped(name)}"', int(first[row]), int(second[row])

    def _free_ratios(self) -> bytes:
        name = series.FREE_RATIO.name
        exists = self.units > 0
        ratios = np.clip(self.free[exists] / self.units[exists], 0.0, 1.0)
        buckets = [(str(bound), np.count_nonzero(ratios <= bound)) for bound in _FREE_RATIOS]
        lines = [f'{name}_bucket{{le="{bound}"}} {count}' for bound, count in (*buckets, ("+Inf", len(ratios)))]
        lines += [f"{name}_count {len(ratios)}", f"{name}_sum {float(ratios.sum())}"]
        return series.FREE_RATIO.head() + _lines(lines)


def copied(tables: Tables, queues: Mapping[str, int], *, per_card: bool) -> ClusterCopy:
    """Copy for one scrape; call it on the event loop. per_card: whether to include every card.

    It contains no object per node: for 5,000 nodes these would cost milliseconds, and work for the garbage collector.
    """
    cards = tables.cards
    free, lost = cards.stored.units - cards.stored.taken, cards.lost.copy()
    # The columns show nominations, depending on the view, often together with their victims.
    for row, held in tables.kept_on_cards():
        for slot, units in held.places:
            free[slot, row] += units
        lost[row] -= sum(units for _, units in held.lost)
    requested, above = _of_namespaces(tables)
    return ClusterCopy(
        queues=queues,
        nodes=list(tables.row_of),
        rows=list(tables.row_of.values()),
        units=cards.stored.units.copy(),
        free=free,
        lost=lost,
        unit_mib=cards.unit_mib.copy(),
        slots=cards.slots.copy() if per_card else None,
        cards_seen=Copied.of(tables, tables.fact(TargetWorkload).usual()),
        rejections=dict(tables.rejections.counted),
        requested=requested,
        limits={name: amount + above.get(name, 0) for name, amount in requested.items()},
        isolation=_isolation(tables),
    )


def _of_namespaces(tables: Tables) -> tuple[dict[str, int], dict[str, int]]:
    """Return by namespace (requested bytes, bytes of the limits that exceed them), without nominations."""
    fact = tables.fact(NamespaceMemory)
    found, more = fact.requested.copy(), fact.above.copy()
    for row, pod in tables.nominated():
        if (read := fact.read(pod)) is not None:
            namespace, units, above = read
            unit_bytes = int(tables.cards.unit_mib[row]) * _MIB
            found[namespace] = found.get(namespace, 0) - units * unit_bytes
            more[namespace] = more.get(namespace, 0) - above * unit_bytes
    return found, more


def _isolation(tables: Tables) -> dict[str, int]:
    """Return the number of cards by isolation: a label of known values, whatever the nodes announce."""
    found = dict.fromkeys((*isolation.WORDS, isolation.ADVISORY, _OTHER), 0)
    for kind, cards in tables.cards.isolation.items():
        found[kind if kind in isolation.WORDS else _OTHER if kind else isolation.ADVISORY] += cards
    return found


def _largest(requested: Mapping[str, int]) -> Iterator[tuple[str, int]]:
    """The namespaces with the largest values, and the sum of the others."""
    positive = {name: amount for name, amount in requested.items() if amount > 0}
    if len(positive) > series.MOST_NAMESPACES:
        most = dict(nlargest(series.MOST_NAMESPACES, positive.items(), key=lambda item: (item[1], item[0])))
        others = sum(positive.values()) - sum(most.values())
        positive = most | {_OTHER_NAMESPACES: others}
    yield from positive.items()


def _two_gauges(first: Series, second: Series, values: Iterable[tuple[str, int, int]]) -> Iterator[bytes]:
    """Two families over the same series. A family's lines must be contiguous, so the second follows the first."""
    waiting = [second.head()]
    yield first.head()
    rest = iter(values)
    while piece := list(islice(rest, _PIECE)):
        waiting.append(_lines(f"{second.name}{{{labels}}} {value}" for labels, _, value in piece))
        yield _lines(f"{first.name}{{{labels}}} {value}" for labels, value, _ in piece)
    yield from waiting


def family(one: Series, values: Iterable[tuple[str, float]]) -> bytes:
    """Text of a family. values: by labels in text format."""
    return one.head() + _lines(f"{one.name}{{{labels}}} {value}" for labels, value in values)


def _lines(lines: Iterable[str]) -> bytes:
    return "".join(f"{line}\n" for line in lines).encode()


def escaped(value: str) -> str:
    """Return the label value with special characters escaped, because a node's annotation may contain any text."""
    return value.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")
