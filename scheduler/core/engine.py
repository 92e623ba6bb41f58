"""The whole scheduler without the world: queue, tables and one cycle per profile. Pure; time is an argument.

    decide ── pops the best pod ─▶ Placement (assumed; the shell binds it, then tells bound / refused)
                                └▶ NoFit     (waits until something opens that helps its class)
    check  ── asks one class of waiting pods whether what has opened helps it: its best pod is then the next to decide

The app and the simulator drive the same engine.
"""

from collections.abc import Callable, Iterable, Mapping
from math import inf

import msgspec
import numpy as np

from scheduler.core.judging_again import JudgedAgain, JudgingAgain
from scheduler.core.nomination_checks import NominationChecks
from scheduler.core.preemption_searches import Help, PostFiltered, Searches
from scheduler.core.questions import Questions
from scheduler.core.reservations import Reservations, with_reserved_place
from scheduler.core.scheduling_cycle import NoFit, Outcome, Placement, SchedulingCycle
from scheduler.framework.runtime import Signature
from scheduler.kube import objects
from scheduler.pods.pod import RUNNING, Pod
from scheduler.queue.entry import QueuedPod
from scheduler.queue.scheduling_queue import SchedulingQueue
from scheduler.queue.waking import Check
from scheduler.state.amounts import AvailableOnRows
from scheduler.state.audit import NodeAudit, audit_node
from scheduler.state.columns.arrays import Int64Array
from scheduler.state.columns.selectors import Expressions
from scheduler.state.nominations import Nominations
from scheduler.state.tables import Tables
from scheduler.state.volumes.volumes import Volumes


class Decision(msgspec.Struct, frozen=True):
    """What became of one attempt. queued: the pod with its attempts and times."""

    queued: QueuedPod
    outcome: Outcome


class Engine:
    """The one door to tables and queue: whoever changes them calls a method here; others only read them.

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
        """cycles: by scheduler name. reserve_after_s: as `Reservations`."""
        self.tables = tables
        self.queue = queue
        self._cycles = cycles
        self.scheduler_names = frozenset(cycles)
        self._left = AvailableOnRows(tables)
        self.nominations = Nominations(tables, least_of_row=self._least_of_row)
        self._searches = Searches(tables, queue, cycles, self.nominations)
        self._reservations = Reservations(tables, queue, cycles, self.nominations, after_s=reserve_after_s)
        self.questions = Questions(tables, cycles, self.nominations)
        self.judging = JudgingAgain(tables, queue, self.nominations, self._searches, self._key)
        # Whose turn it is: of two searches, and of a search and a decision.
        self._reserves_next = self._reserves_first = False
        self._placed = NominationChecks(tables, cycles, self.nominations, self._reservations)
        # The pod that a check has woken last, and the version of the tables that it saw.
        self._shown = ("", -1)

    # What the watches show

    def pod_seen(self, pod: Pod, came_s: float) -> None:
        """A pod with a node, or one of ours: told first, so that one seen for the first time is learned from.

        came_s: when it was created, monotonic seconds, perhaps before the start.
        """
        if self.tables.record(pod.key.uid) is None and pod.key.uid not in self.queue:
            self.tables.target.note(pod, came_s)

    def pod_waiting(self, pod: Pod, now_s: float, since_s: float = inf) -> None:
        """A pod of ours without a node was seen. One that we have placed already is told apart by the tables.

        since_s: as SchedulingQueue.add_or_update.
        """
        if self.tables.record(pod.key.uid) is None or pod.key.uid in self.queue:
            self.queue.add_or_update(pod, now_s, self._key, since_s)
            self._searches.updated(pod)
        if self.tables.record(pod.key.uid) is None:
            self.nominations.shown(pod)
            kept = self.nominations.of(pod.key.uid)
            if kept is not None and kept.reserved and self._key(kept.pod) != self._key(pod):
                # It was chosen for what the pod asked for then.
                self._reservations.lost(kept)

    def pod_of_others(self, pod: Pod) -> None:
        """A pod without a node was seen that another scheduler is to place."""
        self.nominations.shown(pod)

    def pod_assigned(self, pod: Pod) -> str:
        """A pod with a node was seen: nobody needs to place it. Returns what is wrong with its allocation, or ""."""
        if not self.tables.is_assumed(pod.key.uid):
            self.queue.delete(pod.key.uid)
        self._searches.gone(pod.key.uid)
        self.nominations.remove(pod.key.uid)
        before = self.tables.record(pod.key.uid)
        if pod.phase == RUNNING and before is not None and before.pod.phase != RUNNING:
            self.tables.rejections.started(pod)
        return self.tables.add(pod)

    def pod_rejected(self, pod: Pod, reason: str, now_s: float) -> float:
        """The kubelet of its node has failed it at admission. Returns for how many seconds such pods go elsewhere."""
        self._placed.doubt(pod.node_name)
        return self.tables.rejections.note(pod, reason, now_s)

    def pod_terminating(self, uid: str) -> None:
        """A pod without a node is being deleted: nobody needs to place it any more."""
        self._searches.gone(uid)
        self.nominations.remove(uid)
        self.queue.delete(uid)

    def pod_gone(self, uid: str) -> None:
        """The pod is gone or finished: it holds nothing."""
        self._searches.gone(uid)
        self.nominations.remove(uid)
        self.tables.remove(uid)
        self.queue.delete(uid)
        self._placed.try_again(self.nominations.pod_gone(uid))

    def node_changed(self, node: objects.Node) -> str:
        """A node was seen. Returns what is wrong with its inventory, or "". QuantityError: as Tables.upsert_node."""
        return self.tables.upsert_node(node)

    def node_gone(self, name: str) -> None:
        """The node is gone, or cannot be read: nothing new is placed there."""
        self.tables.remove_node(name)
        kept = [one.pod for one in self.nominations.on(name)]
        for pod in kept:
            self.nominations.remove(pod.key.uid)
        self._placed.try_again(kept)

    def namespace_changed(self, name: str, labels: dict[str, str] | None) -> None:
        """Labels of a namespace; None when it is gone."""
        self.tables.set_namespace(name, labels)

    def selector_changed(self, namespace: str, uid: str, selector: Expressions, *, of_service: bool) -> None:
        """Of a Service or a controller; () when it selects nothing, or is gone."""
        self.tables.set_selector(namespace, uid, selector, of_service=of_service)

    def change_volumes(self, change: Callable[[Volumes], None]) -> None:
        """Claims, volumes, storage classes, or what nodes attach."""
        self.tables.change_volumes(change)

    def budget_changed(self, budget: objects.PodDisruptionBudget) -> str:
        """A PodDisruptionBudget was seen. Returns why it is left out, or ""."""
        return self.tables.budgets.set(budget)

    def budget_gone(self, namespace: str, name: str) -> None:
        """It protects nobody any more."""
        self.tables.budgets.remove(namespace, name)

    def budgets_listed(self) -> None:
        """All of them are known."""
        self.tables.budgets.listed = True
        self._searches.everybody()

    def cards_marked_unhealthy(self, node: str, indexes: frozenset[int]) -> None:
        """The cards of `node`, by index, that the legacy ConfigMap takes out of use."""
        self.tables.mark_unhealthy(node, indexes)

    def audit_node(self, name: str) -> NodeAudit | None:
        """Count a node again from its objects, and repair the tables where they differ; None when it is not there."""
        return audit_node(self.tables, name)

    # Attempts

    def decide(self, now_s: float, now_ns: int) -> Decision | None:
        """One attempt for the next pod; None when no pod is ready. now_ns: Unix nanoseconds, for the annotations."""
        while self.check(now_s):
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
                outcome = with_reserved_place(outcome, cycle, self.nominations)
        if isinstance(outcome, NoFit):
            # A pod that is shown its place again and again by a rule that then refuses it would be tried forever.
            shown = self._shown == (pod.key.uid, self.tables.changes.version)
            # What the attempt itself gave back (Permit said no) is no news for the pod that gave it back.
            self._note_openings()
            signature = cycle.signature(pod)
            self.queue.unschedulable(
                pod.key.uid,
                (pod.scheduler_name, signature),
                now_s,
                wakes_on=outcome.wakes_on,
                minimum=cycle.class_minimum(pod, signature),
                in_vain=outcome.by_permit or shown,
            )
        return Decision(queued, outcome)

    def next_ready_s(self) -> float | None:
        """When `decide` may have something to do although nothing happens; None when that is never."""
        ends_s = (self.queue.next_ready_s(), self.tables.rejections.next_s(), self._searches.next_ready_s())
        return min((end_s for end_s in ends_s if end_s is not None), default=None)

    def check(self, now_s: float) -> bool:
        """Ask one class of waiting pods that sorts before the next pod to decide; False when there is none to ask."""
        self.tables.rejections.expire(now_s)
        self._note_openings()
        self._reservations.look(now_s)
        for uid in self._searches.take_ready(now_s):
            self.queue.try_again(uid, now_s)
        if self._placed:
            for pod in self._placed.take():
                self.queue.try_again(pod.key.uid, now_s)
            if self._placed.step():
                return True
        check = self.queue.next_check(self._left)
        if check is None:
            return False
        key = self._key(check.pod)
        if key != check.signature:
            self._reclassify(check, key, now_s)
        elif check.of_signature:
            self.queue.confirm(check)
        else:
            self._answer(check, now_s)
        return True

    def _reclassify(self, check: Check, key: tuple[str, Signature], now_s: float) -> None:
        pod, cycle = check.pod, self._cycles[check.pod.scheduler_name]
        minimum = cycle.class_minimum(pod, key[1])
        # Its claims stand otherwise than its owner was told, and still no node can help.
        untold = bool(pod.volumes.claims) and cycle.fits_nowhere(pod, key[1])
        self.queue.reclassify(check, key, minimum, told_after_s=now_s if untold else None)
        self._searches.reclassified(pod, key, minimum)

    def _answer(self, check: Check, now_s: float) -> None:
        pod, cycle = check.pod, self._cycles[check.pod.scheduler_name]
        rows = None if check.rows is None else np.array(sorted(check.rows), dtype=np.intp)
        with self.nominations.seen_by(pod):
            fits, wakes_on = cycle.fits_on(pod, rows)
        if fits:
            self._shown = (pod.key.uid, self.tables.changes.version)
            self.queue.fits(check, now_s)
        else:
            self.queue.fits_not(check, wakes_on=wakes_on)

    # Pods that fit nowhere

    def rescue(self, judged: JudgedAgain, now_s: float) -> bool:
        """Try a pod that sleeps although an attempt would help it. Returns whether it had been forgotten.

        A pod is not forgotten while a check or search is due that may help it. Forgetting a pod is a bug of ours.
        """
        if self.tables.openings or self._placed or self.queue.has_questions:
            return False
        pod = judged.pod
        if judged.help is Help.PREEMPTION:
            key = self._key(pod)
            return self._searches.rescue(pod, key, self._cycles[pod.scheduler_name].class_minimum(pod, key[1]))
        self.queue.recheck(pod.key.uid, now_s)
        return True

    def post_filter(self, no_fit: NoFit, now_s: float) -> PostFiltered | None:
        """PostFilter for a pod that fits nowhere. None: not known yet, see `post_filter_next`."""
        return self._noted(self._searches.post_filter(no_fit, now_s))

    def post_filter_next(self, now_s: float) -> PostFiltered | None:
        """One step for the best pod that is searched for; None: nothing came of it, or it is not known yet.

        Searches for victims and for places to reserve take turns.
        """
        self._reserves_next = self._reservations.any and not (self._reserves_next and self._searches.any)
        if not self._reserves_next:
            return self._noted(self._searches.next(now_s))
        found = self._reservations.step(now_s)
        if found is None:
            return None
        # Its user reads of it in the message of an attempt, with all the rest.
        self._placed.try_again((found.pod,))
        return PostFiltered(pod=found.pod, diagnosis=found.diagnosis, displaced=(found.pod,), reserved=found.kept)

    @property
    def any_search(self) -> bool:
        """Whether `post_filter_next` has something to do."""
        return self._searches.any or self._reservations.any

    @property
    def searches(self) -> int:
        """How many searches have begun, ever."""
        return self._searches.begun

    def search_first(self) -> bool:
        """Whether `post_filter_next` comes before `decide`: for a better pod, or for one as good in its turn."""
        first = self.queue.first() if self.any_search else None
        if first is None:
            return False
        if self._searches.any and self._searches.comes_before(first.priority):
            return True
        self._reserves_first = self._reservations.any and not self._reserves_first
        return self._reserves_first

    def _noted(self, post_filtered: PostFiltered | None) -> PostFiltered | None:
        if post_filtered is not None:
            self._placed.try_again(pod for pod in post_filtered.displaced if pod is not post_filtered.pod)
        return post_filtered

    def preemption_failed(self, pod: Pod, now_s: float) -> None:
        """A victim could not be deleted: the place is kept no longer; victims are deleted again after a back-off."""
        self.nominations.remove(pod.key.uid)
        if (reserved := self._searches.refused(pod.key.uid, now_s)) is not None:
            self._reservations.restore(reserved, now_s)
        self._placed.try_again((pod,))

    def victims_deleted(self, pod: Pod) -> None:
        """The API server has accepted the deletion of all victims."""
        self._searches.settled(pod.key.uid)

    def victim_refused(self, victim: Pod) -> None:
        """It could not be removed: rather others are, from now on."""
        if (record := self.tables.record(victim.key.uid)) is not None:
            record.refused = True

    def is_refused(self, victim: Pod) -> bool:
        """Whether it could not be removed before."""
        return (record := self.tables.record(victim.key.uid)) is not None and record.refused

    def victims_spared(self, victims: Iterable[Pod]) -> None:
        """Of a preemption that has ended: those that were not removed."""
        self.tables.budgets.spare(victims)

    def hold_back(self, holds: Callable[[str], bool], now_s: float) -> bool:
        """Let others pass the next pod to decide, if its namespace is one that `holds`; whether that was so."""
        return self.queue.hold_back(holds, now_s)

    def serve(self, serves: Callable[[str], object], *, untold: bool = False) -> bool:
        """As `SchedulingQueue.serve`."""
        return self.queue.serve(serves, untold=untold)

    def bound(self, placement: Placement) -> None:
        """The API server has bound the pod."""
        self.tables.confirm(placement.pod.key.uid)
        self.queue.done(placement.pod.key.uid)

    def refused(
        self, placement: Placement, now_s: float, *, longest_backoff_s: float = 0.0, held_back: str = ""
    ) -> None:
        """The pod did not get its place. longest_backoff_s: as `SchedulingQueue.failed`.

        held_back: how the bindings of its namespace fail, so that nothing was sent; it is tried again when they do not.
        Whether it still exists is the watch's to say: until then it stays in the queue.
        """
        pod = placement.pod
        self._cycles[pod.scheduler_name].unreserve(pod)
        if self.tables.record(pod.key.uid) is not None:
            # Somebody else bound it meanwhile.
            self.queue.done(pod.key.uid)
        else:
            if held_back:
                self.queue.set_aside(pod.key.uid, now_s, held_back)
            else:
                self.queue.failed(pod.key.uid, now_s, longest_s=longest_backoff_s)
            self._placed.try_again(self.nominations.pod_gone(pod.key.uid))

    def _least_of_row(self, pod: Pod) -> Int64Array | None:
        cycle = self._cycles.get(pod.scheduler_name)
        return None if cycle is None else cycle.least_of_row(pod)

    def _key(self, pod: Pod) -> tuple[str, Signature]:
        return (pod.scheduler_name, self._cycles[pod.scheduler_name].signature(pod))

    def _note_openings(self) -> None:
        """Tell the queue where something may have become possible."""
        if self.tables.openings:
            openings = self.tables.take_openings()
            self.queue.opened(openings)
            self._searches.opened(openings)
            self._placed.opened(openings)
