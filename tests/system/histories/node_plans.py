"""Nodes of random histories: what each one is like, and what may become of it."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Final, TypeAlias

from config.protocol import names
from config.protocol.inventory import Card, Health
from scheduler.kube.objects import Node, Taint
from tests.support.builders import UNIT_MIB, card, wire_node

ZONE: Final = "zone"
TAINT: Final = Taint("dedicated", "NoSchedule", "gpu")
IMAGES_MIB: Final = {"train:1": 900, "proxy:latest": 60}
RESTARTS: Final = "RestartAllContainersOnContainerExits"


@dataclass(frozen=True, slots=True)
class NodePlan:
    """One node. lost: indexes of cards that are not in the inventory at present. old: it has the legacy totals only.

    gpu_mem: what the kubelet has allocatable, None for all of it. inventory: the annotation instead of the right one.
    """

    name: str
    cards: tuple[Card, ...] = ()
    old: bool = False
    labels: Mapping[str, str] | None = None
    taints: tuple[Taint, ...] = ()
    unschedulable: bool = False
    lost: frozenset[int] = frozenset()
    cordon: str = ""
    gpu_mem: int | None = None
    cpu: str = "64"
    pods: str = "110"
    unit_mib: int = UNIT_MIB
    inventory: str | None = None
    images: tuple[str, ...] = ()
    features: tuple[str, ...] = ()

    @property
    def announced(self) -> tuple[Card, ...]:
        return tuple(c for c in self.cards if c.index not in self.lost)

    @property
    def units(self) -> dict[str, int]:
        """Units of each card, by what bookings call it."""
        return {f"#{c.index}" if self.old else c.uuid: c.units for c in self.cards}

    def wire(self) -> Node:
        annotations = {names.CORDON: self.cordon} if self.cordon else {}
        if self.inventory is not None:
            annotations[names.INVENTORY] = self.inventory
        amounts = {"cpu": self.cpu, "pods": self.pods}
        announced = list(self.announced) if self.cards and not self.old else None
        if self.old:
            total = sum(c.units for c in self.cards) if self.gpu_mem is None else self.gpu_mem
            amounts |= {names.GPU_MEM: str(total), names.GPU_COUNT: str(len(self.cards))}
        return wire_node(
            self.name,
            announced,
            labels=self.labels,
            annotations=annotations,
            taints=self.taints,
            unschedulable=self.unschedulable,
            gpu_mem=self.gpu_mem,
            unit_mib=self.unit_mib,
            images={name: IMAGES_MIB[name] for name in self.images},
            features=self.features,
            more=amounts,
        )


Change: TypeAlias = Callable[[NodePlan], NodePlan]


def node(name: str, *units: int, old: bool = False, zone: str = "a", model: str = "M") -> NodePlan:
    """A node with cards of so many units."""
    cards = tuple(card(index, size, node=name, model=model) for index, size in enumerate(units))
    return NodePlan(name, cards, old, {ZONE: zone})


def enforced(plan: NodePlan) -> NodePlan:
    """The node with something that enforces shares of its first card's memory."""
    return replace(plan, cards=(replace(plan.cards[0], isolation="mps", compute="mps"), *plan.cards[1:]))


PLANS: Final = {
    plan.name: plan
    for plan in (
        node("small", 8, 8),
        node("twin", 16, 16, zone="b"),
        node("many", 4, 4, 4, 4, 4),
        node("mixed", 24, 6, zone="b", model="X"),
        enforced(node("limits", 12, 12)),
        node("old", 10, 10, old=True),
        node("rack", *[5] * 9, zone="b"),
        node("cpu"),
    )
}


def _health(index: int, health: Health) -> Change:
    def change(plan: NodePlan) -> NodePlan:
        cards = tuple(replace(c, health=health) if c.index == index else c for c in plan.cards)
        return replace(plan, cards=cards)

    return change


def _replaced(plan: NodePlan) -> NodePlan:
    """Another card in the first slot."""
    return replace(plan, cards=(*(replace(c, uuid=f"{c.uuid}'") for c in plan.cards[:1]), *plan.cards[1:]))


def _in_units_of(unit_mib: int) -> Change:
    """The same memory in another unit, as after a change of `memoryUnit` of the device plugin."""

    def change(plan: NodePlan) -> NodePlan:
        if plan.old:
            return plan
        cards = tuple(replace(c, units=c.units * plan.unit_mib // unit_mib) for c in plan.cards)
        return replace(plan, cards=cards, unit_mib=unit_mib)

    return change


def _all_with(**fields: str) -> Change:
    return lambda plan: replace(plan, cards=tuple(replace(c, **fields) for c in plan.cards))  # type: ignore[arg-type]


def _resized(by: int) -> Change:
    def change(plan: NodePlan) -> NodePlan:
        return replace(plan, cards=tuple(replace(c, units=max(1, c.units + by)) for c in plan.cards))

    return change


def _with(**fields: object) -> Change:
    return lambda plan: replace(plan, **fields)  # type: ignore[arg-type]  # as named below


CHANGES: Final[Mapping[str, Change]] = {
    "first card unhealthy": _health(0, Health.UNHEALTHY),
    "first card healthy": _health(0, Health.HEALTHY),
    "second card suspect": _health(1, Health.SUSPECT),
    "second card cordoned by the plugin": _health(1, Health.CORDONED),
    "second card healthy": _health(1, Health.HEALTHY),
    "first card lost": _with(lost=frozenset({0})),
    "all cards lost": _with(lost=frozenset(range(8))),
    "cards back": _with(lost=frozenset()),
    "first card exchanged": _replaced,
    "cards smaller": _resized(-3),
    "cards larger": _resized(3),
    "memory enforced": _all_with(isolation="driver"),
    "memory advisory": _all_with(isolation=""),
    "all by MPS": _all_with(compute="mps"),
    "none by MPS": _all_with(compute=""),
    "all cards are MIG instances": _all_with(parent="GPU-parent"),
    "no card is a MIG instance": _all_with(parent=""),
    "cordon by index": _with(cordon="1"),
    "cordon by UUID": lambda plan: replace(plan, cordon=",".join(c.uuid for c in plan.cards[:1])),
    "uncordoned": _with(cordon=""),
    "plugin away": _with(gpu_mem=0),
    "less than its cards": _with(gpu_mem=5),
    "plugin back": _with(gpu_mem=None),
    "inventory broken": _with(inventory="{"),
    "inventory of another version": _with(inventory='{"version":2}'),
    "inventory readable": _with(inventory=None),
    "another unit, it says": _with(unit_mib=1),
    "the right unit, it says": _with(unit_mib=UNIT_MIB),
    "a smaller unit": _in_units_of(UNIT_MIB // 4),
    "a larger unit": _in_units_of(2 * UNIT_MIB),
    "the right unit": _in_units_of(UNIT_MIB),
    "a card of another node": lambda plan: with_uuids(
        plan, lambda card: "GPU-twin-0" if card.index == 0 else card.uuid
    ),
    "zone a": _with(labels={ZONE: "a"}),
    "zone b": _with(labels={ZONE: "b", "disk": "ssd"}),
    "no labels": _with(labels=None),
    "tainted": _with(taints=(TAINT,)),
    "better elsewhere": _with(taints=(Taint("slow", "PreferNoSchedule"),)),
    "untainted": _with(taints=()),
    "unschedulable": _with(unschedulable=True),
    "schedulable": _with(unschedulable=False),
    "little cpu": _with(cpu="1500m"),
    "much cpu": _with(cpu="64"),
    "few pods": _with(pods="2"),
    "many pods": _with(pods="110"),
    "an image is pulled": _with(images=("train:1",)),
    "all images are pulled": _with(images=tuple(IMAGES_MIB)),
    "images are gone": _with(images=()),
    "a feature is declared": _with(features=(RESTARTS,)),
    "no feature is declared": _with(features=()),
}


def with_uuids(plan: NodePlan, uuid_of: Callable[[Card], str]) -> NodePlan:
    """The node with other UUIDs on its cards."""
    return replace(plan, cards=tuple(replace(card, uuid=uuid_of(card)) for card in plan.cards))
