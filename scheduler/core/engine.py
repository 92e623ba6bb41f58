"""The scheduler without I/O: queue, tables and one cycle per profile. Pure; time is an argument.

    decide   ── pops the best pod ─▶ Placement (assumed; dispatch binds it, then reports bound or bind_failed)
                                  └▶ NoFit     (waits for a cluster event that helps its class)
    run_hint ── evaluates one queueing hint: if a class of waiting pods fits, its best pod is decided next

The service and the simulator drive the same engine.
"""

from collections.abc import Callable, Iterable, Mapping
from math import inf

import msgspec
import numpy as np

from scheduler.core.preemption_searches import Help, PostFiltered, Searches
from scheduler.core.reevaluation import NominationChecks, Reevaluated, Reevaluation
from scheduler.core.reservations import Reservations, with_reservation
from scheduler.core.scheduling_cycle import NoFit, Outcome, Placement, SchedulingCycle
from scheduler.core.what_if_queries import WhatIfQueries
from scheduler.framework.runtime import Signature
from scheduler.kube import objects
from scheduler.pods.pod import RUNNING, Pod
from scheduler.queue.entry import QueuedPod
from scheduler.queue.scheduling_queue import SchedulingQueue
from scheduler.queue.waking import QueueingHint
from scheduler.state.amounts import AvailableOnRows
from scheduler.state.audit import NodeAudit, audit_node
from scheduler.state.columns.arrays import Int64Array
from scheduler.state.columns.selectors import Expressions
from scheduler.state.nominations import Nominations
from scheduler.state.tables import Tables
from scheduler.state.volumes.volumes import Volumes


class Decision(msgspec.Struct, frozen=True):
    """Outcome of one attempt. queued: the pod with its attempts and times."""

    queued: QueuedPod
    outcome: Outcome


class Engine:
    """Owner of the tables and the queue, which other code may only read.

    Owned by the event loop; no method awaits.
    """

    def __init__(
        self,
        tables: Tables,
        queue: SchedulingQueue,
        cycles: Mapping[str, SchedulingCycle],
        *,
        reserve_after_s: float = 0.0,
    ) -> None:
        """cycles: scheduler name -> its cycle. reserve_after_s: see `Reservations`."""
        self.tables = tables
        self.queue = queue
        self._cycles = cycles
        self.scheduler_names = frozenset(cycles)
        self._left = AvailableOnRows(tables)
        self.nominations = Nominations(tables, least_of_row=self._least_of_row)
        self._searches = Searches(tables, queue, cycles, self.nominations)
        self._reservations = Reservations(tables, queue, cycles, self.nominations, after_s=reserve_after_s)
        self.queries = WhatIfQueries(tables, cycles, self.nominations)
        self.reevaluation = Reevaluation(tables, queue, self.nominations, self._searches, self._key)
        # These take turns: the two kinds of search, and a search for a reservation with a decision.
        self._reserves_next = self._reserves_first = False
        self._nomination_checks = NominationChecks(tables, cycles, self.nominations, self._reservations)
        # The pod that a hint woke last, and the version of the tables at that time.
        self._shown = ("", -1)

    # Watch events

    def pod_seen(self, pod: Pod, came_s: float) -> None:
        """Record the request of a new pod that has a node or is ours. Call this before any other method for this pod.

        came_s: creation time in monotonic seconds, possibly before the start of the process.
        """
        if self.tables.record(pod.key.uid) is None and pod.key.uid not in self.queue:
            self.tables.target.note(pod, came_s)

    def pod_waiting(self, pod: Pod, now_s: float, since_s: float = inf) -> None:
        """Queue or update a pod of ours without a node. Ignores a pod that the tables already hold.

        since_s: see SchedulingQueue.add_or_update.
        """
        if self.tables.record(pod.key.uid) is None or pod.key.uid in self.queue:
            self.queue.add_or_update(pod, now_s, self._key, since_s)
            self._searches.updated(pod)
        if self.tables.record(pod.key.uid) is None:
            self.nominations.shown(pod)
            kept = self.nominations.of(pod.key.uid)
            if kept is not None and kept.reserved and self._key(kept.pod) != self._key(pod):
                # The reservation fits only the old request.
                self._reservations.lost(kept)

    def pod_of_others(self, pod: Pod) -> None:
        """Record a pod without a node that belongs to another scheduler."""
        self.nominations.shown(pod)

    def pod_assigned(self, pod: Pod) -> str:
        """Record a pod that has a node. Returns the problem with its allocation, or ""."""
        if not self.tables.is_assumed(pod.key.uid):
            self.queue.delete(pod.key.uid)
        self._searches.gone(pod.key.uid)
        self.nominations.remove(pod.key.uid)
        before = self.tables.record(pod.key.uid)
        if pod.phase == RUNNING and before is not None and before.pod.phase != RUNNING:
            self.tables.rejections.started(pod)
        return self.tables.add(pod)

    def pod_rejected(self, pod: Pod, reason: str, now_s: float) -> float:
        """Record that the kubelet rejected the pod at admission.

        Returns for how many seconds similar pods avoid the node.
        """
        self._nomination_checks.doubt(pod.node_name)
        return self.tables.rejections.note(pod, reason, now_s)

    def pod_terminating(self, uid: str) -> None:
        """Drop a pod that is being deleted before it got a node."""
        self._searches.gone(uid)
        self.nominations.remove(uid)
        self.queue.delete(uid)

    def pod_gone(self, uid: str) -> None:
        """Release everything that a deleted or finished pod holds."""
        self._searches.gone(uid)
        self.nominations.remove(uid)
        self.tables.remove(uid)
        self.queue.delete(uid)
        self._nomination_checks.try_again(self.nominations.pod_gone(uid))

    def node_changed(self, node: objects.Node) -> str:
        """Add or update a node. Returns the problem with its inventory, or "".

        QuantityError: see Tables.upsert_node.
        """
        return self.tables.upsert_node(node)

    def node_gone(self, name: str) -> None:
        """Remove a deleted or unreadable node; it gets no new pods."""
        self.tables.remove_node(name)
        kept = [one.pod for one in self.nominations.on(name)]
        for pod in kept:
            self.nominations.remove(pod.key.uid)
        self._nomination_checks.try_again(kept)

    def namespace_changed(self, name: str, labels: dict[str, str] | None) -> None:
        """Set the labels of a namespace; None if the namespace is deleted."""
        self.tables.set_namespace(name, labels)

    def selector_changed(self, namespace: str, uid: str, selector: Expressions, *, of_service: bool) -> None:
        """Set the selector of a Service or controller; () if it selects nothing or is deleted."""
        self.tables.set_selector(namespace, uid, selector, of_service=of_service)

    def change_volumes(self, change: Callable[[Volumes], None]) -> None:
        """Apply a change to claims, volumes, storage classes or attachments."""
        self.tables.change_volumes(change)

    def budget_changed(self, budget: objects.PodDisruptionBudget) -> str:
        """Add or update a PodDisruptionBudget. Returns why it is ignored, or ""."""
        return self.tables.budgets.set(budget)

    def budget_gone(self, namespace: str, name: str) -> None:
        self.tables.budgets.remove(namespace, name)

    def budgets_listed(self) -> None:
        """Allow preemption: every PodDisruptionBudget is known now."""
        self.tables.budgets.listed = True
        self._searches.budgets_listed()

    def cards_marked_unhealthy(self, node: str, indexes: frozenset[int]) -> None:
        """Set the card indexes of `node` that the legacy ConfigMap marks as unhealthy."""
        self.tables.mark_unhealthy(node, indexes)

    def audit_node(self, name: str) -> NodeAudit | None:
        """Recount a node from its objects and repair the tables if they differ; None if the node does not exist."""
        return audit_node(self.tables, name)

    # Attempts

    def decide(self, now_s: float, now_ns: int) -> Decision | None:
        """Make one attempt for the next pod; None if no pod is ready. now_ns: Unix nanoseconds, for the annotations."""
        while self.run_hint(now_s):
            pass
        queued = self.queue.pop(now_s)
        if queued is None:
            return None
        pod = queued.pod
        self._searches.left(pod.key.uid)
        cycle = self._cycles[pod.scheduler_name]
        with self.nominations.seen_by(pod):
            kept = self.nominations.of(pod.key.uid)
            outcome = cycle.schedule(pod, now_ns, "" if kept is None else kept.node)
            if isinstance(outcome, Placement):
                self.nominations.remove(pod.key.uid)
            else:
                outcome = with_reservation(outcome, cycle, self.nominations)
        if isinstance(outcome, NoFit):
            # Without this, a pod that a hint wakes and a rule then rejects would be retried forever.
            shown = self._shown == (pod.key.uid, self.tables.changes.version)
            # Capacity that this attempt released when Permit rejected it must not wake the same pod.
            self._note_cluster_events()
            signature = cycle.signature(pod)
            self.queue.unschedulable(
                pod.key.uid,
                (pod.scheduler_name, signature),
                now_s,
                wakes_on=outcome.wakes_on,
                minimum=cycle.minimum_of_class(pod, signature),
                rejected=outcome.by_permit or shown,
            )
        return Decision(queued, outcome)

    def next_ready_s(self) -> float | None:
        """Return the time from which `decide` may have work even if nothing happens; None if never."""
        ends_s = (self.queue.next_ready_s(), self.tables.rejections.next_s(), self._searches.next_ready_s())
        return min((end_s for end_s in ends_s if end_s is not None), default=None)

    def run_hint(self, now_s: float) -> bool:
        """Evaluate one hint for pods that sort before the next pod to decide. Returns False if there is none."""
        self.tables.rejections.expire(now_s)
        self._note_cluster_events()
        self._reservations.look(now_s)
        for uid in self._searches.take_ready(now_s):
            self.queue.try_again(uid, now_s)
        if self._nomination_checks:
            for pod in self._nomination_checks.take():
                self.queue.try_again(pod.key.uid, now_s)
            if self._nomination_checks.step():
                return True
        hint = self.queue.next_hint(self._left)
        if hint is None:
            return False
        key = self._key(hint.pod)
        if key != hint.signature:
            self._reclassify(hint, key, now_s)
        elif hint.of_signature:
            self.queue.confirm(hint)
        else:
            self._answer(hint, now_s)
        return True

    def _reclassify(self, hint: QueueingHint, key: tuple[str, Signature], now_s: float) -> None:
        pod, cycle = hint.pod, self._cycles[hint.pod.scheduler_name]
        minimum = cycle.minimum_of_class(pod, key[1])
        # The state of the pod's claims changed, but still no node can take it, so its message is stale.
        stale = bool(pod.volumes.claims) and cycle.fits_nowhere(pod, key[1])
        self.queue.reclassify(hint, key, minimum, retry_after_s=now_s if stale else None)
        self._searches.reclassified(pod, key, minimum)

    def _answer(self, hint: QueueingHint, now_s: float) -> None:
        pod, cycle = hint.pod, self._cycles[hint.pod.scheduler_name]
        rows = None if hint.rows is None else np.array(sorted(hint.rows), dtype=np.intp)
        with self.nominations.seen_by(pod):
            fits, wakes_on = cycle.fits_on(pod, rows)
        if fits:
            self._shown = (pod.key.uid, self.tables.changes.version)
            self.queue.fits(hint, now_s)
        else:
            self.queue.fits_not(hint, wakes_on=wakes_on)

    # Unschedulable pods

    def rescue(self, reevaluated: Reevaluated, now_s: float) -> bool:
        """Retry a waiting pod that an attempt would help. Returns whether its wake-up was lost, which is a bug.

        A wake-up does not count as lost while a hint or search that may help the pod is still due.
        """
        if self.tables.cluster_events or self._nomination_checks or self.queue.has_hints:
            return False
        pod = reevaluated.pod
        if reevaluated.help is Help.PREEMPTION:
            key = self._key(pod)
            return self._searches.rescue(pod, key, self._cycles[pod.scheduler_name].minimum_of_class(pod, key[1]))
        self.queue.verify_signature(pod.key.uid, now_s)
        return True

    def post_filter(self, no_fit: NoFit, now_s: float) -> PostFiltered | None:
        """Run PostFilter for an unschedulable pod. None if the result is not known yet, see `post_filter_next`."""
        return self._noted(self._searches.post_filter(no_fit, now_s))

    def post_filter_next(self, now_s: float) -> PostFiltered | None:
        """Run one step of the most important search. None if it ends without a result or continues.

        Searches for victims and searches for reservations take turns.
        """
        self._reserves_next = self._reservations.any and not (self._reserves_next and self._searches.any)
        if not self._reserves_next:
            return self._noted(self._searches.next(now_s))
        found = self._reservations.step(now_s)
        if found is None:
            return None
        # The message of the pod's next attempt mentions the reservation.
        self._nomination_checks.try_again((found.pod,))
        return PostFiltered(pod=found.pod, diagnosis=found.diagnosis, displaced=(found.pod,), reserved=found.kept)

    @property
    def any_search(self) -> bool:
        """True if `post_filter_next` has work."""
        return self._searches.any or self._reservations.any

    @property
    def searches(self) -> int:
        """Number of searches started so far."""
        return self._searches.begun

    def search_first(self) -> bool:
        """Return whether a search step comes before `decide`.

        Compares with the next pod to decide: a search for victims comes first if its pod has a higher priority, and
        every other time if the priorities are equal. A search for a reservation comes first every other time.
        """
        first = self.queue.first() if self.any_search else None
        if first is None:
            return False
        if self._searches.any and self._searches.comes_before(first.priority):
            return True
        self._reserves_first = self._reservations.any and not self._reserves_first
        return self._reserves_first

    def _noted(self, post_filtered: PostFiltered | None) -> PostFiltered | None:
        if post_filtered is not None:
            self._nomination_checks.try_again(pod for pod in post_filtered.displaced if pod is not post_filtered.pod)
        return post_filtered

    def preemption_failed(self, pod: Pod, now_s: float) -> None:
        """Drop the nomination because a victim could not be deleted. The deletion is retried after a back-off."""
        self.nominations.remove(pod.key.uid)
        if (reserved := self._searches.deletion_failed(pod.key.uid, now_s)) is not None:
            self._reservations.restore(reserved, now_s)
        self._nomination_checks.try_again((pod,))

    def victims_deleted(self, pod: Pod) -> None:
        """Record that the API server accepted the deletion of all victims."""
        self._searches.settled(pod.key.uid)

    def mark_undeletable(self, victim: Pod) -> None:
        """Prefer other victims from now on, because this one could not be deleted."""
        if (record := self.tables.record(victim.key.uid)) is not None:
            record.undeletable = True

    def is_undeletable(self, victim: Pod) -> bool:
        """Return whether an earlier deletion of the victim failed."""
        return (record := self.tables.record(victim.key.uid)) is not None and record.undeletable

    def victims_spared(self, victims: Iterable[Pod]) -> None:
        """Record that a preemption ended without deleting these victims."""
        self.tables.budgets.spare(victims)

    def throttle(self, throttled: Callable[[str], bool], now_s: float) -> bool:
        """Let other pods overtake the next pod if its namespace is `throttled`. Returns whether they may."""
        return self.queue.throttle(throttled, now_s)

    def serve(self, serves: Callable[[str], object], *, unreported: bool = False) -> bool:
        return self.queue.serve(serves, unreported=unreported)

    def bound(self, placement: Placement) -> None:
        """Record that the API server bound the pod."""
        self.tables.confirm(placement.pod.key.uid)
        self.queue.done(placement.pod.key.uid)

    def bind_failed(
        self, placement: Placement, now_s: float, *, longest_backoff_s: float = 0.0, throttled: str = ""
    ) -> None:
        """Undo the placement of a pod that was not bound. longest_backoff_s: see `SchedulingQueue.failed`.

        throttled: if nothing was sent, how the bindings of its namespace fail; the pod is retried when they work again.
        The pod stays in the queue until the watch shows its deletion.
        """
        pod = placement.pod
        self._cycles[pod.scheduler_name].unreserve(pod)
        if self.tables.record(pod.key.uid) is not None:
            # Another scheduler bound it.
            self.queue.done(pod.key.uid)
        else:
            if throttled:
                self.queue.set_aside(pod.key.uid, now_s, throttled)
            else:
                self.queue.failed(pod.key.uid, now_s, longest_s=longest_backoff_s)
            self._nomination_checks.try_again(self.nominations.pod_gone(pod.key.uid))

    def _least_of_row(self, pod: Pod) -> Int64Array | None:
        cycle = self._cycles.get(pod.scheduler_name)
        return None if cycle is None else cycle.least_of_row(pod)

    def _key(self, pod: Pod) -> tuple[str, Signature]:
        return (pod.scheduler_name, self._cycles[pod.scheduler_name].signature(pod))

    def _note_cluster_events(self) -> None:
        """Pass new cluster events to the queue, the searches and the nomination checks."""
        if self.tables.cluster_events:
            events = self.tables.take_cluster_events()
            self.queue.note_events(events)
            self._searches.note_events(events)
            self._nomination_checks.note_events(events)
