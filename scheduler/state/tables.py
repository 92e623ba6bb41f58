"""The cluster as columns, and which pod is on which node and cards, as far as we know.

    absent --assume--> ASSUMED --add--> BOUND --remove--> absent
       ^                  |               ^
       +-----forget-------+    absent --add (bound by someone else)

ASSUMED: we chose the place; the API server has not told us so yet. It never expires.
BOUND:   a watch event showed the pod on the node, which wins over what we assumed.
A pod may be seen before its node: it is booked when the node comes.
Owned by the event loop. No method awaits, so each one is atomic.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from scheduler.kube.objects import Node
from scheduler.pods.effective_requests import amounts
from scheduler.pods.gpu_request import ResourceNames
from scheduler.pods.pod import Pod
from scheduler.state.anti_affinity import AntiAffinity
from scheduler.state.arrays import FIRST_CAPACITY, BoolArray, Int64Array, resized
from scheduler.state.booking import Booking, CardShare, booking_of
from scheduler.state.cards import CardColumns, Held
from scheduler.state.host_ports import HostPorts
from scheduler.state.labels import Labels
from scheduler.state.node_inventory import NodeInventory, read_inventory
from scheduler.state.resources import ResourceColumns
from scheduler.state.rows import ChangeLog, RowTable
from scheduler.state.taints import Taints


class TransitionError(Exception):
    """A verb that the pod's state does not allow: our own bug, so the process ends and starts clean."""


@dataclass(slots=True)
class PodRecord:
    """One pod on one node. held: None until the node is there."""

    pod: Pod
    node: str
    booking: Booking
    assumed: bool
    held: Held | None = None


class Tables:
    """All columns. Plugins read; only the verbs here change them."""

    def __init__(self, resources: ResourceNames, memory_unit_mib: int = 1024) -> None:
        """resources: the configured names. memory_unit_mib: a node with another unit takes no gpu pod."""
        self._resource_names = resources
        self._unit_mib = memory_unit_mib
        self._rows = RowTable()
        self.changes = ChangeLog()
        self.unschedulable: BoolArray = np.zeros(FIRST_CAPACITY, dtype=np.bool_)
        self.labels = Labels()
        self.taints = Taints()
        self.resources = ResourceColumns()
        self.host_ports = HostPorts()
        self.cards = CardColumns()
        self.namespaces: dict[str, dict[str, str]] = {}
        self.anti_affinity = AntiAffinity(self.labels, self.namespaces)
        self._pods: dict[str, PodRecord] = {}
        self._pods_on: dict[str, dict[str, PodRecord]] = {}
        self._announced: dict[str, NodeInventory] = {}
        self._marked_unhealthy: dict[str, frozenset[int]] = {}
        self._openings: set[int] = set()
        self._all_open = False

    # Nodes

    @property
    def capacity(self) -> int:
        """Entries of every column."""
        return self._rows.capacity

    @property
    def valid(self) -> BoolArray:
        """bool[nodes]: the row is a node."""
        return self._rows.valid

    @property
    def names(self) -> list[str]:
        """Node names by row, "" in holes."""
        return self._rows.names

    @property
    def row_of(self) -> dict[str, int]:
        """Node name -> row; read only."""
        return self._rows.row_of

    @property
    def rank(self) -> Int64Array:
        """int64[nodes]: places of the names in sorted order."""
        return self._rows.rank

    def upsert_node(self, node: Node) -> str:
        """Add or replace a node. Returns what is wrong with its inventory, "" when nothing is.

        Raises QuantityError, with the tables as before, for an amount that is none.
        """
        name = node.metadata.name
        allocatable = amounts(node.status.allocatable)
        announced = read_inventory(node, self._resource_names, self._unit_mib)
        row = self._row_for(name)
        self.unschedulable[row] = node.spec.unschedulable
        self.labels.set_row(row, node.metadata.labels or {})
        self.taints.set_row(row, node.spec.taints)
        allocatable.pop(self._resource_names.gpu_mem, None)
        self.resources.set_allocatable(row, allocatable)
        if self._announced.get(name) != announced:
            self._announced[name] = announced
            self._rebook(name, row)
        self._relabel(name, row)
        self._opened(row)
        return announced.problem

    def remove_node(self, name: str) -> None:
        """The node is gone; its pods stay on record until they go too, or it comes back."""
        if name not in self.row_of:
            return
        row = self._rows.release(name)
        for record in self._pods_on.get(name, {}).values():
            record.held = None
        self.unschedulable[row] = False
        self.labels.set_row(row, {})
        self.taints.set_row(row, ())
        self.resources.clear(row)
        self.host_ports.clear(row)
        self.cards.clear(row)
        del self._announced[name]
        for record in self._pods_on.get(name, {}).values():
            if record.pod.template.anti_affinity:
                self._keep_away(record, row, -1)
        self._opened(row)

    def mark_unhealthy(self, node: str, indexes: frozenset[int]) -> None:
        """Cards, by index, that the original's ConfigMap takes out of use; empty gives them back."""
        if indexes:
            self._marked_unhealthy[node] = indexes
        else:
            self._marked_unhealthy.pop(node, None)
        row = self.row_of.get(node)
        if row is not None:
            self._rebook(node, row)
            self._opened(row)

    def set_namespace(self, name: str, labels: dict[str, str] | None) -> None:
        """Labels of a namespace; None when it is gone."""
        if self.namespaces.get(name) == labels:
            return
        if labels is None:
            del self.namespaces[name]
        else:
            self.namespaces[name] = labels
        self.anti_affinity.namespace_changed()
        self._all_open = True

    # Pods

    def assume(self, pod: Pod, row: int, shares: tuple[CardShare, ...]) -> None:
        """We place `pod` on `row` and these cards. TransitionError when it is somewhere already."""
        if pod.key.uid in self._pods:
            message = f"pod {pod.key} is already on {self._pods[pod.key.uid].node}; expected none"
            raise TransitionError(message)
        exclusive = pod.template.gpu_request is not None and pod.template.gpu_request.exclusive
        booking = Booking(pod.template.gpu_units, shares, exclusive)
        self._enter(PodRecord(pod, self.names[row], booking, assumed=True))

    def forget(self, uid: str) -> None:
        """The assumed pod did not get its place. TransitionError unless it is assumed."""
        record = self._pods.get(uid)
        if record is None or not record.assumed:
            message = f"pod {uid} is {'absent' if record is None else 'bound'}; expected assumed"
            raise TransitionError(message)
        self._leave(record)

    def add(self, pod: Pod) -> str:
        """A watch event shows `pod` on `pod.node_name`. Returns what is wrong with its allocation, or ""."""
        booking = booking_of(pod)
        old = self._pods.get(pod.key.uid)
        if old is not None:
            if self._same_place(old, pod, booking):
                old.pod, old.assumed = pod, False
                return booking.problem
            self._leave(old)
        self._enter(PodRecord(pod, pod.node_name, booking, assumed=False))
        return booking.problem

    def remove(self, uid: str) -> bool:
        """The pod is gone or finished. Whether it was on record."""
        record = self._pods.get(uid)
        if record is not None:
            self._leave(record)
        return record is not None

    def is_assumed(self, uid: str) -> bool:
        """Whether we placed the pod and the API server has not shown it yet."""
        record = self._pods.get(uid)
        return record is not None and record.assumed

    def record(self, uid: str) -> PodRecord | None:
        """What is known of a pod with a node; read only."""
        return self._pods.get(uid)

    def records(self) -> Iterator[PodRecord]:
        """Every pod with a node; read only."""
        return iter(self._pods.values())

    def inventory(self, node: str) -> NodeInventory:
        """What the node announces; KeyError when it is not there."""
        return self._announced[node]

    def take_openings(self) -> tuple[list[int], bool]:
        """Rows on which something may have become possible since the last call, and whether anything may have."""
        rows, everything = sorted(self._openings), self._all_open
        self._openings.clear()
        self._all_open = False
        return rows, everything

    # The parts of the verbs

    def _row_for(self, name: str) -> int:
        row = self.row_of.get(name)
        if row is not None:
            return row
        if self._rows.full:
            self._grow()
        row = self._rows.take(name)
        for record in self._pods_on.get(name, {}).values():
            self._book_resources(record, row, 1)
        return row

    def _grow(self) -> None:
        capacity = self._rows.grow()
        self.unschedulable = resized(self.unschedulable, (capacity,), 0)
        self.labels.grow(capacity)
        self.taints.grow(capacity)
        self.resources.grow(capacity)
        self.cards.grow(capacity)

    def _rebook(self, name: str, row: int) -> None:
        self.cards.lay_out(row, self._announced[name], self._marked_unhealthy.get(name, frozenset()))
        for record in self._pods_on.get(name, {}).values():
            record.held = self.cards.hold(row, record.booking) if record.booking.units else None

    def _enter(self, record: PodRecord) -> None:
        uid = record.pod.key.uid
        self._pods[uid] = record
        self._pods_on.setdefault(record.node, {})[uid] = record
        row = self.row_of.get(record.node)
        if row is None:
            return
        self._book_resources(record, row, 1)
        if record.booking.units:
            record.held = self.cards.hold(row, record.booking)
        self.changes.note(row)

    def _leave(self, record: PodRecord) -> None:
        uid = record.pod.key.uid
        del self._pods[uid]
        others = self._pods_on[record.node]
        del others[uid]
        if not others:
            del self._pods_on[record.node]
        row = self.row_of.get(record.node)
        if row is None:
            return
        self._book_resources(record, row, -1)
        if record.held is not None and self.cards.release(row, record.held):
            self._rebook(record.node, row)
        self._opened(row)

    def _book_resources(self, record: PodRecord, row: int, sign: int) -> None:
        template = record.pod.template
        scoring = (template.scoring_cpu_millis, template.scoring_memory_bytes)
        self.resources.add(row, template.requests, scoring, sign)
        if template.host_ports:
            self.host_ports.add(row, template.host_ports, sign)
        if template.anti_affinity:
            self._keep_away(record, row, sign)

    def _keep_away(self, record: PodRecord, row: int, sign: int) -> None:
        key = record.pod.key
        if sign > 0:
            self.anti_affinity.add(key.uid, key.namespace, record.pod.template.anti_affinity, row)
        else:
            self.anti_affinity.remove(key.uid)
            self._all_open = True

    def _relabel(self, name: str, row: int) -> None:
        if any(record.pod.template.anti_affinity for record in self._pods_on.get(name, {}).values()):
            self.anti_affinity.node_changed(row)
            self._all_open = True

    def _opened(self, row: int) -> None:
        self.changes.note(row)
        self._openings.add(row)

    def _same_place(self, old: PodRecord, pod: Pod, booking: Booking) -> bool:
        same_cards = booking.shares == old.booking.shares and booking.units == old.booking.units
        return old.node == pod.node_name and same_cards and old.pod.template is pod.template
