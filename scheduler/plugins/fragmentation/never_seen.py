"""Requests that count a little before any pod has made them, so that the first such pod also finds room.

They are a whole node, for each shape of node with several cards, and, if there are several models, one card of each
model with its share of the CPU. Otherwise the first pods could fill all the nodes that a later pod may use.
"""

from typing import Final

import numpy as np

from scheduler.plugins.fragmentation.requests_seen import Shape
from scheduler.pods.gpu_request import Selection
from scheduler.state.columns.arrays import ALL_ROWS, Int64Array
from scheduler.state.columns.resources import CPU_INDEX
from scheduler.state.tables import Tables

# Maximum of each of the two kinds; the most frequent ones count.
_MOST: Final = 16
_LARGEST: Final = np.iinfo(np.int32).max


def never_seen(tables: Tables) -> list[Shape]:
    """Requests derived from the nodes, most frequent first."""
    nodes, cards = [], []
    for group in tables.cards.groups(ALL_ROWS):
        with tables.cards.viewing(group.width):
            units, model = tables.cards.units[:, group.rows], tables.cards.model[:, group.rows]
            cpu = tables.resources.allocatable[CPU_INDEX, group.rows]
            there = units > 0
            count = there.sum(axis=0)
            nodes.append(np.stack([cpu, count, np.where(there, units, _LARGEST).min(axis=0)])[:, count > 1])
            share = np.broadcast_to(cpu // np.maximum(count, 1), units.shape)
            cards.append(np.stack([share[there], units[there], model[there]]))
    whole = [Shape(cpu, count, units) for cpu, count, units in _most_frequent(np.concatenate(nodes, axis=1))]
    return whole + _of_models(np.concatenate(cards, axis=1), tables.cards.model_code)


def _of_models(cards: Int64Array, codes: dict[str, int]) -> list[Shape]:
    """Requests for one card of each model. cards: int64[3, cards]: CPU millis, units, and model code of each card."""
    names = ("", *codes)  # by code
    there = [code for (code,) in _most_frequent(cards[2:])]
    if len(there) == 1:
        return []
    of_each = ((names[code], cards[:2, cards[2] == code].min(axis=1).tolist()) for code in there)
    return [Shape(cpu, 1, units, Selection(frozenset({name}))) for name, (cpu, units) in of_each]


def _most_frequent(columns: Int64Array) -> list[list[int]]:
    """Distinct columns, at most _MOST, most frequent first; ties in their own order."""
    # Encode each column as one number in the same order: comparing columns takes ten times as long.
    number = np.zeros(columns.shape[1], dtype=np.int64)
    for column in columns:
        values, place = np.unique(column, return_inverse=True)
        _, number = np.unique(number * len(values) + place, return_inverse=True)
    _, first, counts = np.unique(number, return_index=True, return_counts=True)
    order = first[np.argsort(-counts, kind="stable")[:_MOST]]
    found: list[list[int]] = columns[:, order].T.tolist()
    return found
