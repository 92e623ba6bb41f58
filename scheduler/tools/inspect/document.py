"""The JSON of `kubectl inspect gpushare -o json`. Pure.

The shape is documented in docs/inspect.md; fields may be added, none is removed or changes its meaning.
"""

from collections.abc import Sequence

import msgspec

from scheduler.tools.inspect.node_cards import InspectedCard
from scheduler.tools.inspect.view import Holder, InspectedNode


class _Document(msgspec.Struct, rename="camel"):
    """Units are memory units of the node."""


class _Card(_Document):
    index: int
    uuid: str
    health: str
    total_units: int
    allocated_units: int
    free_units: int
    model: str
    reason: str
    cordoned: bool


class _Pod(_Document):
    namespace: str
    name: str
    cards: dict[str, int]
    pending_units: int


class _Node(_Document):
    name: str
    address: str
    unit_mib: int | None = msgspec.field(name="unitMiB")
    total_units: int
    allocated_units: int
    pending_units: int
    cards: list[_Card]
    pods: list[_Pod]
    problem: str


class _Nodes(_Document):
    nodes: list[_Node]


def as_json(nodes: Sequence[InspectedNode]) -> str:
    """The text, indented, with a line end."""
    document = _Nodes([_node(node) for node in nodes])
    return msgspec.json.format(msgspec.json.encode(document), indent=2).decode() + "\n"


def _node(node: InspectedNode) -> _Node:
    return _Node(
        name=node.name,
        address=node.address,
        unit_mib=node.unit_mib,
        total_units=node.total,
        allocated_units=node.allocated,
        pending_units=node.pending,
        cards=[_card(card) for card in node.cards],
        pods=[_pod(holder) for holder in node.holders],
        problem=node.problem,
    )


def _card(card: InspectedCard) -> _Card:
    return _Card(
        index=card.index,
        uuid=card.uuid,
        health=card.health,
        total_units=card.total,
        allocated_units=card.allocated,
        free_units=card.total - card.allocated,
        model=card.model,
        reason=card.reason,
        cordoned=card.cordoned,
    )


def _pod(holder: Holder) -> _Pod:
    cards = {str(index): units for index, units in sorted(holder.units.items())}
    return _Pod(holder.namespace, holder.name, cards, holder.pending)
