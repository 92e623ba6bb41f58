"""Nodes and their cards as columns of JSON, and the pods on them: for a browser that keeps 5,000 nodes.

A column is a list over rows, or over the cards of these rows, row by row. So a row costs a few microseconds, and a
browser reads 40,000 cards in some tens of milliseconds. Nominated pods are left out, because the tables show different
ones at different times.
"""

from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from typing import Final, TypeAlias

import msgspec

from config.protocol.isolation import worded
from scheduler.kube.port import PodKey
from scheduler.state.cards.card_arrays import CardStore
from scheduler.state.cards.card_columns import CardOnNode
from scheduler.state.columns.arrays import Int32Array, Int64Array
from scheduler.state.pod_record import PodRecord
from scheduler.state.tables import Tables

# About a millisecond.
PIECE: Final = 250
# A node with more cards than this is shown by its first ones and by its sums.
MOST_CARDS: Final = 64

# [namespace, name, [slot, units, slot, units, …], flags]
PodOnRow: TypeAlias = tuple[str, str, list[int], int]

EXCLUSIVE: Final = 1
TERMINATING: Final = 2
ASSUMED: Final = 4
UNKNOWN_CARDS: Final = 8


class Rows(msgspec.Struct, kw_only=True, tag="rows", tag_field="t", omit_defaults=True):
    """Current values of some rows. name: "" for a deleted node. state: a GpuState. cards: number of cards that follow.

    For each card: units, taken (units booked on it), out (an Out), pods (number on it), alone (whether they hold it
    exclusively), model (an index of `models`). models: all models, if one of them is new. total: cards of the nodes
    that have more than MOST_CARDS, by row. pods: each row's, if they are included.
    """

    version: int
    row: list[int]
    name: list[str]
    state: list[int]
    cards: list[int]
    units: list[int]
    taken: list[int]
    out: list[int]
    pods: list[int]
    alone: list[int]
    model: list[int]
    models: list[str] = []
    total: dict[int, int] = {}
    on: dict[int, list[PodOnRow]] = {}


def rows_message(tables: Tables, rows: Sequence[int], known_models: int) -> Rows:
    """Return a message about the rows. known_models: number of models that the reader knows."""
    cards, names = tables.cards, tables.names
    models = cards.model_code
    message = Rows(
        version=tables.changes.version,
        row=list(rows),
        name=[names[row] for row in rows],
        state=cards.state[list(rows)].tolist(),
        cards=[min(len(cards.slots[row]), MOST_CARDS) for row in rows],
        units=[],
        taken=[],
        out=[],
        pods=[],
        alone=[],
        model=[],
        models=["", *models] if len(models) + 1 != known_models else [],
        total={row: len(cards.slots[row]) for row in rows if len(cards.slots[row]) > MOST_CARDS},
    )
    stored = cards.stored
    places = list(rows)
    taken, holders = stored.taken[:MOST_CARDS, places], stored.holders[:MOST_CARDS, places]
    alone = stored.exclusive[:MOST_CARDS, places]
    _without_nominated(tables, rows, taken, holders, alone)
    for columns, into in (
        (stored.units[:MOST_CARDS, places], message.units),
        (taken, message.taken),
        (stored.out[:MOST_CARDS, places], message.out),
        (holders, message.pods),
        (alone, message.alone),
        (stored.model[:MOST_CARDS, places], message.model),
    ):
        # One copy for all rows; from NumPy to Python only once.
        for count, values in zip(message.cards, columns.T.tolist(), strict=True):
            into.extend(values[:count])
    return message


def _without_nominated(
    tables: Tables, rows: Sequence[int], taken: Int64Array, holders: Int32Array, alone: Int32Array
) -> None:
    if not tables.any_nominated:
        return
    for place, row in enumerate(rows):
        for record in tables.nominated_on(row):
            for slot, units in () if record.held is None else record.held.places[:MOST_CARDS]:
                taken[slot, place] -= units
                holders[slot, place] -= 1
                alone[slot, place] -= record.exclusive


def pods_on(tables: Tables, row: int) -> list[PodOnRow]:
    """Return the pods that hold GPU memory on a row, largest first."""
    found = []
    for record in _on_cards(tables, tables.names[row]):
        if record.held is not None:
            places = [number for place in record.held.places[:MOST_CARDS] for number in place]
            found.append((record.pod.key.namespace, record.pod.key.name, places, _flags(record)))
    return sorted(found, key=lambda one: (-sum(one[2][1::2]), one[0], one[1]))


def _flags(record: PodRecord) -> int:
    unknown = record.held is not None and record.held.unknown
    return (
        EXCLUSIVE * record.exclusive
        + TERMINATING * record.pod.terminating
        + ASSUMED * record.assumed
        + UNKNOWN_CARDS * unknown
    )


class CardDetail(msgspec.Struct, rename="camel"):
    """One card of one node. health: with its reason. out: an Out. isolation: in words."""

    index: int
    uuid: str
    model: str
    units: int
    taken: int
    health: str
    reason: str
    out: int
    isolation: str


class PodDetail(msgspec.Struct, rename="camel"):
    """One pod of one node. places: slot, units, slot, units, …."""

    namespace: str
    name: str
    places: list[int]
    flags: int
    priority: int
    created: str


class NodeDetail(msgspec.Struct, rename="camel"):
    """One node. problem: error of its inventory. lost: units that pods hold on cards that it does not announce."""

    name: str
    state: int
    unschedulable: bool
    allocatable: int
    problem: str
    lost: int
    cards: list[CardDetail]
    pods: list[PodDetail]


def node_detail(tables: Tables, name: str) -> NodeDetail | None:
    """Return everything about one node; None if it does not exist."""
    row = tables.row_of.get(name)
    if row is None:
        return None
    inventory, cards = tables.inventory(name), tables.cards
    return NodeDetail(
        name=name,
        state=int(cards.state[row]),
        unschedulable=bool(tables.unschedulable[row]),
        allocatable=int(cards.allocatable[row]),
        problem=inventory.problem,
        lost=int(cards.lost[row]),
        cards=[_card(cards.stored, row, number, slot) for number, slot in enumerate(cards.slots[row])],
        pods=[
            PodDetail(
                namespace=record.pod.key.namespace,
                name=record.pod.key.name,
                places=[number for place in record.held.places for number in place],
                flags=_flags(record),
                priority=record.pod.priority,
                created=record.pod.created,
            )
            for record in _largest_first(_on_cards(tables, name))
            if record.held is not None
        ],
    )


def _on_cards(tables: Tables, node: str) -> Iterator[PodRecord]:
    return (one for one in tables.records_on(node) if one.held is not None and one.written.units and not one.nominated)


def _largest_first(records: Iterable[PodRecord]) -> list[PodRecord]:
    return sorted(records, key=lambda record: (-record.written.units, str(record.pod.key)))


def _card(stored: CardStore, row: int, number: int, slot: CardOnNode) -> CardDetail:
    return CardDetail(
        index=slot.card.index,
        uuid=slot.card.uuid,
        model=slot.card.model,
        units=slot.card.units,
        taken=int(stored.taken[number, row]),
        health=str(slot.card.health),
        reason=slot.card.reason,
        out=int(stored.out[number, row]),
        isolation=worded(slot.card.isolation),
    )


def found_pods(tables: Tables, text: str, most: int) -> list[tuple[PodKey, str]]:
    """Return (pod, node) of the first pods whose name or namespace/name contains `text`."""
    found = (
        (record.pod.key, record.node)
        for record in tables.records()
        if record.written.units and text in str(record.pod.key)
    )
    return list(islice(found, most))
