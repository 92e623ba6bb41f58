"""The model of a cluster file: nodes with their cards, pods with their times, and faults. Pure.

`docs/cluster-file.md` is its guide.
"""

from dataclasses import dataclass, field
from typing import Annotated, Final, Literal, Self, TypeAlias

from pydantic import AfterValidator, AliasChoices, Field, field_validator, model_validator

from config.clusterfile.workloads import Count, Manifest, NodeManifest, PodManifest
from config.protocol import card_uuid, inventory, names, quantity
from config.settings.schema import Section

_LARGEST_CARD_MIB: Final = 2**24


def _quantity(value: str | float) -> str:
    quantity.whole(str(value))  # raises QuantityError, a ValueError with the message
    return str(value)


Quantity: TypeAlias = Annotated[str | int | float, AfterValidator(_quantity)]
# Thirty years, in seconds: the clock's time then is still a valid date.
LATEST_S: Final = 1e9
_Time: TypeAlias = Annotated[float, Field(ge=0, le=LATEST_S)]


class TaintEntry(Section):
    """A taint of a node."""

    key: str
    value: str = ""
    effect: Literal["NoSchedule", "PreferNoSchedule", "NoExecute"]


class CardGroup(Section):
    """Equal cards. links: to every other card of the group, or by card index as in the inventory.

    isolation: what enforces shares of their memory; "" if nothing does. compute: how programs share their processors,
    as in the inventory. parent: UUID of the card that they are MIG instances of.
    """

    model: str
    memory_mib: int = Field(validation_alias="memoryMiB", ge=0, le=_LARGEST_CARD_MIB)
    count: int = Field(default=1, ge=1, le=inventory.MAX_CARDS)
    uuid: str | None = None
    numa: int | None = None
    links: str | dict[str, str] = Field(default_factory=dict)
    isolation: Literal["", "driver", "mps", "hami-core", "own"] = ""
    compute: Literal["", "mps"] = ""
    parent: str = ""

    @field_validator("uuid", "parent")
    @classmethod
    def _can_be_a_uuid(cls, uuid: str | None) -> str | None:
        if uuid and (problem := card_uuid.objection(uuid)):
            raise ValueError(problem)
        return uuid

    @model_validator(mode="after")
    def _one_uuid_one_card(self) -> Self:
        if self.uuid is not None and self.count > 1:
            raise ValueError(f"uuid names one card, but count is {self.count}; leave uuid out, or describe each card")
        return self


class NodeGroup(Section):
    """Equal nodes, called `name`, or with a count `name-0`, `name-1`, and so on.

    node: a Node manifest that the other fields override; its name is the default for `name`.
    """

    name: str = Field(default="", max_length=253)
    count: Count = 1
    labels: dict[str, str] = Field(default_factory=dict)
    annotations: dict[str, str] = Field(default_factory=dict)
    taints: tuple[TaintEntry, ...] = ()
    allocatable: dict[str, Quantity] = Field(default_factory=dict)
    cards: tuple[CardGroup, ...] = ()
    node: NodeManifest | None = None

    @model_validator(mode="after")
    def _sound(self) -> Self:
        message = ""
        if not self.name and self.node is None:
            message = "name is missing"
        elif sum(group.count for group in self.cards) > inventory.MAX_CARDS:
            message = f"expected at most {inventory.MAX_CARDS} cards on a node"
        elif self.count > 1 and any(group.uuid for group in self.cards):
            message = f"uuid names one card, but this entry describes {self.count} nodes; leave uuid out"
        elif self.count > 1 and not self.cards and self.node and names.INVENTORY in self.node.metadata.annotations:
            message = f"{self.count} nodes cannot share one {names.INVENTORY}; describe the cards under cards"
        if message:
            raise ValueError(message)
        return self

    def node_names(self) -> list[str]:
        """Return the names of the group's nodes, in order."""
        return _numbered(self.name or (self.node.metadata.name if self.node else ""), self.count)


class PodGroup(Section):
    """Equal pods with the manifest's name; with a count, a number from 0 is appended.

    at_s: when they are created, in seconds from the start. runs_s: how long after its start a pod finishes;
    None if it runs forever.
    """

    pod: PodManifest
    count: Count = 1
    at_s: _Time = Field(default=0.0, validation_alias=AliasChoices("at_s", "atS"))
    runs_s: _Time | None = Field(default=None, validation_alias=AliasChoices("runs_s", "runsS"))

    def pod_names(self) -> list[str]:
        """Return the names of the group's pods, in order."""
        return _numbered(self.pod.metadata.name, self.count)


class DescribedFault(Section):
    """A fault of a card, or without `card` of a whole node (lost, back): exactly one of xid, lost and back."""

    at_s: _Time = Field(default=0.0, validation_alias=AliasChoices("at_s", "atS"))
    node: str
    card: int | str | None = None
    xid: int | None = Field(default=None, ge=0)
    lost: bool = False
    back: bool = False

    @model_validator(mode="after")
    def _one_thing(self) -> Self:
        if (self.xid is not None) + self.lost + self.back != 1:
            raise ValueError("expected exactly one of xid: NUMBER, lost: true or back: true")
        if self.xid is not None and self.card is None:
            raise ValueError("xid needs a card; card is missing")
        return self


class ClusterDocument(Section):
    """A cluster file, or part of one."""

    nodes: tuple[NodeGroup, ...] = ()
    pods: tuple[PodGroup, ...] = ()
    faults: tuple[DescribedFault, ...] = ()


@dataclass(slots=True)
class ClusterFile:
    """All files together. ignored: unread manifests, as `kind namespace/name`.

    storage: manifests of claims, volumes and the like, each with its kind. budgets: disruption budgets, which only
    `defragment` reads. files: `id()` of an entry -> the file that it comes from.
    """

    nodes: list[NodeGroup] = field(default_factory=list)
    pods: list[PodGroup] = field(default_factory=list)
    faults: list[DescribedFault] = field(default_factory=list)
    ignored: list[str] = field(default_factory=list)
    storage: list[Manifest] = field(default_factory=list)
    budgets: list[Manifest] = field(default_factory=list)
    files: dict[int, str] = field(default_factory=dict, repr=False)

    def file_of(self, described: object) -> str:
        """Return the file that an entry of these lists comes from; "" if unknown."""
        return self.files.get(id(described), "")

    def source_of(self, described: object, name: str) -> str:
        """Return the source for a mistake: the entry's file and the name of the described object."""
        file = self.file_of(described)
        return f"{file}: {name}" if file else name


@dataclass(frozen=True, slots=True)
class TimedPod:
    """A pod to create at `at_s`, seconds from the start. It finishes `runs_s` after it has started; None if never."""

    at_s: float
    runs_s: float | None
    manifest: Manifest


def _numbered(name: str, count: int) -> list[str]:
    """Return `name` alone for one, `name-0`, `name-1`, … for another count."""
    return [name] if count == 1 else [f"{name}-{number}" for number in range(count)]
