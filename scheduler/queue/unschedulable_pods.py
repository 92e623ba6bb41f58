"""Pods that found no fit, by class, until a place for them is shown.

    add ──▶ UNSCHEDULABLE ── wake: a check showed a place ──▶ ACTIVE ── in vain ──▶ BACKING_OFF
                 └────────── take_ready: leftover ──────────▶ ACTIVE ◀── take_ready ─────┘

Whoever waits fits nowhere: the attempt said so, and every opening since then was held against the class. So an
opening is asked about once, class by class, in the order of their best pods; a class that it cannot help is not
asked. One that fits has its best pod woken, which is decided before the next question: places are spent in the tables
themselves, and as many pods are woken as there are places.

One pod can answer for its class only while all pods of the class have the same signature. When something changes that
pods refer to individually (a claim, the labels of their namespace, a Service in it), the signatures of the pods that
refer to it are checked first: a pod with a new signature moves to another class (docs/decisions/0031).

Openings are offered in rounds: what opens during a round waits until every class that sorts before the pod to be
decided next has been asked, so a steady stream of openings keeps no class from being asked.

A pod to which a place was shown in vain (a Permit plugin says no) serves a back-off, whatever opens meanwhile.
Where kube-scheduler differs: its queueing hints judge pod by pod, and an event wakes every pod that it may concern.
Owned by the scheduling queue. No method awaits, so each one is atomic.
"""

from collections.abc import Hashable, Iterator
from typing import Final

import numpy as np

from scheduler.pods.pod import Pod
from scheduler.pods.transitions import expect
from scheduler.queue.backoff import backoff_s
from scheduler.queue.claim_users import ClaimUsers, NamespaceUsers, selected_by
from scheduler.queue.class_table import Available, ClassTable
from scheduler.queue.entry import Entry, PodState, SortKey
from scheduler.queue.heap import Heap
from scheduler.queue.judged_longest_ago import JudgedLongestAgo
from scheduler.queue.longest_waiting import LongestWaiting
from scheduler.queue.waking import EVERYWHERE, Check, OpenRows, PodClass
from scheduler.state.changes import ANYTHING, Change, Openings
from scheduler.state.minimum_request import MinimumRequest

# Source: kube-scheduler, backend/queue/scheduling_queue.go, DefaultPodMaxInUnschedulablePodsDuration.
_LEFTOVER_S: Final = 300.0
# Among pods of one priority, those who are asked in vain share the time with those who come, however often something
# opens: so many questions in a row before a pod is decided; after that, so many more for each pod that is. So pods of
# ten thousand templates that wait hold up a new one for milliseconds, not for seconds.
_MOST_CHECKS: Final = 64
_CHECKS_PER_POD: Final = 8
# What can alter an Amount.
_MEASURED_BY: Final = int(Change.EXISTENCE | Change.ALLOCATABLE | Change.INVENTORY | Change.PODS | Change.CARDS)
_NODE: Final = int(Change.NODE)


class UnschedulablePods:
    """unschedulable, backing_off: the pods in these states, by the time that ends them; for the owner to read.

    judged: the first of these by when they were judged last. longest: by when they began to wait.
    """

    def __init__(self, *, initial_backoff_s: float, max_backoff_s: float) -> None:
        """As `backoff_s`."""
        self.unschedulable: Heap[float, Entry] = Heap()
        self.backing_off: Heap[float, Entry] = Heap()
        self.judged = JudgedLongestAgo()
        self._initial_s = initial_backoff_s
        self._max_s = max_backoff_s
        self._classes: dict[Hashable, PodClass] = {}
        self._at: dict[int, PodClass] = {}
        self._claim_users = ClaimUsers()
        self._namespace_users = NamespaceUsers()
        self._rechecks: Heap[SortKey, Entry] = Heap()
        # Which of them are checked because of a claim, and because of their namespace.
        self._of_claims: set[Entry] = set()
        self._of_namespaces: set[Entry] = set()
        self._table = ClassTable(measured_by=_MEASURED_BY)
        self.longest = LongestWaiting()
        self._open = OpenRows()
        self._noted = Openings()
        self._any_due = False
        self._places_spent = False
        self._asked = 0
        # How many signatures were checked since the next pod has been ready.
        self._held_up = 0

    def add(self, entry: Entry, signature: Hashable, now_s: float, wakes_on: int, minimum: MinimumRequest) -> None:
        """An attempt found no fit. signature: None when no change of the cluster helps. The rest: of its class."""
        entry.signature = signature
        wait_s = backoff_s(entry.no_fits, initial_s=self._initial_s, max_s=self._max_s)
        # A back-off longer than that is served first; kube-scheduler moves such a pod to its back-off queue.
        entry.leftover_s = now_s + max(_LEFTOVER_S, wait_s)
        entry.state = PodState.UNSCHEDULABLE
        self.unschedulable.push(entry, entry.leftover_s)
        self.judged.add(entry, now_s)
        if signature is not None:
            pod_class = self._join(entry, signature, minimum)
            self._table.wakes_on[pod_class.slot] |= wakes_on

    def back_off(self, entry: Entry, now_s: float) -> None:
        """A place was shown to the pod in vain."""
        entry.signature = None
        entry.ready_s = now_s + backoff_s(entry.no_fits, initial_s=self._initial_s, max_s=self._max_s)
        entry.state = PodState.BACKING_OFF
        self.backing_off.push(entry, entry.ready_s)

    def remove(self, entry: Entry) -> None:
        """The pod leaves."""
        self.judged.discard(entry)
        self._take_out(entry)

    def _take_out(self, entry: Entry) -> None:
        self.unschedulable.discard(entry)
        self.backing_off.discard(entry)
        pod_class = self._classes.get(entry.signature)
        entry.signature = None
        if pod_class is not None:
            self.longest.discard(entry, pod_class.key)
            self._release(entry, pod_class.slot)
            self._checked(entry)
            if pod_class.discard(entry):
                self._table.order[:, pod_class.slot] = pod_class.best.sort_key
            else:
                self._forget(pod_class)

    def take_ready(self, now_s: float) -> Iterator[Entry]:
        """Take the pods whose back-off ended, and those left over for too long."""
        for heap in (self.backing_off, self.unschedulable):
            for entry in heap.pop_until(now_s):
                self.remove(entry)
                yield entry

    def next_ready_s(self) -> float | None:
        """When `take_ready` will next have something."""
        firsts = (heap.first() for heap in (self.backing_off, self.unschedulable))
        return min((first[0] for first in firsts if first is not None), default=None)

    def note(self, openings: Openings) -> None:
        """Something may have become possible there."""
        if self._classes:
            self._noted.add(openings)

    def popped(self) -> None:
        """A pod is being decided, and may take a place that others are to be asked about."""
        self._places_spent = True
        self._held_up = 0
        self._asked = max(0, min(self._asked, _MOST_CHECKS) - _CHECKS_PER_POD)

    @property
    def has_questions(self) -> bool:
        """False when `next_check` has nothing to ask, whatever comes next in the queue."""
        return self._any_due or bool(self._noted) or bool(self._rechecks)

    def next_check(self, head: SortKey | None, left: Available) -> Check | None:
        """The next question; None when neither a class nor a signature that sorts before `head` is to be checked.

        One of a better priority is always asked; of the same priority, no more than a pod has to wait for. After a
        round with many signatures, a pod is decided before the next round: Services that come and go all the time hold
        up no pod for longer. head: of the pod to be decided next, None without one. left: as ClassTable.rule_out.
        """
        check = self._first_check(head, left)
        if check is None and self._noted and (head is None or self._held_up < _MOST_CHECKS):
            self._begin_round(left)
            check = self._first_check(head, left)
        if check is None or self._waits_for_its_turn(check, head):
            return None
        self._asked += 1
        self._held_up += check.of_signature and head is not None
        return check

    def wake(self, check: Check) -> Entry | None:
        """Take the best pod of the class, which fits; None when all have left."""
        pod_class = self._classes.get(check.signature)
        if pod_class is None:
            return None
        entry = pod_class.best
        self.remove(entry)
        return entry

    def sleep(self, check: Check, wakes_on: int) -> None:
        """No pod of the class fits on the rows of the check. wakes_on: bits of what can help now."""
        pod_class = self._classes.get(check.signature)
        if pod_class is not None:
            self._table.due[pod_class.slot] = False
            self._table.wakes_on[pod_class.slot] |= wakes_on

    def recheck(self, entry: Entry | None) -> bool:
        """Check the signature of a pod, and then its class. Returns False if it waits in none."""
        if entry is None or entry.signature is None:
            return False
        self._recheck(entry, self._of_claims)
        return True

    def update(self, entry: Entry, pod: Pod) -> None:
        """The pod was seen again, and has the signature that it had."""
        other = selected_by(entry.pod) != selected_by(pod)
        entry.pod = pod
        pod_class = self._classes.get(entry.signature) if other else None
        if pod_class is not None:
            self._release_selected(entry, pod_class.slot)
            entry.selected = self._namespace_users.add(entry, pod_class.slot)
            # Of those that it resembles now, one may have been checked already.
            self._recheck(entry, self._of_namespaces)

    def confirm(self, check: Check) -> None:
        """The pod still has the signature of its class. After a change of a claim, that is due on all rows."""
        if not check.stands:
            return
        of_claim = check.entry in self._of_claims
        self._checked(check.entry)
        if not of_claim:
            return
        slot = self._classes[check.signature].slot
        self._table.due[slot] = True
        self._table.since[slot] = EVERYWHERE
        self._any_due = True

    def reclassify(
        self, check: Check, signature: Hashable, minimum: MinimumRequest, told_after_s: float | None
    ) -> None:
        """Move the pod to another class. If that class waits already, its answers hold for the pod too.

        told_after_s: it is to be tried in any case, then or when its back-off since the last attempt has ended.
        """
        entry = check.entry
        if not check.stands:
            return
        self._take_out(entry)
        new = signature not in self._classes
        entry.signature = signature
        if told_after_s is not None:
            wait_s = backoff_s(entry.no_fits, initial_s=self._initial_s, max_s=self._max_s)
            entry.leftover_s = min(entry.leftover_s, max(told_after_s, entry.queued_s + wait_s))
        self.unschedulable.push(entry, entry.leftover_s)
        slot = self._join(entry, signature, minimum).slot
        if new:
            self._table.wakes_on[slot] = ANYTHING
            self._table.due[slot] = True
            self._table.since[slot] = EVERYWHERE
            self._any_due = True

    def validate(self) -> None:
        """Recompute every cross-reference; TransitionError names the first that is wrong."""
        for key, pod_class in self._classes.items():
            first = min(entry.sort_key for entry in pod_class.pods())
            expect(pod_class.best.sort_key == first, f"class {key!r} has another best pod")
            expect(first == self._table.sort_key(pod_class.slot), f"class {key!r} is out of order")
            expect(self._at[pod_class.slot] is pod_class, f"class {key!r} is not in slot {pod_class.slot}")
            for entry in pod_class.pods():
                expect(entry.signature == key, f"pod {entry.pod.key} is in class {key!r}, not {entry.signature!r}")
        for entry in self.unschedulable:
            waits = entry.signature is None or entry in self._classes[entry.signature].pods()
            expect(waits and entry.state is PodState.UNSCHEDULABLE, f"pod {entry.pod.key} is {entry.state.name}")
        waiting = sum(len(pod_class.pods()) for pod_class in self._classes.values())
        hopeless = sum(entry.signature is None for entry in self.unschedulable)
        expect(waiting == len(self.longest), f"{len(self.longest)} pods wait in groups, {waiting} in classes")
        expect(waiting + hopeless == len(self.unschedulable), f"{waiting} pods wait in classes")
        expect(len(self.judged) == len(self.unschedulable), f"{len(self.judged)} pods are judged again")
        expect(len(self._at) == len(self._classes), f"{len(self._at)} slots are in use")
        using = {
            (claim, one.slot, entry)
            for one in self._classes.values()
            for entry in one.pods()
            for claim in (entry.claims.objects if entry.claims is not None else ())
        }
        indexed = self._claim_users.by_object()
        expect(indexed == using, f"{len(indexed)} pods are found by claims, {len(using)} use some")
        of_namespaces = {entry for _, _, entry in self._namespace_users.by_object()}
        expect(len(of_namespaces) == waiting, f"{len(of_namespaces)} pods are found by namespaces, {waiting} wait")
        alike = all(e.selected is not None and e.selected.key == selected_by(e.pod) for e in of_namespaces)
        expect(alike, "a pod is found by labels that it no longer has")
        expect(set(self._rechecks) == self._of_claims | self._of_namespaces, "a pod is checked without a reason")
        waits = all(entry.signature in self._classes for entry in self._rechecks)
        expect(waits, "a pod that waits in no class is to be checked")
        due = np.flatnonzero(self._table.due).tolist()
        expect(set(due) <= self._at.keys(), f"slots {due} are due")
        expect(self._any_due or not due, f"slots {due} are due and nobody knows")

    # The parts of the verbs

    def _first_check(self, head: SortKey | None, left: Available) -> Check | None:
        """Signatures first: a pod that has left its class must not answer for it."""
        first = self._rechecks.first() if self._rechecks else None
        if first is not None and (head is None or first[0] < head):
            return Check(first[1].signature, first[1], None, of_signature=True)
        slot = self._first_due(head, left)
        if slot is None:
            return None
        pod_class = self._at[slot]
        return Check(pod_class.key, pod_class.best, self._open.since(int(self._table.since[slot])))

    def _waits_for_its_turn(self, check: Check, head: SortKey | None) -> bool:
        """Whether the next pod to decide has the same priority, and enough was asked before it."""
        if head is None or self._asked < _MOST_CHECKS:
            return False
        first = self._rechecks.first() if check.of_signature else None
        sort_key = self._classes[check.signature].best.sort_key if first is None else first[0]
        return sort_key[0] == head[0]

    def _first_due(self, head: SortKey | None, left: Available) -> int | None:
        """The due class with the best pod, if that sorts before `head`."""
        if not self._any_due:
            return None
        if self._places_spent:
            self._rule_out_again(left)
        slot = self._table.first_due()
        if slot is None:
            self._any_due = False
            self._open.clear()
            return None
        return None if head is not None and self._table.sort_key(slot) > head else slot

    def _begin_round(self, left: Available) -> None:
        noted, self._noted = self._noted, Openings()
        table = self._table
        position = self._open.add(noted.rows)
        for kinds, rows in noted.by_kinds():
            if kinds & _NODE:
                table.allow(rows)
            may_fit = table.rule_out(table.concerned(kinds), rows, left)
            table.make_due(may_fit, position)
        for entry in self._claim_users.users(noted.claims):
            self._recheck(entry, self._of_claims)
        for entry in self._namespace_users.users(noted.namespaces):
            self._recheck(entry, self._of_namespaces)
        if noted.everywhere:
            anywhere = table.concerned(noted.everywhere)
            table.due |= anywhere
            table.since[anywhere] = EVERYWHERE
            table.allow_everywhere(noted.everywhere)
        self._any_due = True

    def _rule_out_again(self, left: Available) -> None:
        """Drop the classes for which too little is left of what had opened."""
        self._places_spent = False
        table = self._table
        some = table.due & (table.since != EVERYWHERE)
        if not some.any():
            return
        rows = self._open.since(int(table.since[some].min()))
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

    def _recheck(self, entry: Entry, why: set[Entry]) -> None:
        why.add(entry)
        if entry not in self._rechecks:
            self._rechecks.push(entry, entry.sort_key)

    def _checked(self, entry: Entry) -> None:
        self._rechecks.discard(entry)
        self._of_claims.discard(entry)
        self._of_namespaces.discard(entry)

    def _release(self, entry: Entry, slot: int) -> None:
        """If the pod was to be checked, another of its class that refers to the same is checked in its place."""
        if entry.claims is not None:
            following = self._claim_users.remove(entry.claims, entry, slot)
            entry.claims = None
            if following is not None and entry in self._of_claims:
                self._recheck(following, self._of_claims)
        self._release_selected(entry, slot)

    def _release_selected(self, entry: Entry, slot: int) -> None:
        if entry.selected is not None:
            following = self._namespace_users.remove(entry.selected, entry, slot)
            entry.selected = None
            if following is not None and entry in self._of_namespaces:
                self._recheck(following, self._of_namespaces)

    def _forget(self, pod_class: PodClass) -> None:
        """Its last pod has left."""
        del self._classes[pod_class.key]
        del self._at[pod_class.slot]
        self._table.release(pod_class.slot)
