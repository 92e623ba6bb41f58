"""Usage of the cluster: requested and free memory of each card, each node and in total, as the scheduler counts it.

Memory is free only if new pods could get it: a card out of use, or on a node with a problem, has none. Pure.
"""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any, Final

import msgspec

from scheduler.core.engine import Engine
from scheduler.plugins.fragmentation.card_layouts import CardLayouts
from scheduler.plugins.fragmentation.measure import fragmentation_of
from scheduler.state.cards.card_columns import CardOnNode
from scheduler.state.cards.node_inventory import GpuState, Out
from scheduler.state.tables import Tables
from scheduler.tools.explain.answers import Answer, HeldUnits
from scheduler.tools.inspect.view import no_units

_OUT: Final[Mapping[int, str]] = {
    Out.UNHEALTHY: "unhealthy",
    Out.SUSPECT: "suspect",
    Out.LISTED: "listed as unhealthy",
    Out.CORDONED: "cordoned",
    Out.ANNOUNCED_TWICE: "announced twice",
}
_WITH_REASON: Final = frozenset({int(Out.UNHEALTHY), int(Out.SUSPECT)})
_STATES: Final[Mapping[int, str]] = {
    GpuState.UNREADABLE: "its cards are not announced, or cannot be read",
    GpuState.OTHER_UNIT: "its memory unit differs from the scheduler's",
    GpuState.NOT_ALLOCATABLE: "nothing is allocatable: its device plugin is not running",
    GpuState.NOT_REGISTERED: "its device plugin is being registered",
    GpuState.WITHHELD: "its cards cannot be injected into containers",
}


class UsedCard(Answer, frozen=True):
    """Usage of a card. requested: units that pods on it hold. free: >= 0. out: why it takes no new pods, or "".

    held: whether a pod holds it exclusively. holders: its pods, those with the most units first. isolation: kind that
    enforces shares of its memory, "" if nothing does.
    """

    node: str
    index: int
    uuid: str
    model: str
    units: int
    requested: int
    free: int
    out: str
    held: bool
    pods: int
    holders: tuple[HeldUnits, ...] = ()
    isolation: str = ""


class UsedNode(Answer, frozen=True):
    """Usage of a node. most_free: most free units on one card. out: cards out of use; held: cards held exclusively.

    pods: number of pods that hold units.
    fragmented: free units that the cluster's pods could not use, averaged over their requests. unknown: units of pods
    on cards that the node does not announce. problem: why no card takes new pods, or "". models: its cards' models.
    isolation: kinds on its cards, with "" for cards without any.
    """

    node: str
    cards: int
    units: int
    requested: int
    free: int
    fragmented: int
    most_free: int
    out: int
    held: int
    pods: int
    unknown: int
    problem: str
    models: tuple[str, ...] = ()
    isolation: tuple[str, ...] = ()


class ClusterUsage(Answer, frozen=True):
    """Usage of the cluster. most_free: most free units on one card, which is on `most_free_node`.

    waiting: pods that wait for this scheduler. fragmented: as in UsedNode, but rounded only once, so it may differ from
    the sum over the nodes. largest: units of the largest card, whatever is on it. too_large: waiting pods that request
    more than that on one card. enforced: cards on which something enforces shares of memory.
    """

    nodes: int
    cards: int
    units: int
    requested: int
    free: int
    fragmented: int
    most_free: int
    most_free_node: str
    out: int
    held: int
    pods: int
    waiting: int
    problems: int
    largest: int = 0
    too_large: int = 0
    enforced: int = 0


class Top(Answer, frozen=True):
    """Usage of cluster, nodes and cards, in order of name and index until sorted."""

    cluster: ClusterUsage
    nodes: tuple[UsedNode, ...]
    cards: tuple[UsedCard, ...]


def top(engine: Engine) -> Top:
    """Return every node with cards, or with pods that hold some."""
    tables, nodes, cards = engine.tables, list[UsedNode](), list[UsedCard]()
    measure = fragmentation_of(engine.tables)
    for name in sorted(tables.row_of):
        row = tables.row_of[name]
        own = _cards(tables, name, row)
        pods = sum(1 for record in tables.records_on(name) if record.written.units and not record.nominated)
        if own or pods:
            cards += own
            nodes.append(_node(tables, name, own, pods, round(measure.unusable[row])))
    cluster = _cluster(nodes, sum(engine.queue.lengths().values()), round(measure.total().unusable))
    largest = CardLayouts(tables).largest()
    enforced = sum(bool(card.isolation) for card in cards)
    too_large = _larger_than(largest, engine)
    cluster = msgspec.structs.replace(cluster, largest=largest, too_large=too_large, enforced=enforced)
    return Top(cluster=cluster, nodes=tuple(nodes), cards=tuple(cards))


def _larger_than(largest: int, engine: Engine) -> int:
    """Return how many waiting pods request more units than that on one card."""
    requests = (entry.pod.template.gpu_request for entry in engine.queue)
    return sum(one is not None and one.units_per_card > largest for one in requests)


def _cards(tables: Tables, name: str, row: int) -> list[UsedCard]:
    on: dict[int, list[HeldUnits]] = {}
    for record in tables.records_on(name):
        if record.held is not None and not record.nominated:
            for slot, units in record.held.places:
                held = HeldUnits(
                    pod=str(record.pod.key),
                    units=units,
                    exclusive=record.exclusive,
                    terminating=record.pod.terminating,
                )
                on.setdefault(slot, []).append(held)
    slots = enumerate(tables.cards.slots[row])
    return [_card(tables, row, number, slot, on.get(number, [])) for number, slot in slots]


def _card(tables: Tables, row: int, number: int, slot: CardOnNode, holders: Sequence[HeldUnits]) -> UsedCard:
    stored, card = tables.cards.stored, slot.card
    taken, usable = int(stored.taken[number, row]), bool(stored.usable[number, row])
    held = bool(stored.exclusive[number, row])
    out = int(stored.out[number, row])
    why = _OUT.get(out, "")
    if card.reason and out in _WITH_REASON:
        why = f"{why} ({card.reason})"
    return UsedCard(
        node=tables.names[row],
        index=card.index,
        uuid=card.uuid,
        model=card.model,
        units=card.units,
        requested=taken,
        free=max(0, card.units - taken) if usable and not held and not _problem(tables, row) else 0,
        out=why,
        held=held,
        pods=len(holders),
        holders=tuple(sorted(holders, key=lambda one: (-one.units, one.pod))),
        isolation=card.isolation,
    )


def _problem(tables: Tables, row: int) -> str:
    if tables.unschedulable[row]:
        return "the node is cordoned"
    return _STATES.get(int(tables.cards.state[row]), "")


def _all_out(cards: Sequence[UsedCard], slots: Sequence[CardOnNode]) -> str:
    """Return why no card takes new pods; "" if one does.

    Checked before the node's state, which would only say that nothing is allocatable.
    """
    why = [
        used.out or ("" if slot.card.units else no_units(slot.card.reason))
        for used, slot in zip(cards, slots, strict=True)
    ]
    return f"no card takes new pods: {', '.join(dict.fromkeys(why))}" if why and all(why) else ""


def _node(tables: Tables, name: str, cards: Sequence[UsedCard], pods: int, fragmented: int) -> UsedNode:
    row = tables.row_of[name]
    return UsedNode(
        node=name,
        cards=len(cards),
        units=sum(card.units for card in cards),
        requested=sum(card.requested for card in cards),
        free=sum(card.free for card in cards),
        fragmented=fragmented,
        most_free=max((card.free for card in cards), default=0),
        out=sum(bool(card.out) for card in cards),
        held=sum(card.held for card in cards),
        pods=pods,
        unknown=int(tables.cards.lost[row]),
        problem=_all_out(cards, tables.cards.slots[row]) or _problem(tables, row),
        models=tuple(dict.fromkeys(card.model for card in cards if card.model)),
        isolation=tuple(dict.fromkeys(card.isolation for card in cards)),
    )


def _cluster(nodes: Sequence[UsedNode], waiting: int, fragmented: int) -> ClusterUsage:
    best = max(nodes, key=lambda node: node.most_free, default=None)  # the first by name on ties

    def total(of: Callable[[UsedNode], int]) -> int:
        return sum(map(of, nodes))

    return ClusterUsage(
        nodes=len(nodes),
        cards=total(lambda node: node.cards),
        units=total(lambda node: node.units),
        requested=total(lambda node: node.requested),
        free=total(lambda node: node.free),
        fragmented=fragmented,
        most_free=0 if best is None else best.most_free,
        most_free_node="" if best is None else best.node,
        out=total(lambda node: node.out),
        held=total(lambda node: node.held),
        pods=total(lambda node: node.pods),
        waiting=waiting,
        problems=total(lambda node: bool(node.problem)),
    )


_KEYS: Final[Mapping[str, Callable[[Any], int]]] = {
    "name": lambda _: 0,
    "free": lambda one: -one.free,
    "requested": lambda one: -one.requested,
    "most-free": lambda one: -getattr(one, "most_free", one.free),
    "pods": lambda one: -one.pods,
    # Cards have no such number, because their free memory is evaluated with the node's other cards.
    "fragmented": lambda one: -getattr(one, "fragmented", 0),
}
SORTS: Final = tuple(_KEYS)


def sorted_by(found: Top, key: str) -> Top:
    """Sort the usage. key: one of SORTS; ties by name and index."""
    by = _KEYS[key]
    return Top(cluster=found.cluster, nodes=_sorted(found.nodes, by), cards=_sorted(found.cards, by))


def _sorted(entries: Iterable[Any], by: Callable[[Any], Any]) -> tuple[Any, ...]:
    return tuple(sorted(entries, key=by))


def of_nodes(found: Top, names: Collection[str]) -> Top:
    """Return only the named nodes with their cards, and the named cards with their nodes. names: of nodes, or UUIDs."""
    cards = tuple(card for card in found.cards if card.node in names or card.uuid in names)
    nodes = {*names, *(card.node for card in cards)}
    return Top(cluster=found.cluster, nodes=tuple(node for node in found.nodes if node.node in nodes), cards=cards)
