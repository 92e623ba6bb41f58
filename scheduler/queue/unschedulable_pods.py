"""Pods that found no fit, by class, until a hint shows that one fits.

    add ──▶ UNSCHEDULABLE ── wake: a hint fits ────────▶ ACTIVE ── in vain ──▶ BACKING_OFF
                 └────────── take_ready: leftover ─────▶ ACTIVE ◀── take_ready ─────┘

The last attempt and every event since then showed no fit for the class. So each event is evaluated once per class, in
order of their best pods; classes that it cannot help get no hint. If a class fits, its best pod is woken and decided
before the next hint: decisions book room in the tables, so exactly as many pods are woken as fit.

One pod represents its class only while all pods of the class have the same signature. If an object changes that only
some of them refer to (a claim, the labels of their namespace, a Service in it), the signatures of these pods are
verified first: a pod with a new signature moves to another class (docs/develop/decisions/0031).

Events are handled in rounds: events during a round wait until every class that sorts before the next pod to decide has
had its hints. So a steady stream of events starves no class.

A pod that was woken but not placed (a Permit plugin rejected it) always serves a back-off. In kube-scheduler, by
contrast, queueing hints evaluate pod by pod, and an event wakes every pod that it may concern. Owned by the scheduling
queue. No method awaits, so each one is atomic.
"""

from collections.abc import Hashable, Iterator
from typing import Final

import numpy as np

from scheduler.pods.pod import Pod, expect
from scheduler.queue.backoff import backoff_s
from scheduler.queue.class_table import Available, ClaimUsers, ClassTable, NamespaceUsers, selected_by
from scheduler.queue.entry import Entry, PodState, SortKey
from scheduler.queue.heap import Heap
from scheduler.queue.longest_waiting import LongestWaiting
from scheduler.queue.waking import EVERYWHERE, EventRows, PodClass, QueueingHint
from scheduler.state.changes import ANYTHING, Change, ClusterEvents
from scheduler.state.minimum_request import MinimumRequest

# Source: kube-scheduler, backend/queue/scheduling_queue.go, DefaultPodMaxInUnschedulablePodsDuration.
_LEFTOVER_S: Final = 300.0
# Consecutive hints before a pod of the same priority is decided, and further hints for each decided pod. So waiting
# pods of ten thousand templates delay a new pod by milliseconds, not by seconds, however often events arrive.
_MOST_HINTS: Final = 64
_HINTS_PER_POD: Final = 8
# Changes that can alter an Amount.
_MEASURED_BY: Final = int(Change.EXISTENCE | Change.ALLOCATABLE | Change.INVENTORY | Change.PODS | Change.CARDS)
_NODE: Final = int(Change.NODE)


class UnschedulablePods:
    """Unschedulable pods and woken pods that back off.

    unschedulable, backing_off: pods in these states, by the time when the state ends; read by the owner. longest: the
    unschedulable pods by the time when they began to wait.
    """

    def __init__(self, *, initial_backoff_s: float, max_backoff_s: float) -> None:
        self.unschedulable: Heap[float, Entry] = Heap()
        self.backing_off: Heap[float, Entry] = Heap()
        self._initial_s = initial_backoff_s
        self._max_s = max_backoff_s
        self._classes: dict[Hashable, PodClass] = {}
        self._at: dict[int, PodClass] = {}
        self._claim_users = ClaimUsers()
        self._namespace_users = NamespaceUsers()
        self._to_verify: Heap[SortKey, Entry] = Heap()
        # Why each of them must be verified: a changed claim, or a changed object of its namespace.
        self._of_claims: set[Entry] = set()
        self._of_namespaces: set[Entry] = set()
        self._table = ClassTable(measured_by=_MEASURED_BY)
        self.longest = LongestWaiting()
        self._event_rows = EventRows()
        self._noted = ClusterEvents()
        self._any_due = False
        self._room_spent = False
        self._asked = 0
        # Number of signatures verified since the next pod became ready.
        self._held_up = 0

    def add(self, entry: Entry, signature: Hashable, now_s: float, wakes_on: int, minimum: MinimumRequest) -> None:
        """Add a pod for which an attempt found no fit.

        signature: None if no change of the cluster helps. wakes_on, minimum: see `SchedulingQueue.unschedulable`.
        """
        entry.signature = signature
        wait_s = backoff_s(entry.no_fits, initial_s=self._initial_s, max_s=self._max_s)
        # A longer back-off is served in full; kube-scheduler moves such a pod to its back-off queue.
        entry.leftover_s = now_s + max(_LEFTOVER_S, wait_s)
        entry.state = PodState.UNSCHEDULABLE
        self.unschedulable.push(entry, entry.leftover_s)
        if signature is not None:
            pod_class = self._join(entry, signature, minimum)
            self._table.wakes_on[pod_class.slot] |= wakes_on

    def back_off(self, entry: Entry, now_s: float) -> None:
        """Back off the pod after a wake-up that did not help."""
        entry.signature = None
        entry.ready_s = now_s + backoff_s(entry.no_fits, initial_s=self._initial_s, max_s=self._max_s)
        entry.state = PodState.BACKING_OFF
        self.backing_off.push(entry, entry.ready_s)

    def remove(self, entry: Entry) -> None:
        self.unschedulable.discard(entry)
        self.backing_off.discard(entry)
        pod_class = self._classes.get(entry.signature)
        entry.signature = None
        if pod_class is not None:
            self.longest.discard(entry, pod_class.key)
            self._release(entry, pod_class.slot)
            self._verified(entry)
            if pod_class.discard(entry):
                self._table.order[:, pod_class.slot] = pod_class.best.sort_key
            else:
                self._forget(pod_class)

    def take_ready(self, now_s: float) -> Iterator[Entry]:
        """Remove and return pods whose back-off has ended, or that have waited for the leftover time."""
        for heap in (self.backing_off, self.unschedulable):
            for entry in heap.pop_until(now_s):
                self.remove(entry)
                yield entry

    def next_ready_s(self) -> float | None:
        """Time when `take_ready` will next return a pod; None if never."""
        firsts = (heap.first() for heap in (self.backing_off, self.unschedulable))
        return min((first[0] for first in firsts if first is not None), default=None)

    def note(self, events: ClusterEvents) -> None:
        if self._classes:
            self._noted.add(events)

    def popped(self) -> None:
        """Record that a pod is being decided, which may take the room that due hints rely on."""
        self._room_spent = True
        self._held_up = 0
        self._asked = max(0, min(self._asked, _MOST_HINTS) - _HINTS_PER_POD)

    @property
    def has_hints(self) -> bool:
        """False if `next_hint` has nothing to evaluate, whichever pod is next in the queue."""
        return self._any_due or bool(self._noted) or bool(self._to_verify)

    def next_hint(self, head: SortKey | None, left: Available) -> QueueingHint | None:
        """The next hint; None if no class or signature that sorts before `head` needs one.

        A class of a better priority always gets its hint; of the same priority, only as many as a pod may have to wait
        for. After a round with many signatures, a pod is decided before the next round: constantly changing Services
        delay no pod further. head: sort key of the next pod to decide, None if there is none. left: see
        ClassTable.rule_out.
        """
        hint = self._first_hint(head, left)
        if hint is None and self._noted and (head is None or self._held_up < _MOST_HINTS):
            self._begin_round(left)
            hint = self._first_hint(head, left)
        if hint is None or self._waits_for_its_turn(hint, head):
            return None
        self._asked += 1
        self._held_up += hint.of_signature and head is not None
        return hint

    def awaits_hint(self, signature: Hashable) -> bool:
        """Whether a hint of this class is due."""
        pod_class = self._classes.get(signature)
        return pod_class is not None and bool(self._table.due[pod_class.slot])

    def wake(self, hint: QueueingHint) -> Entry | None:
        """Remove and return the best pod of the class, which fits; None if the class is empty."""
        pod_class = self._classes.get(hint.signature)
        if pod_class is None:
            return None
        entry = pod_class.best
        self.remove(entry)
        return entry

    def sleep(self, hint: QueueingHint, wakes_on: int) -> None:
        """Record that no pod of the class fits on the rows of the hint. wakes_on: bits of changes that can help now."""
        pod_class = self._classes.get(hint.signature)
        if pod_class is not None:
            self._table.due[pod_class.slot] = False
            self._table.wakes_on[pod_class.slot] |= wakes_on

    def update(self, entry: Entry, pod: Pod) -> None:
        """Update a changed pod that has kept its signature."""
        other = selected_by(entry.pod) != selected_by(pod)
        entry.pod = pod
        pod_class = self._classes.get(entry.signature) if other else None
        if pod_class is not None:
            self._release_selected(entry, pod_class.slot)
            entry.selected = self._namespace_users.add(entry, pod_class.slot)
            # A pod to which it is now similar may have been verified already.
            self._verify_later(entry, self._of_namespaces)

    def confirm(self, hint: QueueingHint) -> None:
        """Record that the pod still has its signature. After a change of a claim, the class is due on all rows."""
        if not hint.stands:
            return
        of_claim = hint.entry in self._of_claims
        self._verified(hint.entry)
        if not of_claim:
            return
        slot = self._classes[hint.signature].slot
        self._table.due[slot] = True
        self._table.since[slot] = EVERYWHERE
        self._any_due = True

    def reclassify(
        self, hint: QueueingHint, signature: Hashable, minimum: MinimumRequest, retry_after_s: float | None
    ) -> None:
        """Move the pod to another class. If pods of that class already wait, its results apply to the pod, too.

        retry_after_s: retry it in any case, then or when its back-off since the last attempt has ended.
        """
        entry = hint.entry
        if not hint.stands:
            return
        self.remove(entry)
        new = signature not in self._classes
        entry.signature = signature
        if retry_after_s is not None:
            wait_s = backoff_s(entry.no_fits, initial_s=self._initial_s, max_s=self._max_s)
            entry.leftover_s = min(entry.leftover_s, max(retry_after_s, entry.queued_s + wait_s))
        self.unschedulable.push(entry, entry.leftover_s)
        slot = self._join(entry, signature, minimum).slot
        if new:
            self._table.wakes_on[slot] = ANYTHING
            self._table.due[slot] = True
            self._table.since[slot] = EVERYWHERE
            self._any_due = True

    def validate(self) -> None:
        """Recompute every cross-reference. Raises TransitionError for the first error."""
        for key, pod_class in self._classes.items():
            first = min(entry.sort_key for entry in pod_class.pods())
            name = f"the class of pod {pod_class.best.pod.key}"
            expect(pod_class.best.sort_key == first, f"{name} has a better pod than this one")
            expect(first == self._table.sort_key(pod_class.slot), f"{name} is out of order")
            expect(self._at[pod_class.slot] is pod_class, f"{name} is not in slot {pod_class.slot}")
            for entry in pod_class.pods():
                expect(entry.signature == key, f"pod {entry.pod.key} is in {name}, but has another signature")
        for entry in self.unschedulable:
            waits = entry.signature is None or entry in self._classes[entry.signature].pods()
            expect(waits and entry.state is PodState.UNSCHEDULABLE, f"pod {entry.pod.key} is {entry.state.name}")
        waiting = sum(len(pod_class.pods()) for pod_class in self._classes.values())
        hopeless = sum(entry.signature is None for entry in self.unschedulable)
        expect(waiting == len(self.longest), f"{len(self.longest)} pods wait in groups, {waiting} in classes")
        expect(waiting + hopeless == len(self.unschedulable), f"{waiting} pods wait in classes")
        expect(len(self._at) == len(self._classes), f"{len(self._at)} slots are in use")
        using = {
            (claim, one.slot, entry)
            for one in self._classes.values()
            for entry in one.pods()
            for claim in (entry.claims.objects if entry.claims is not None else ())
        }
        indexed = self._claim_users.by_object()
        expect(indexed == using, f"{len(indexed)} pods are indexed by claim, but {len(using)} use claims")
        of_namespaces = {entry for _, _, entry in self._namespace_users.by_object()}
        expect(len(of_namespaces) == waiting, f"{len(of_namespaces)} pods are indexed by namespace, but {waiting} wait")
        alike = all(e.selected is not None and e.selected.key == selected_by(e.pod) for e in of_namespaces)
        expect(alike, "a pod is indexed by labels that it no longer has")
        reasons = self._of_claims | self._of_namespaces
        expect(set(self._to_verify) == reasons, "a pod is listed for verification without a reason")
        waits = all(entry.signature in self._classes for entry in self._to_verify)
        expect(waits, "a pod that is in no class is listed for verification")
        due = np.flatnonzero(self._table.due).tolist()
        expect(set(due) <= self._at.keys(), f"slots {due} are due, but some are not in use")
        expect(self._any_due or not due, f"slots {due} are due, but `_any_due` is not set")

    # Helpers

    def _first_hint(self, head: SortKey | None, left: Available) -> QueueingHint | None:
        """The next hint. Signatures come first: a pod that has left its class must not represent it."""
        first = self._to_verify.first() if self._to_verify else None
        if first is not None and (head is None or first[0] < head):
            return QueueingHint(first[1].signature, first[1], None, of_signature=True)
        slot = self._first_due(head, left)
        if slot is None:
            return None
        pod_class = self._at[slot]
        return QueueingHint(pod_class.key, pod_class.best, self._event_rows.since(int(self._table.since[slot])))

    def _waits_for_its_turn(self, hint: QueueingHint, head: SortKey | None) -> bool:
        """Whether the next pod to decide has the same priority and enough hints came before it."""
        if head is None or self._asked < _MOST_HINTS:
            return False
        first = self._to_verify.first() if hint.of_signature else None
        sort_key = self._classes[hint.signature].best.sort_key if first is None else first[0]
        return sort_key[0] == head[0]

    def _first_due(self, head: SortKey | None, left: Available) -> int | None:
        """Slot of the due class with the best pod, if that pod sorts before `head`."""
        if not self._any_due:
            return None
        if self._room_spent:
            self._rule_out_again(left)
        slot = self._table.first_due()
        if slot is None:
            self._any_due = False
            self._event_rows.clear()
            return None
        return None if head is not None and self._table.sort_key(slot) > head else slot

    def _begin_round(self, left: Available) -> None:
        noted, self._noted = self._noted, ClusterEvents()
        table = self._table
        position = self._event_rows.add(noted.rows)
        for kinds, rows in noted.by_kinds():
            if kinds & _NODE:
                table.allow(rows)
            may_fit = table.rule_out(table.concerned(kinds), rows, left)
            table.make_due(may_fit, position)
        for entry in self._claim_users.users(noted.claims):
            self._verify_later(entry, self._of_claims)
        for entry in self._namespace_users.users(noted.namespaces):
            self._verify_later(entry, self._of_namespaces)
        if noted.everywhere:
            anywhere = table.concerned(noted.everywhere)
            table.due |= anywhere
            table.since[anywhere] = EVERYWHERE
            table.allow_everywhere(noted.everywhere)
        self._any_due = True

    def _rule_out_again(self, left: Available) -> None:
        """Unmark due classes for which the changed rows no longer have enough available."""
        self._room_spent = False
        table = self._table
        some = table.due & (table.since != EVERYWHERE)
        if not some.any():
            return
        rows = self._event_rows.since(int(table.since[some].min()))
        if rows is not None:
            table.due &= ~some | table.rule_out(some, np.array(sorted(rows), dtype=np.intp), left)

    def _join(self, entry: Entry, signature: Hashable, minimum: MinimumRequest) -> PodClass:
        pod_class = self._classes.get(signature)
        if pod_class is None:
            pod_class = PodClass(key=signature, slot=self._table.take(), best=entry)
            self._classes[signature] = self._at[pod_class.slot] = pod_class
        else:
            pod_class.add(entry)
        entry.claims = self._claim_users.add(entry, pod_class.slot)
        entry.selected = self._namespace_users.add(entry, pod_class.slot)
        self._table.need(pod_class.slot, minimum)
        self._table.order[:, pod_class.slot] = pod_class.best.sort_key
        self.longest.add(entry, signature)
        return pod_class

    def _verify_later(self, entry: Entry, why: set[Entry]) -> None:
        why.add(entry)
        if entry not in self._to_verify:
            self._to_verify.push(entry, entry.sort_key)

    def _verified(self, entry: Entry) -> None:
        self._to_verify.discard(entry)
        self._of_claims.discard(entry)
        self._of_namespaces.discard(entry)

    def _release(self, entry: Entry, slot: int) -> None:
        """Release the references. If the pod was to be verified, another one with the same references replaces it."""
        if entry.claims is not None:
            following = self._claim_users.remove(entry.claims, entry, slot)
            entry.claims = None
            if following is not None and entry in self._of_claims:
                self._verify_later(following, self._of_claims)
        self._release_selected(entry, slot)

    def _release_selected(self, entry: Entry, slot: int) -> None:
        if entry.selected is not None:
            following = self._namespace_users.remove(entry.selected, entry, slot)
            entry.selected = None
            if following is not None and entry in self._of_namespaces:
                self._verify_later(following, self._of_namespaces)

    def _forget(self, pod_class: PodClass) -> None:
        """Drop an empty class."""
        del self._classes[pod_class.key]
        del self._at[pod_class.slot]
        self._table.release(pod_class.slot)
