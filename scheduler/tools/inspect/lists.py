"""Outputs of `kubectl inspect gpushare` in addition to the legacy text. Pure.

`-o wide` has a line for each card; `-o compact` has a line for each node that fits into 100 columns.

docs/inspect.md documents the JSON of `-o json`. Fields may be added, but never removed or changed in meaning.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final

import msgspec

from config.protocol.isolation import ADVISORY
from scheduler.process.terminal import columns, printable, some
from scheduler.tools.inspect.view import Holder, InspectedCard, InspectedNode

WIDTH: Final = 100
_CARDS_OF_A_LINE: Final = 8
_LONGEST_NAME: Final = 32
_LARGEST_NUMBER: Final = 999
_MOST_PODS: Final = 3
_MARKS: Final[Mapping[str, str]] = {"unhealthy": "!", "suspect": "?", "cordoned": "c"}
_LEGEND: Final = "! unhealthy  ? suspect  c cordoned  ~ pods are on cards that the node does not have"


def used_only(nodes: Sequence[InspectedNode]) -> tuple[InspectedNode, ...]:
    """Return the nodes on which pods hold units."""
    return tuple(node for node in nodes if node.holders)


def wide(nodes: Sequence[InspectedNode], *, used: bool = False) -> str:
    """Return a line for each card, one for a node's pods with unknown cards, and one for each node with a problem.

    used: only cards with pods.
    """
    head = ("NODE", "IPADDRESS", "CARD", "MODEL", "HEALTH", "ISOLATION", "ALLOCATED", "TOTAL", "FREE", "UUID", "PODS")
    rows = [row for node in nodes for row in _card_rows(node, used=used)]
    lines = [*columns(head, rows, right=(2, 6, 7, 8)), *_problems(nodes)]
    return printable(lines)


def compact(nodes: Sequence[InspectedNode]) -> str:
    """Return a line for each node: free memory of each card, and its health."""
    in_percent = any(card.total > _LARGEST_NUMBER for node in nodes for card in node.cards)
    cells = {node.name: [_cell(card, in_percent=in_percent) for card in node.cards] for node in nodes}
    wide = max((len(cell) for row in cells.values() for cell in row), default=1)
    rows = [row for node in nodes for row in _node_rows(node, [cell.rjust(wide) for cell in cells[node.name]])]
    title = f"FREE OF EACH CARD{' IN %' if in_percent else ''}"
    lines = [*columns(("NODE", "FREE", "TOTAL", "PODS", title), rows, right=(1, 2, 3))]
    lines += [*_problems(nodes), _LEGEND]
    return printable(line if len(line) <= WIDTH else f"{line[: WIDTH - 1]}…" for line in lines)


def _card_rows(node: InspectedNode, *, used: bool) -> Iterator[tuple[str, ...]]:
    for card in node.cards:
        pods = [f"{held.namespace}/{held.name} {own}" for held in node.holders if (own := held.units.get(card.index))]
        if used and not pods:
            continue
        numbers = (str(card.allocated), str(card.total), str(card.total - card.allocated))
        health, shown = card.out or card.health or "-", (card.model or "-", card.uuid or "-")
        first = (node.name, node.address, str(card.index), shown[0], health, card.isolation or ADVISORY)
        yield (*first, *numbers, shown[1], some(pods, _MOST_PODS))
    lost = [f"{held.namespace}/{held.name} {held.pending}" for held in node.holders if held.pending]
    if lost:
        pods_named = some(lost, _MOST_PODS)
        yield (node.name, node.address, "?", "-", "-", "-", str(node.pending), "-", "-", "-", pods_named)
    elif not node.cards and node.total > 0:
        yield (node.name, node.address, "-", "-", "-", "-", "0", str(node.total), str(node.total), "-", "")


def _node_rows(node: InspectedNode, cells: Sequence[str]) -> Iterator[tuple[str, ...]]:
    """Yield the node with its first cells, and further cells below."""
    takes = [] if node.problem else [card for card in node.cards if not card.out]
    free = sum(max(0, card.total - card.allocated) for card in takes)
    total = sum(card.total for card in node.cards) if node.cards else node.total
    lost = f"  ~{node.pending}" if node.pending else ""
    first = _CARDS_OF_A_LINE
    numbers = (str(free), str(total), str(len(node.holders)))
    yield (_cut(node.name), *numbers, " ".join(cells[:first]) + lost)
    for begin in range(first, len(cells), first):
        yield ("", "", "", "", " ".join(cells[begin : begin + first]))


def _cell(card: InspectedCard, *, in_percent: bool) -> str:
    """Return the free memory, with a mark if the card takes no new pods."""
    free = card.total - card.allocated
    number = (100 * free // card.total if card.total else 0) if in_percent else free
    return f"{number}{_MARKS.get(card.out.partition(' ')[0], '')}"


def _cut(name: str) -> str:
    """Return the end of a name, because it distinguishes the nodes of a pool."""
    return name if len(name) <= _LONGEST_NAME else f"…{name[1 - _LONGEST_NAME :]}"


def _problems(nodes: Iterable[InspectedNode]) -> Iterator[str]:
    """Yield why none of a node's cards takes new pods; nodes with the same problem together."""
    at: dict[str, list[str]] = {}
    for node in nodes:
        if node.problem:
            at.setdefault(node.problem, []).append(_cut(node.name))
    for problem, names in at.items():
        yield f"{some(names, _MOST_PODS)}: {problem}"


def as_json(nodes: Sequence[InspectedNode]) -> str:
    """Return indented JSON with a final line end. Units are memory units of the node."""
    document = {"nodes": [_node_json(node) for node in nodes]}
    return msgspec.json.format(msgspec.json.encode(document), indent=2).decode() + "\n"


def _node_json(node: InspectedNode) -> dict[str, object]:
    return {
        "name": node.name,
        "address": node.address,
        "unitMiB": node.unit_mib,
        "totalUnits": node.total,
        "allocatedUnits": node.allocated,
        "pendingUnits": node.pending,
        "cards": [_card_json(card) for card in node.cards],
        "pods": [_pod_json(holder) for holder in node.holders],
        "problem": node.problem,
    }


def _card_json(card: InspectedCard) -> dict[str, object]:
    return {
        "index": card.index,
        "uuid": card.uuid,
        "health": card.health,
        "totalUnits": card.total,
        "allocatedUnits": card.allocated,
        "freeUnits": card.total - card.allocated,
        "model": card.model,
        "reason": card.reason,
        "cordoned": card.cordoned,
        "isolation": card.isolation,
    }


def _pod_json(holder: Holder) -> dict[str, object]:
    cards = {str(index): units for index, units in sorted(holder.units.items())}
    return {"namespace": holder.namespace, "name": holder.name, "cards": cards, "pendingUnits": holder.pending}
