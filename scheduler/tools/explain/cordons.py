"""Cordoning and uncordoning of a node's cards: the new annotation, and the message. Pure.

docs/develop/protocol.md, "Cordon", describes the annotation.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from config.protocol import names
from scheduler.process.terminal import some
from scheduler.state.cards.card_columns import CardOnNode
from scheduler.state.cards.node_inventory import Out
from scheduler.state.tables import Tables

_MOST_PODS: Final = 5
_ELSEWHERE: Final = {
    Out.UNHEALTHY: "is unhealthy and takes no pods until it has recovered",
    Out.SUSPECT: "is suspect and takes no pods until it is healthy",
    Out.LISTED: f"ConfigMap {names.UNHEALTHY_NAMESPACE}/{names.UNHEALTHY_PREFIX}NODE lists it, so it takes no pods",
    Out.ANNOUNCED_TWICE: "is also announced by another node, so it takes no new pods here",
}


class NoSuchCard(Exception):
    """The node has no such card. The message lists its cards."""


@dataclass(frozen=True, slots=True)
class Cordon:
    """Result of a change. value: the annotation's value, None to remove it. changed: whether it differs from before.

    words: one line each. added: each newly cordoned card, index to entry. cards: the node's. affected: cards whose
    cordon changes. verb: what happens to them.
    """

    value: str | None
    changed: bool
    words: tuple[str, ...]
    added: Mapping[int, str] = field(default_factory=dict[int, str])
    cards: int = 0
    affected: int = 0
    verb: str = "cordoned"


def cordoned(tables: Tables, node: str, cards: Sequence[str]) -> Cordon:
    """Cordon these cards, given as UUIDs or indexes; without any, the whole node. Raises NoSuchCard."""
    slots, before = _chosen(tables, node, cards), _entries(tables, node)
    entries, words, added = list(before), list[str](), dict[int, str]()
    for number, slot in slots:
        entry = _entry(tables, node, slot)
        pods = _pods(tables, node, number)
        stay = f"its pods stay: {some(pods, _MOST_PODS)}" if pods else "no pod uses it"
        if entry in entries:
            words.append(f"node {node}: {_name(slot)} was already cordoned; {stay}")
        else:
            entries.append(entry)
            added[slot.card.index] = entry
            words.append(f"node {node}: {_name(slot)} takes no new pods; {stay}")
    count = len(tables.cards.slots[tables.row_of[node]])
    return Cordon(",".join(entries), entries != before, tuple(words), added, count, len(added))


def uncordoned(tables: Tables, node: str, cards: Sequence[str]) -> Cordon:
    """Uncordon these cards; without any, all entries. Raises NoSuchCard."""
    before = _entries(tables, node)
    foreign = [entry for entry in cards if entry in before and not _found(tables, node, entry)]
    own = [card for card in cards if card not in foreign]
    slots = _chosen(tables, node, own) if own or not cards else []
    gone = {_entry(tables, node, slot) for _, slot in slots} | set(foreign)
    entries = [entry for entry in before if entry not in gone] if cards else []
    words = [_back(tables, node, number, slot, before) for number, slot in slots]
    words += [f"node {node}: {entry}, which is not a card of the node, was removed from the list" for entry in foreign]
    count, affected = len(tables.cards.slots[tables.row_of[node]]), len(before) - len(entries)
    value = ",".join(entries) or None
    return Cordon(value, entries != before, tuple(words), cards=count, affected=affected, verb="uncordoned")


def without(tables: Tables, node: str, entries: Sequence[str]) -> Cordon:
    """Remove these entries if the node has them, even if their cards no longer exist."""
    before = _entries(tables, node)
    left = [entry for entry in before if entry not in entries]
    return Cordon(",".join(left) or None, left != before, ())


def _back(tables: Tables, node: str, number: int, slot: CardOnNode, before: Sequence[str]) -> str:
    if _entry(tables, node, slot) not in before:
        return f"node {node}: {_name(slot)} was not cordoned"
    other = _ELSEWHERE.get(Out(int(tables.cards.stored.out[number, tables.row_of[node]])))
    if other:
        return f"node {node}: {_name(slot)} is no longer cordoned, but {other.replace('NODE', node)}"
    return f"node {node}: {_name(slot)} takes new pods again"


def _entries(tables: Tables, node: str) -> list[str]:
    """Return the entries in order, without duplicates. The index of a card becomes its UUID."""
    text = (tables.node(node).metadata.annotations or {}).get(names.CORDON, "")
    entries = [entry.strip() for entry in text.split(",") if entry.strip()]
    return list(
        dict.fromkeys(
            _entry(tables, node, found[0][1]) if (found := _found(tables, node, entry)) else entry for entry in entries
        )
    )


def _chosen(tables: Tables, node: str, cards: Sequence[str]) -> list[tuple[int, CardOnNode]]:
    slots = list(enumerate(tables.cards.slots[tables.row_of[node]]))
    if not slots:
        raise NoSuchCard(f"node {node} announces no cards")
    chosen = dict[int, CardOnNode]()
    for card in cards:
        found = _found(tables, node, card)
        if not found:
            raise NoSuchCard(f"node {node} has no card {card}; it has {', '.join(_name(slot) for _, slot in slots)}")
        chosen.update(found)
    return sorted(chosen.items()) if cards else slots


def _found(tables: Tables, node: str, card: str) -> list[tuple[int, CardOnNode]]:
    slots = enumerate(tables.cards.slots[tables.row_of[node]])
    return [(number, slot) for number, slot in slots if card in {slot.card.uuid, str(slot.card.index)}]


def _entry(tables: Tables, node: str, slot: CardOnNode) -> str:
    """Return the entry of a card. A node that announces only totals has no UUIDs, so an index stays an index there."""
    return slot.card.uuid if tables.inventory(node).has_uuids else str(slot.card.index)


def _name(slot: CardOnNode) -> str:
    return f"card {slot.card.index} ({slot.card.uuid})"


def _pods(tables: Tables, node: str, number: int) -> list[str]:
    return sorted(
        f"{record.pod.key} ({units})"
        for record in tables.records_on(node)
        if record.held is not None and not record.nominated
        for slot, units in record.held.places
        if slot == number
    )
