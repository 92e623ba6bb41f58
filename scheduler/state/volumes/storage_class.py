"""A StorageClass with its available volumes: free ones, and capacity for new ones."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final

import msgspec
import numpy as np

from config.protocol import quantity
from scheduler.kube import storage
from scheduler.kube.size_limits import TooLargeError, is_too_large
from scheduler.pods.pod_volumes import ClaimKey
from scheduler.state.columns.arrays import ALL_ROWS, BoolArray, Int64Array, RowArray, Rows, resized
from scheduler.state.columns.labels import Labels
from scheduler.state.columns.node_terms import LabelledRows
from scheduler.state.columns.row_masks import count_of
from scheduler.state.columns.selectors import Expression, Matcher, Operator, of_label_selector
from scheduler.state.volumes.claim import Wants
from scheduler.state.volumes.reach import Reach, reach_of
from scheduler.state.volumes.reachable import Reachable
from scheduler.state.volumes.volume import Volume

NO_PROVISIONER: Final = "kubernetes.io/no-provisioner"
WAITS: Final = "WaitForFirstConsumer"


class VolumeClass(msgspec.Struct, frozen=True, kw_only=True):
    """One StorageClass. waits: whether a claim's volume is chosen together with the node of its first pod.

    topologies: terms of (label, values) in which new volumes can be created; empty: everywhere.
    too_large: its topologies are over the size limit.
    """

    provisioner: str
    waits: bool
    topologies: tuple[tuple[tuple[str, frozenset[str]], ...], ...]
    too_large: bool

    @property
    def provisions(self) -> bool:
        """Whether new volumes can be created."""
        return self.provisioner not in {"", NO_PROVISIONER}

    def reach(self) -> Reach | None:
        """Nodes for which a volume can be created; None for all. Source: MatchTopologySelectorTerms."""
        if not self.topologies:
            return None
        terms = (term for term in self.topologies if term)
        return reach_of(tuple(Expression(key, Operator.IN, values) for key, values in term) for term in terms)


def class_of(wire: storage.StorageClass) -> VolumeClass:
    """The class. kube-apiserver fills in an omitted binding mode."""
    terms = tuple(term.match_label_expressions for term in wire.allowed_topologies)
    too_large = is_too_large(wire.allowed_topologies)
    return VolumeClass(
        provisioner=wire.provisioner,
        waits=wire.volume_binding_mode == WAITS,
        topologies=()
        if too_large
        else tuple(tuple((one.key, frozenset(one.values)) for one in term) for term in terms),
        too_large=too_large,
    )


class Capacity(msgspec.Struct, frozen=True, kw_only=True):
    """Room for new volumes in a part of the cluster. largest: bytes of the largest one, -1 if unknown. total: bytes."""

    class_name: str
    largest: int
    total: int
    topology: tuple[Expression, ...] | None


def capacity_of(wire: storage.CSIStorageCapacity) -> Capacity:
    """The capacity. Raises QuantityError for an invalid amount, TooLargeError for a topology over the size limit.

    topology: None for no node.
    """
    if is_too_large(wire.node_topology):
        raise TooLargeError
    told = (wire.maximum_volume_size, wire.capacity)
    known = [quantity.whole(str(said)) for said in told if said is not None]
    return Capacity(
        class_name=wire.storage_class_name,
        largest=known[0] if known else -1,
        total=known[-1] if known else -1,
        topology=of_label_selector(wire.node_topology),
    )


class FreeVolumes:
    """Free volumes of one class. taken: volumes that we have assumed for a claim."""

    def __init__(self) -> None:
        self.reachable = Reachable()
        self._slot_of: dict[str, int] = {}
        self._name_of: dict[int, str] = {}
        self._kinds: dict[tuple[frozenset[str], str, str], int] = {}
        self._kind: np.ndarray[tuple[int], np.dtype[np.int32]] = np.zeros(self.reachable.slots, dtype=np.int32)
        self._labels = Labels()
        self._taken: BoolArray = np.zeros(self.reachable.slots, dtype=np.bool_)

    def __len__(self) -> int:
        """Number of volumes, including taken ones."""
        return len(self._slot_of)

    def __contains__(self, name: str) -> bool:
        """Whether the volume is here, free or taken."""
        return name in self._slot_of

    def add(self, volume: Volume, reach: Reach | None) -> None:
        slot = self.reachable.add(volume.name, volume.size, reach)
        if slot >= len(self._kind):
            self._kind = resized(self._kind, (self.reachable.slots,), 0)
            self._taken = resized(self._taken, (self.reachable.slots,), 0)
            self._labels.grow(self.reachable.slots)
        kind = (volume.modes, volume.volume_mode, volume.attributes_class)
        self._kind[slot] = self._kinds.setdefault(kind, len(self._kinds))
        self._labels.set_row(slot, volume.labels)
        self._slot_of[volume.name], self._name_of[slot] = slot, volume.name

    def discard(self, name: str) -> bool:
        """Remove a volume that was deleted or bound. Return whether it was among these."""
        slot = self._slot_of.pop(name, None)
        if slot is None:
            return False
        del self._name_of[slot]
        self._taken[slot] = False
        self._labels.set_row(slot, {})
        self.reachable.remove(slot)
        return True

    def take(self, name: str, *, taken: bool) -> None:
        """Mark a volume as taken for a claim, or as free again. No effect if it is not among these."""
        slot = self._slot_of.get(name)
        if slot is not None:
            self._taken[slot] = taken

    def name(self, slot: int) -> str:
        """Name of the volume in a slot."""
        return self._name_of[slot]

    def suiting(self, wants: Wants, slots: RowArray) -> RowArray:
        """Slots among `slots` whose volumes suit a claim, regardless of reach."""
        if wants.selector is None:
            return slots[:0]
        suits = (self.reachable.sizes[slots] >= wants.size) & ~self._taken[slots]
        kinds = np.zeros(len(self._kinds) + 1, dtype=np.bool_)
        kinds[list(self._suiting(wants))] = True
        suits &= kinds[self._kind[slots]]
        for expression in wants.selector:
            suits &= Matcher(expression).over(self._labels, slots)
        return slots[suits]

    def _suiting(self, wants: Wants) -> Iterator[int]:
        for (modes, volume_mode, attributes_class), kind in self._kinds.items():
            if wants.modes <= modes and (volume_mode, attributes_class) == (wants.volume_mode, wants.attributes_class):
                yield kind


class Capacities:
    """CSIStorageCapacity objects of one class, by namespace and name."""

    def __init__(self) -> None:
        self.reachable = Reachable()
        self._known: dict[str, tuple[Capacity, int]] = {}
        self._totals: Int64Array = np.zeros(self.reachable.slots, dtype=np.int64)

    def __len__(self) -> int:
        return len(self._known)

    def set(self, key: str, capacity: Capacity | None) -> bool:
        """Set a capacity, None if it is deleted. Returns whether more volumes can be created now."""
        old = self._known.pop(key, None)
        if old is not None and old[1] >= 0:
            self.reachable.remove(old[1])
        if capacity is None:
            return False
        usable = capacity.topology is not None and capacity.largest >= 0
        slot = self.reachable.add(key, capacity.largest, _reach(capacity)) if usable else -1
        self._known[key] = (capacity, slot)
        if usable:
            self._totals = resized(self._totals, (self.reachable.slots,), 0)
            self._totals[slot] = capacity.total
        return usable and (old is None or old[0].topology != capacity.topology or old[0].largest < capacity.largest)

    def room(self, size: int, nodes: LabelledRows, rows: Rows) -> Int64Array:
        """int64[rows]: total bytes of the smallest capacity in which a volume of this size can be created; -1: none."""
        near = self.reachable.near(nodes, rows)
        choice = self.reachable.choice(near[self.reachable.sizes[near] >= max(0, size)], nodes, rows)
        none = np.full(count_of(rows, nodes.capacity), -1, dtype=np.int64)
        slots = self.reachable.slots_at(choice.next(none, ALL_ROWS))
        return np.where(slots >= 0, self._totals[slots], -1)

    def __getitem__(self, key: str) -> Capacity | None:
        """The capacity as set."""
        found = self._known.get(key)
        return None if found is None else found[0]


def _reach(capacity: Capacity) -> Reach | None:
    return reach_of((capacity.topology,)) if capacity.topology else None


@dataclass(slots=True)
class OfClass:
    """State of one class. known: None while this StorageClass does not exist.

    kept_for: claim -> volumes reserved for it. version: changes when any of this does.
    """

    known: VolumeClass | None = None
    version: int = 0
    free: FreeVolumes = field(default_factory=FreeVolumes)
    kept_for: dict[ClaimKey, set[str]] = field(default_factory=dict)
    capacities: Capacities = field(default_factory=Capacities)

    @property
    def empty(self) -> bool:
        """Whether there is no state to keep."""
        return self.known is None and not (self.free or self.kept_for or self.capacities)
