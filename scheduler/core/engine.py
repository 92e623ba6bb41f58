"""The scheduler without I/O: queue, tables and one cycle per profile. Pure; time is an argument.

    intake ── pods, nodes ─▶ tables, queue ◀─ step ─ agenda: hints | attempts | searches for victims | reservations
                                                └─ effects ─▶ dispatch ─ bound, bind_failed, preemption_ended ─▶ engine

The service and the simulator drive the same engine.
"""

from collections.abc import Mapping, Sequence
from math import inf

from scheduler.core.agenda import Agenda, AgendaStep
from scheduler.core.attempts import Attempts, Decision, DelayedMessages
from scheduler.core.gang_attempts import GangAttempts
from scheduler.core.gang_messages import GangMessages
from scheduler.core.hints import Hints
from scheduler.core.ledger_audit import LedgerAudit
from scheduler.core.nomination_checks import NominationChecks
from scheduler.core.outlet import Outlet
from scheduler.core.preemption_searches import Searches
from scheduler.core.reevaluation import Reevaluation
from scheduler.core.reservations import Reservations
from scheduler.core.scheduling_cycle import Placement, SchedulingCycle
from scheduler.core.shared import Shared
from scheduler.core.what_if_queries import WhatIfQueries
from scheduler.kube import objects
from scheduler.pods.gang import GangKey
from scheduler.pods.pod import RUNNING, Pod
from scheduler.queue.gangs import Standing
from scheduler.queue.scheduling_queue import SchedulingQueue
from scheduler.state.audit import NodeAudit, audit_node
from scheduler.state.nominations import Nominations
from scheduler.state.tables import Tables


class Engine:
    """Owner of the tables and the queue. Other code reads them; intake also writes objects other than pods and nodes.

    Owned by the event loop; no method awaits.
    """

    def __init__(
        self,
        tables: Tables,
        queue: SchedulingQueue,
        cycles: Mapping[str, SchedulingCycle],
        *,
        reserve_after_s: float = 0.0,
        audit_period_s: float = inf,
    ) -> None:
        """cycles: scheduler name -> its cycle. reserve_after_s: see `Reservations`.

        audit_period_s: see `LedgerAudit`.
        """
        self.tables = tables
        self.queue = queue
        self._cycles = cycles
        self.scheduler_names = frozenset(cycles)
        self.nominations = Nominations(tables)
        self._shared = shared = Shared(tables, queue, cycles, self.nominations)
        self.searches = Searches(shared)
        self.reservations = Reservations(shared, after_s=reserve_after_s)
        self._checks = NominationChecks(shared, self.reservations)
        self._hints = Hints(shared, self.searches, self._checks)
        messages = GangMessages(shared)
        self._gang_attempts = GangAttempts(shared, self.searches, messages)
        self._attempts = Attempts(shared, self.searches, self._hints, self._gang_attempts)
        self.reevaluation = Reevaluation(shared, self.searches, self._hints)
        self.audit = LedgerAudit(tables, period_s=audit_period_s)
        works = self._attempts, self.searches, self.reservations, DelayedMessages(shared)
        self._agenda = Agenda(
            self._hints, works, (self.reevaluation, self.audit, messages), transaction=self._gang_attempts
        )
        self.queries = WhatIfQueries(tables, cycles, self.nominations)

    # Watch events

    def pod_seen(self, pod: Pod, came_s: float) -> None:
        """Record the request of a new pod that has a node or is ours. Call this before any other method for this pod.

        came_s: creation time in monotonic seconds, possibly before the start of the process.
        """
        if self.tables.record(pod.key.uid) is None and pod.key.uid not in self.queue:
            self.tables.pod_seen(pod, came_s)

    def pod_waiting(self, pod: Pod, now_s: float, since_s: float = inf) -> None:
        """Queue or update a pod of ours without a node. Ignores a pod that the tables already hold.

        since_s: see SchedulingQueue.add_or_update.
        """
        if self.tables.record(pod.key.uid) is None or pod.key.uid in self.queue:
            self.queue.add_or_update(pod, now_s, self._shared.class_of, since_s)
            self.searches.updated(pod)
        if self.tables.record(pod.key.uid) is None and self.queue.gangs.standing(pod) is Standing.ALONE:
            self.nominations.shown(pod)
            kept = self.nominations.of(pod.key.uid)
            if kept is not None and kept.reserved and self._shared.class_of(kept.pod) != self._shared.class_of(pod):
                # The reservation fits only the old request.
                self.reservations.lost(kept)

    def pod_of_others(self, pod: Pod) -> None:
        """Record a pod without a node that belongs to another scheduler."""
        self.nominations.shown(pod)

    def pod_assigned(self, pod: Pod) -> str:
        """Record a pod that has a node. Returns the problem with its allocation, or ""."""
        if not self.tables.is_assumed(pod.key.uid):
            self.queue.delete(pod.key.uid)
        self.searches.gone(pod.key.uid)
        self.nominations.remove(pod.key.uid)
        before = self.tables.record(pod.key.uid)
        if pod.phase == RUNNING and before is not None and before.pod.phase != RUNNING:
            self.tables.rejections.started(pod)
        return self.tables.add(pod)

    def pod_rejected(self, pod: Pod, reason: str, now_s: float) -> float:
        """Record that the kubelet rejected the pod at admission.

        Returns for how many seconds similar pods avoid the node.
        """
        self._checks.doubt(pod.node_name)
        return self.tables.rejections.note(pod, reason, now_s)

    def pod_terminating(self, uid: str) -> None:
        """Drop a pod that is being deleted before it got a node."""
        self.searches.gone(uid)
        self.nominations.remove(uid)
        self.queue.delete(uid)

    def pod_gone(self, uid: str) -> None:
        """Release everything that a deleted or finished pod holds."""
        self.searches.gone(uid)
        self.nominations.remove(uid)
        self.tables.remove(uid)
        self.queue.delete(uid)
        self._shared.retries.extend(self.nominations.pod_gone(uid))

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
        self._shared.retries.extend(kept)

    def gang_described(self, key: GangKey, minimum: int | None) -> None:
        """Record how many pods a PodGroup says must start together; None if it does not exist."""
        self.queue.gangs.describe(key, minimum)

    def budgets_listed(self) -> None:
        """Allow preemption: every PodDisruptionBudget is known now."""
        self.tables.budgets.listed = True
        self.searches.budgets_listed()

    def audit_node(self, name: str) -> NodeAudit | None:
        """Recount a node from its objects and repair the tables if they differ; None if the node does not exist."""
        return audit_node(self.tables, name)

    # Steps

    def into(self, outlet: Outlet) -> None:
        """Ask dispatch what it takes; by default everything is taken at once."""
        self._shared.outlet = outlet

    def step(self, now_s: float, now_ns: int) -> AgendaStep | None:
        """Do the next step of the agenda; None if there is nothing to do. now_ns: Unix nanoseconds, for annotations."""
        return self._agenda.step(now_s, now_ns, may_place=self._shared.outlet.may_place)

    def decide(self, now_s: float, now_ns: int) -> Decision | None:
        """Make one attempt for the next pod, without PostFilter; None if no pod is ready."""
        while self.run_hint(now_s):
            pass
        return self._attempts.decide(now_s, now_ns)

    def run_hint(self, now_s: float) -> bool:
        """Evaluate one hint for pods that sort before the next pod to decide. Returns False if there is none."""
        return self._hints.step(now_s, 0) is not None

    def next_ready_s(self) -> float | None:
        """Return the time from which `decide` may have work even if nothing happens; None if never."""
        ready = self.queue, self.searches, self._gang_attempts
        ends_s = (self.tables.rejections.next_s(), *(one.next_ready_s() for one in ready))
        return min((end_s for end_s in ends_s if end_s is not None), default=None)

    def next_step_s(self) -> float:
        """Return the time from which `step` may have work even if nothing happens; inf if never."""
        ready_s = self.next_ready_s() if self._shared.outlet.may_place else None
        return self._agenda.due_s() if ready_s is None else min(ready_s, self._agenda.due_s())

    # What dispatch reports

    def preemption_ended(
        self, pod: Pod, spared: Sequence[Pod], now_s: float, *, failed: bool = False, refused: Pod | None = None
    ) -> None:
        """Record that no more victims are deleted for `pod`. spared: victims that were not deleted.

        failed: a deletion failed, so the nomination is dropped, and a retry follows after a back-off. refused: the
        victim whose deletion got an error; others are preferred from now on.
        """
        record = None if refused is None else self.tables.record(refused.key.uid)
        if record is not None:
            record.undeletable = True
        if failed:
            self.nominations.remove(pod.key.uid)
            self.searches.deletion_failed(pod.key.uid, now_s)
            self._shared.retries.append(pod)
        elif not spared:
            self.searches.settled(pod.key.uid)
        self.tables.budgets.spare(spared)

    def bound(self, placement: Placement) -> None:
        """Record that the API server bound the pod."""
        self._gang_attempts.bound(placement.pod.key.uid)
        self.tables.confirm(placement.pod.key.uid)
        self.queue.done(placement.pod.key.uid)

    def bind_failed(self, placement: Placement, now_s: float, *, longest_backoff_s: float = 0.0) -> None:
        """Undo the placement of a pod that was not bound. longest_backoff_s: see `SchedulingQueue.failed`.

        The pod stays in the queue until the watch shows its deletion. If others of its gang are bound, it keeps its
        place for some seconds.
        """
        if not self._gang_attempts.keeps(placement, now_s):
            self._shared.give_up(placement.pod, now_s, longest_backoff_s)
