"""A node's GPU memory, read from the Node object; and the codes of the card models that a pod accepts. Pure.

The source is the inventory annotation or the legacy totals (`gpu-count` equal cards of `gpu-mem / gpu-count` units).

A model's code (`CardColumns.model_code`) is never reused, even after the last node with that model is gone: waiting
pods, weights, rows of the page and columns of rules are stored by code; if one of them missed a reuse, a pod could wait
forever. A limit on names would reject other nodes' models. So a faulty node agent can add names without limit, and the
scheduler looks up only the models that a pod names.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import IntEnum
from typing import Final

import numpy as np

from config.protocol import names, quantity
from config.protocol.inventory import MAX_CARDS, MAX_UNITS, Card, Health, InventoryError, decode, nameless
from scheduler.kube.objects import Node
from scheduler.pods.gpu_request import ResourceNames, Selection
from scheduler.state.changes import Change
from scheduler.state.columns.arrays import BoolArray


def accepted_codes(asked: Selection, codes: Mapping[str, int]) -> BoolArray:
    """bool[models + 2], by code: whether the pod accepts the model. First element: no card; last: future codes.

    codes: each model's code, from 1. The name of a future model is unknown: only pods without model requirements accept
    it.
    """
    found = np.full(2 + len(codes), not asked.wanted)
    for name in asked.wanted | asked.excluded:
        if (code := codes.get(name)) is not None:
            found[code] = asked.accepts(name)
    found[0] = False
    return found


# Maximum number of pods on one card.
MOST_SHARERS: Final = 9999
# In the format of a heartbeat, so that the two compare as text.
_TIME: Final = re.compile(r"[0-9]{4}(?:-[0-9]{2}){2}T[0-9]{2}(?::[0-9]{2}){2}Z")
_LONGEST_REASON: Final = 64
_OPEN: Final = frozenset({Health.HEALTHY, Health.CORDONED})


class GpuState(IntEnum):
    """Whether a node's cards can be allocated, and if not, why."""

    NO_CARDS = 0
    READY = 1
    UNREADABLE = 2
    OTHER_UNIT = 3
    NOT_ALLOCATABLE = 4
    NOT_REGISTERED = 5
    WITHHELD = 6


class Out(IntEnum):
    """Reason why new pods may not use a card. If several apply, the lowest value is used."""

    IN_USE = 0
    UNHEALTHY = 1
    SUSPECT = 2
    LISTED = 3  # by the legacy ConfigMap
    CORDONED = 4
    ANNOUNCED_TWICE = 5  # another node announces its UUID, too


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeInventory:
    """Cards of a node. allocatable: the kubelet's total of gpu-mem, 0 if absent. unit_mib: MiB in one of its units.

    cordoned: UUIDs, and indexes as text, that operators took out of use. has_uuids: False for the legacy totals.
    problem: error in the annotation, for the log; "" for none.
    """

    state: GpuState
    cards: tuple[Card, ...] = ()
    allocatable: int = 0
    unit_mib: int = 1024
    cordoned: frozenset[str] = frozenset()
    has_uuids: bool = True
    problem: str = ""

    def out(self, card: Card, marked_unhealthy: frozenset[int]) -> Out:
        """Why new pods may not use the card. marked_unhealthy: indexes from the legacy ConfigMap.

        What names the parent of a MIG instance holds for the instance.
        """
        if card.health not in _OPEN:
            return Out.UNHEALTHY if card.health is Health.UNHEALTHY else Out.SUSPECT
        parts = (card, *(other for other in self.cards if card.parent and other.uuid == card.parent))
        if any(part.index in marked_unhealthy for part in parts):
            return Out.LISTED
        named = {name for part in parts for name in (part.uuid, str(part.index))}
        return Out.IN_USE if self.cordoned.isdisjoint(named) else Out.CORDONED


def max_sharers(text: str) -> int:
    """Limit of pods per card from a node's annotation; 0 if it is missing or unreadable."""
    readable = text.isascii() and text.isdigit() and len(text) <= len(str(MOST_SHARERS))
    return min(int(text), MOST_SHARERS) if readable else 0


def held(node: Node) -> bool:
    """Whether the device plugin requests a delay because the kubelet may not know it yet, despite its last report.

    The delay ends when the kubelet has sent a later report by the same clock.
    """
    until = (node.metadata.annotations or {}).get(names.HELD_UNTIL, "")
    return bool(_TIME.fullmatch(until)) and "" < node.status.reported_at() < until


def read_inventory(node: Node, resources: ResourceNames, unit_mib: int) -> NodeInventory:
    """Cards that `node` announces, in units of `unit_mib` MiB. Never raises for invalid annotations."""
    found = _read(node, resources, unit_mib)
    said = (node.metadata.annotations or {}).get(names.MAX_SHARERS)
    if said is None or max_sharers(said) or found.problem:
        return found
    problem = f"{names.MAX_SHARERS}: {said[:64]!r} is not a number of pods; expected 1 to {MOST_SHARERS}"
    return replace(found, problem=problem)


def _read(node: Node, resources: ResourceNames, unit_mib: int) -> NodeInventory:
    annotations = node.metadata.annotations or {}
    allocatable = _amount(node.status.allocatable, resources.gpu_mem)
    cordoned = frozenset(entry.strip() for entry in annotations.get(names.CORDON, "").split(",") if entry.strip())
    text = annotations.get(names.INVENTORY)
    if text is None:
        return replace(_legacy_totals(node, resources, allocatable, cordoned), unit_mib=unit_mib)
    try:
        inventory = decode(text)
    except InventoryError as error:
        return NodeInventory(
            state=GpuState.UNREADABLE,
            allocatable=allocatable,
            unit_mib=unit_mib,
            cordoned=cordoned,
            problem=str(error),
        )
    state, problem = GpuState.READY if allocatable > 0 else GpuState.NOT_ALLOCATABLE, ""
    if state is GpuState.READY and held(node):
        state = GpuState.NOT_REGISTERED
    if inventory.withheld:
        # IDs that containers hold stay listed, so the kubelet's total includes them.
        state = GpuState.WITHHELD
    if inventory.unit_mib != unit_mib:
        state = GpuState.OTHER_UNIT
        problem = (
            f"the node announces units of {inventory.unit_mib} MiB, but this scheduler counts units of {unit_mib} MiB"
        )
    return NodeInventory(
        state=state,
        cards=inventory.cards,
        allocatable=allocatable,
        unit_mib=inventory.unit_mib,
        cordoned=cordoned,
        problem=problem,
    )


def _legacy_totals(node: Node, resources: ResourceNames, allocatable: int, cordoned: frozenset[str]) -> NodeInventory:
    capacity = _amount(node.status.capacity, resources.gpu_mem) or allocatable
    count = _amount(node.status.capacity, resources.gpu_count) or _amount(node.status.allocatable, resources.gpu_count)
    if capacity <= 0:
        return NodeInventory(state=GpuState.NO_CARDS)
    if not count:
        # A device plugin registers first and writes its annotations later.
        return NodeInventory(state=GpuState.UNREADABLE, allocatable=allocatable)
    if not 0 < count <= MAX_CARDS or capacity // count > MAX_UNITS:
        problem = f"{resources.gpu_mem} {capacity} on {resources.gpu_count} {count}; expected 1 to {MAX_CARDS} cards"
        return NodeInventory(state=GpuState.UNREADABLE, allocatable=allocatable, problem=problem)
    cards = tuple(
        Card(index=index, uuid=nameless(index), model="", memory_mib=0, units=capacity // count)
        for index in range(count)
    )
    state = GpuState.READY if allocatable > 0 else GpuState.NOT_ALLOCATABLE
    return NodeInventory(state=state, cards=cards, allocatable=allocatable, cordoned=cordoned, has_uuids=False)


def _amount(quantities: Mapping[str, str | int | float] | None, name: str) -> int:
    text = (quantities or {}).get(name)
    return 0 if text is None else max(0, quantity.whole(str(text)))


def newly_unhealthy(before: NodeInventory | None, now: NodeInventory) -> dict[int, str]:
    """Map the slot of each card that has become unhealthy to a text that names the card and the reason."""
    if before is None:
        return {}
    were = {card.uuid for card in before.cards if card.health is not Health.UNHEALTHY}
    return {
        slot: f"card {card.index} ({card.uuid}) is unhealthy: {card.reason[:_LONGEST_REASON] or 'no reason given'}"
        for slot, card in enumerate(now.cards)
        if card.health is Health.UNHEALTHY and card.uuid in were
    }


def node_differences(old: Node, new: Node) -> int:
    """Bits of every Change between two states of a node, except INVENTORY, which is compared when it is read."""
    kinds = Change(0)
    if old.metadata.labels != new.metadata.labels:
        kinds |= Change.LABELS
    if old.metadata.annotations != new.metadata.annotations:
        kinds |= Change.ANNOTATIONS
    if old.spec.taints != new.spec.taints:
        kinds |= Change.TAINTS
    if old.spec.unschedulable != new.spec.unschedulable:
        kinds |= Change.UNSCHEDULABLE
    if (old.status.allocatable, old.status.capacity) != (new.status.allocatable, new.status.capacity):
        kinds |= Change.ALLOCATABLE
    if old.status.declared_features != new.status.declared_features:
        kinds |= Change.FEATURES
    if old.status.images != new.status.images:
        kinds |= Change.IMAGES
    if held(old) != held(new):
        kinds |= Change.ANNOTATIONS
    return int(kinds)
