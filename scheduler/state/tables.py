"""The cluster state as columns, and the node and cards of each pod.

    absent --assume--> ASSUMED --add--> BOUND --remove--> absent
       ^                  |               ^
       +-----forget-------+    absent --add (bound by someone else)

ASSUMED: we chose the node; the API server has not shown the pod there yet. It never expires.
BOUND:   a watch event showed the pod on the node; this overrides our assumption.
The first allocation read of a pod stays for its lifetime: an edited annotation moves no memory. If an ASSUMED pod is
shown with an allocation other than ours, somebody else edited or bound it: it counts against every card until its
Binding is answered (`confirm`, `forget`).
A pod may be seen before its node: it is booked when the node appears.
A NOMINATED pod (`scheduler.state.nominations`) is booked like these, but is not on record.
Owned by the event loop. No method awaits, so each one is atomic.
"""

from collections.abc import Mapping
from typing import Final

import numpy as np

from config.protocol.booked_cards import WrittenAllocation
from scheduler.kube.objects import Node
from scheduler.pods.effective_requests import amounts
from scheduler.pods.gpu_request import ResourceNames
from scheduler.pods.pod import Pod, TransitionError
from scheduler.state.bookings import Bookings, Terminating
from scheduler.state.cards.booking import CardShare, chosen, is_exclusive, same_decision, unknown, written_of
from scheduler.state.cards.card_columns import CardChanges
from scheduler.state.cards.node_inventory import node_differences, read_inventory
from scheduler.state.changes import ANY_DOMAIN, Change
from scheduler.state.columns.arrays import ALL_ROWS, FIRST_CAPACITY, BoolArray, resized
from scheduler.state.columns.images import Images
from scheduler.state.columns.taints import Taints
from scheduler.state.disruption_budgets import DisruptionBudgets
from scheduler.state.gang_members import GangMembers
from scheduler.state.kubelet_rejections import RejectionLog
from scheduler.state.pod_record import NOTHING_SENT, PodRecord, problem_of
from scheduler.state.volumes.plan import VolumePlan

_NODE: Final = int(Change.NODE)
_PODS: Final = int(Change.PODS)
_COMPANY: Final = int(Change.COMPANY)
_DOMAINS: Final = int(Change.DOMAINS)
_SOME_DOMAINS: Final = ANY_DOMAIN & ~_DOMAINS
_INVENTORY: Final = int(Change.INVENTORY)
_ATTACHMENTS: Final = int(Change.ATTACHMENTS)
_VOLUMES: Final = int(Change.VOLUMES)
_REJECTIONS: Final = int(Change.REJECTIONS)
# Up to this many rows, a changed volume opens the rows one by one.
_FEW_ROWS: Final = 32


class Tables(Bookings):
    """All columns. Plugins read them; only the methods here change them."""

    def __init__(self, resources: ResourceNames, memory_unit_mib: int = 1024) -> None:
        """resources: the configured names. memory_unit_mib: a node with another unit takes no GPU pod."""
        self.resource_names = resources
        self._unit_mib = memory_unit_mib
        super().__init__()
        self.unschedulable: BoolArray = np.zeros(FIRST_CAPACITY, dtype=np.bool_)
        self.taints = Taints()
        self.images = Images()
        self.card_changes = CardChanges()
        self.terminating = Terminating()
        self.gangs = GangMembers()
        self._marked_unhealthy: dict[str, frozenset[int]] = {}
        self.budgets = DisruptionBudgets()
        self.rejections = RejectionLog(self._left_out, self._used_again)

    # Nodes

    def upsert_node(self, node: Node) -> str:
        """Add or replace a node. Returns the error of its inventory, "" for none.

        Raises QuantityError for an invalid amount and leaves the tables unchanged. An unchanged node changes nothing.
        """
        node = self.images.shared(node)
        old = self._nodes.get(name := node.metadata.name)
        kinds = _NODE if old is None else node_differences(old, node)
        if not kinds:
            return self._inventories[name].problem
        allocatable = amounts(node.status.allocatable)
        allocatable.pop(self.resource_names.gpu_mem, None)
        inventory = read_inventory(node, self.resource_names, self._unit_mib)
        row = self._row_for(name)
        self._nodes[name] = node
        self.unschedulable[row] = node.spec.unschedulable
        self.labels.set_row(row, node.metadata.labels or {})
        self.taints.set_row(row, node.spec.taints)
        self.images.set_row(row, node.status.images)
        self.resources.set_allocatable(row, allocatable)
        before = self._inventories.get(name)
        if before != inventory:
            kinds |= _INVENTORY
            self._inventories[name] = inventory
            self._rebook(name, row)
            records = self._pods_on.get(name, {}).values()
            pods = ((record.pod, record.held) for record in records if not record.nominated)
            self.card_changes.changed(name, before, inventory, node.status.reported_at(), pods)
        if old is None:
            kinds |= self._book_all(name, row, 1)
        self._opened(row, kinds | self._facts.node_changed(row, node))
        self._note_turned()
        return inventory.problem or self.cards.shared_problem(row, self.names)

    def remove_node(self, name: str) -> None:
        """Remove the node. Its pods stay on record until they are deleted or the node is added again."""
        row = self.row_of.get(name)
        if row is None:
            return
        kinds = _NODE | self._book_all(name, row, -1)
        kinds |= self._facts.node_changed(row, None)
        self._rows.release(name)
        self.unschedulable[row] = False
        self.labels.set_row(row, {})
        self.taints.set_row(row, ())
        self.images.set_row(row, ())
        self.resources.clear(row)
        self.cards.clear(row)
        del self._inventories[name]
        self.card_changes.gone(name)
        del self._nodes[name]
        self._opened(row, kinds)
        self._note_turned()

    def mark_unhealthy(self, node: str, indexes: frozenset[int]) -> None:
        """Set the indexes of the cards that the legacy ConfigMap takes out of use; none to use all cards again."""
        if indexes:
            self._marked_unhealthy[node] = indexes
        else:
            self._marked_unhealthy.pop(node, None)
        if (row := self.row_of.get(node)) is not None:
            self._rebook(node, row)
            self._opened(row, _INVENTORY)
            self._note_turned()

    def set_namespace(self, name: str, labels: dict[str, str] | None) -> None:
        """Set the labels of a namespace; None if it is deleted."""
        if self.namespaces.get(name) == labels:
            return
        if labels is None:
            del self.namespaces[name]
        else:
            self.namespaces[name] = labels
        self._facts.namespaces_changed()
        self.references += 1
        self.cluster_events.note_everywhere(ANY_DOMAIN)
        self.cluster_events.note_namespace(name)

    def volumes_changed(self) -> None:
        """Take over a change of `volumes`: of claims, volumes, storage classes or attachments."""
        self.references += 1
        changes = self.volumes.take_changes()
        for row in (self.row_of[node] for node in changes.nodes if node in self.row_of):
            self._opened(row, _ATTACHMENTS)
        for row in self._facts.volumes_changed(changes):
            self._opened(row, _PODS)
        for class_name, reach in changes.volumes:
            (rows,) = reach.over(self, ALL_ROWS).nonzero()
            if len(rows) > _FEW_ROWS:
                self.volumes.moves_everywhere(class_name)
            else:
                for row in rows.tolist():
                    self.changes.note(row, _VOLUMES)
        self.cluster_events.note_claims(changes.claims)
        if changes.opened:
            self.cluster_events.note_everywhere(_VOLUMES)

    # Pods

    def assume(
        self,
        pod: Pod,
        row: int,
        shares: tuple[CardShare, ...],
        sent: Mapping[str, str] = NOTHING_SENT,
        plan: VolumePlan | None = None,
    ) -> None:
        """Place `pod` on `row` and these cards. Raises TransitionError if it has a node already.

        sent: annotations of the Binding; a pod shown with all of them has our allocation. plan: volumes of its claims,
        assumed until the Binding is answered, or released by `forget`.
        """
        if pod.key.uid in self._pods:
            raise TransitionError(f"pod {pod.key} is already on {self._pods[pod.key.uid].node}; expected no node")
        node = self.names[row]
        written = chosen(pod, shares, self._inventories[node].unit_mib)
        self._enter(
            PodRecord(pod=pod, node=node, written=written, exclusive=is_exclusive(pod), assumed=True, sent=sent)
        )
        if plan is not None:
            self.volumes.assume(pod.key.uid, plan)
            self.volumes_changed()

    def confirm(self, uid: str) -> None:
        """Record that the API server has confirmed our placement of the pod.

        No effect if the pod is not on record.
        """
        record = self._pods.get(uid)
        if record is None:
            return
        self._settle(uid)
        record.confirmed = record.assumed
        if record.rivals is not None:
            self._decide(record, record.rivals[0])

    def forget(self, uid: str) -> None:
        """Release an assumed pod that was not placed after all. Raises TransitionError unless it is assumed."""
        record = self._pods.get(uid)
        if record is None or not record.assumed:
            raise TransitionError(f"pod {uid} is {'absent' if record is None else 'bound'}; expected assumed")
        self._settle(uid)
        if record.rivals is None:
            self._leave(record)
        else:
            self._decide(record, record.rivals[1])

    def add(self, pod: Pod) -> str:
        """Record a pod that a watch event shows on `pod.node_name`. Returns the error of its allocation, or ""."""
        old = self._pods.get(pod.key.uid)
        self._settle(pod.key.uid)
        if old is None or old.node != pod.node_name:
            if old is not None:
                self._leave(old)
            written, exclusive = written_of(pod), is_exclusive(pod)
            record = PodRecord(pod=pod, node=pod.node_name, written=written, exclusive=exclusive, assumed=False)
            self._enter(record)
            return problem_of(record)
        problem = self._see_again(old, pod)
        self.gangs.update(old.pod, pod)
        self._reread(old, pod)
        old.pod = pod
        self.terminating.note(old)
        return problem or problem_of(old)

    def remove(self, uid: str) -> bool:
        """Remove a deleted or finished pod. Returns whether it was on record."""
        record = self._pods.get(uid)
        if record is not None:
            self._settle(uid)
            self._leave(record)
        return record is not None

    # Helpers of the methods above

    def _settle(self, uid: str) -> None:
        """Treat the pod's volumes as the API server shows them."""
        if self.volumes.plan(uid) is not None:
            self.volumes.settle(uid)
            self.volumes_changed()

    def _see_again(self, record: PodRecord, pod: Pod) -> str:
        """Update a pod on the node of its record. Returns the error of its new allocation, or ""."""
        if pod.annotations == record.pod.annotations and not record.assumed:
            return ""
        rivals = record.rivals
        ours = record.written if rivals is None else rivals[0]
        is_ours = record.shows_what_was_sent(pod)
        if not is_ours:
            shown = written_of(pod)
            # The first shown allocation stays: an edit does not turn someone else's binding into ours.
            is_ours = same_decision(shown, ours) and (rivals is None or not rivals[1].decided)
        if is_ours:
            self._decide(record, ours)
            return ""
        if record.confirmed:
            self._decide(record, ours)
        if record.assumed:
            if rivals is not None and rivals[1].decided:
                return ""
            record.rivals = (ours, shown)
            self._rewrite(record, unknown(ours))
            return (
                "its allocation differs from the one that the scheduler sent; it counts against every card until the "
                "bind request is answered"
            )
        if record.written.decided:
            return (
                f"its allocation was changed after it was bound; the original one applies: {record.written.summary()}"
            )
        self._rewrite(record, shown)
        return ""

    def _decide(self, record: PodRecord, written: WrittenAllocation) -> None:
        """Accept `written` as the pod's allocation: from now on, it is neither assumed nor in doubt."""
        record.assumed, record.rivals, record.sent = False, None, NOTHING_SENT
        if written is not record.written:
            self._rewrite(record, written)

    def _rewrite(self, record: PodRecord, written: WrittenAllocation) -> None:
        """Book the pod by this allocation instead."""
        self._leave(record)
        record.written = written
        self._enter(record)

    def _left_out(self, node: str) -> None:
        if (row := self.row_of.get(node)) is not None:
            self.changes.note(row, _REJECTIONS)

    def _used_again(self, node: str) -> None:
        if (row := self.row_of.get(node)) is not None:
            self.changes.note(row, _REJECTIONS)
        # A pod that was rejected there may preempt again, anywhere.
        self.cluster_events.note_everywhere(_REJECTIONS)

    def _row_for(self, name: str) -> int:
        if (row := self.row_of.get(name)) is not None:
            return row
        if self._rows.full:
            self._grow()
        return self._rows.take(name)

    def _grow(self) -> None:
        capacity = self._rows.grow()
        self.unschedulable = resized(self.unschedulable, (capacity,), 0)
        self.labels.grow(capacity)
        self.taints.grow(capacity)
        self.resources.grow(capacity)
        self.cards.grow(capacity)
        self._facts.grow(capacity)

    def _rebook(self, name: str, row: int) -> None:
        """Lay out the cards of a node again, and book its pods on them."""
        records = self._pods_on.get(name, {}).values()
        for record in records:
            self._facts.book(record, row, -1, of_cards=True)
        self.cards.lay_out(row, self._inventories[name], self._marked_unhealthy.get(name, frozenset()))
        for record in records:
            record.held = self._hold(record, row)
            self._facts.book(record, row, 1, of_cards=True)
            if record.held is not None and record.held.booked.problem and not record.nominated:
                self._pod_problems[record.pod.key.uid] = (record.pod, record.held.booked.problem)

    def _book_all(self, name: str, row: int, sign: int) -> int:
        """Book or unbook all pods of a node; their cards are already booked. Returns bits of the changes."""
        kinds = 0
        for record in self._pods_on.get(name, {}).values():
            self._book_resources(record, row, sign)
            kinds |= self._facts.book(record, row, sign, of_cards=False if sign > 0 else None)
            if sign < 0:
                record.held = None
        return kinds

    def _enter(self, record: PodRecord) -> None:
        uid, pod = record.pod.key.uid, record.pod
        record.read = self._facts.read(pod)
        self._pods[uid] = record
        self._pods_on.setdefault(record.node, {})[uid] = record
        self.gangs.add(pod)
        self.terminating.note(record)
        row = self.row_of.get(record.node)
        if row is None:
            return
        kinds = self._book(record, row)
        self.changes.note(row, kinds)
        if not self.query:
            self._facts.pod_placed()
        self._note_turned()
        if kinds & _COMPANY:
            self.cluster_events.note(row, _COMPANY)
        if kinds & _ATTACHMENTS:
            self.cluster_events.note_claims(self.volumes.claims_sharing(pod))
            self.cluster_events.note(row, _ATTACHMENTS)
        self.cluster_events.note_everywhere(kinds & _SOME_DOMAINS)

    def _leave(self, record: PodRecord) -> None:
        uid = record.pod.key.uid
        del self._pods[uid]
        self.gangs.remove(record.pod)
        self.terminating.gone(uid)
        others = self._pods_on[record.node]
        del others[uid]
        if not others:
            del self._pods_on[record.node]
        if record.pod.volumes.claims:
            self.cluster_events.note_claims(record.pod.claim_keys)
        row = self.row_of.get(record.node)
        if row is None:
            return
        self._opened(row, self._unbook(record, row), record.pod.priority)
        self._note_turned()

    def _reread(self, record: PodRecord, pod: Pod) -> None:
        """Move the bookings of a changed pod."""
        row = self.row_of.get(record.node)
        kinds = 0
        if record.pod.template is not pod.template:
            kinds = _PODS
            if row is not None:
                self._book_resources(record, row, -1)
                record.pod = pod
                self._book_resources(record, row, 1)
        kinds |= self._facts.reread(record, pod, row)
        if kinds and row is not None:
            self._opened(row, kinds, max(record.pod.priority, pod.priority))
