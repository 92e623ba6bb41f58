"""PostFilter for unschedulable pods: one search at a time, in steps, the most important pod first. Pure.

    post_filter ── a step ──▶ answered                                a pod's own attempt found no fit
              └─────────────▶ searching ── next ──▶ answered          the rest of its steps
    note_events ──▶ due ── next ──▶ searching, on the rows that changed

A cluster event that preemption can use starts a new search for a class of waiting pods (`scheduler.queue.preemptors`).
Its pods keep their messages until a search helps one of them. When the number of nominations is at its limit, a pod is
searched for only if another nomination gives way: one of lower priority, or one of the same priority in the namespace
that has the most. Pods turned away for this reason are searched for later. A pod whose victim could not be deleted is
skipped during its back-off.
"""

from collections.abc import Hashable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from enum import Enum, auto
from typing import Final

import msgspec
import numpy as np

from scheduler.core.reservations import with_reservation
from scheduler.core.scheduling_cycle import NoFit, SchedulingCycle, Sought
from scheduler.framework.diagnosis import Diagnosis
from scheduler.framework.preemption import NoPreemption, Preemption
from scheduler.pods.pod import Pod
from scheduler.queue.entry import PodState
from scheduler.queue.preemptors import DueSearch, FailedDeletions, Preemptors
from scheduler.queue.scheduling_queue import SchedulingQueue
from scheduler.state.available_after_preemption import AvailabilityByPriority, AvailableAfterPreemption
from scheduler.state.changes import ANYTHING, ClusterEvents
from scheduler.state.minimum_request import MinimumRequest
from scheduler.state.nominations import Nomination, Nominations
from scheduler.state.tables import Tables


class PostFiltered(msgspec.Struct, frozen=True, kw_only=True):
    """Result of PostFilter for an unschedulable pod. diagnosis: the message for its user.

    preemption: its nomination is already booked. displaced: pods that lost their nomination. reserved: True if the pod
    got a reservation, False if it lost one; None if neither.
    """

    pod: Pod
    diagnosis: Diagnosis
    preemption: Preemption | None = None
    displaced: tuple[Pod, ...] = ()
    reserved: bool | None = None


class Help(Enum):
    """Help that an attempt would give a waiting pod: it fits now, or after the eviction of pods of lower priority."""

    FIT = auto()
    PREEMPTION = auto()


class _Search(msgspec.Struct, frozen=True, kw_only=True):
    """A search for one pod. steps: yields None until the last step, which yields the result.

    no_fit: None if the pod's user already has the message.
    """

    pod: Pod
    due: DueSearch | None
    no_fit: NoFit | None
    steps: Iterator[Sought | None]


_NO_ANSWER: Final = Sought(NoPreemption("", keep_nomination=True), 0)
NOT_DELETED: Final = "not eligible due to a pod of lower priority that could not be deleted."
_NOT_NOW: Final = NoPreemption(f"preemption: {NOT_DELETED}", (NOT_DELETED,))
_NOT_LOOKED: Final[tuple[tuple[int, int], int | None]] = ((-1, -1), None)
_WAITING: Final = frozenset({PodState.UNSCHEDULABLE, PodState.BACKING_OFF})


class Searches:
    """PostFilter searches of all waiting pods. begun: searches so far. Owned by the event loop; no method awaits."""

    def __init__(
        self, tables: Tables, queue: SchedulingQueue, cycles: Mapping[str, SchedulingCycle], nominations: Nominations
    ) -> None:
        """cycles: scheduler name -> its cycle."""
        self._tables = tables
        self._queue = queue
        self._cycles = cycles
        self._nominations = nominations
        self._after_preemption = AvailabilityByPriority(tables)
        self._preemptors = Preemptors()
        self._failed_deletions = FailedDeletions()
        # By uid: reservations given up for a preemption whose victims are not being deleted yet.
        self._given_up: dict[str, Nomination] = {}
        self._search: _Search | None = None
        self._first = _NOT_LOOKED
        self._turn = False
        self.begun = 0

    @property
    def any(self) -> bool:
        """True if `next` has work."""
        if self._search is not None or self._preemptors.any_noted:
            return True
        return self._preemptors.any_due and not self._is_full()

    def comes_before(self, priority: int) -> bool:
        """Return whether a search step precedes the decision for a pod of this priority.

        If the priorities are equal, searches and decisions take turns.
        """
        if self._search is None and self.any:
            self._preemptors.settle(self._left_for)
        first = self._first_priority() if self.any else None
        if first is None or first < priority:
            return False
        self._turn = first > priority or not self._turn
        return self._turn

    def note_events(self, events: ClusterEvents) -> None:
        """Record cluster events for the next searches."""
        self._preemptors.note(events)

    def budgets_listed(self) -> None:
        """Make every class due: until now no search could start."""
        self._preemptors.mark_all_due()

    def updated(self, pod: Pod) -> None:
        """Record that a waiting pod changed."""
        self._preemptors.update(pod)

    def left(self, uid: str) -> None:
        """Record that the pod no longer waits, or is being decided."""
        self._preemptors.discard(uid)
        if self._search is not None and self._search.pod.key.uid == uid:
            if self._search.due is not None:
                self._preemptors.again(self._search.due)
            self._search = None

    def reclassified(self, pod: Pod, key: Hashable, minimum: MinimumRequest) -> None:
        """Move a waiting pod to the class `key`, because its signature changed."""
        if pod.key.uid in self._preemptors:
            self._preemptors.add(key, pod, wakes_on=ANYTHING, minimum=minimum, unanswered=False)
            self._preemptors.mark_due(self._preemptors.key_of(pod.key.uid))

    def deletion_failed(self, uid: str, now_s: float) -> Nomination | None:
        """Record that a victim could not be deleted for the pod. Returns the reservation that the pod gave up, if any.

        Searches continue for other pods of its class.
        """
        self._preemptors.discard(uid)
        self._failed_deletions.note(uid, now_s)
        return self._given_up.pop(uid, None)

    def gone(self, uid: str) -> None:
        """Forget a pod that no longer needs a node."""
        self.left(uid)
        self.settled(uid)

    def settled(self, uid: str) -> None:
        """Record that victims are being deleted for the pod, or that it no longer needs any."""
        self._failed_deletions.forget(uid)
        self._given_up.pop(uid, None)

    def take_ready(self, now_s: float) -> list[str]:
        """Return the uids of pods whose back-off after a failed deletion has ended."""
        return self._failed_deletions.take_ready(now_s)

    def next_ready_s(self) -> float | None:
        """Return the time from which `take_ready` will return a pod; None if never."""
        return self._failed_deletions.next_ready_s()

    def post_filter(self, no_fit: NoFit, now_s: float) -> PostFiltered | None:
        """Run PostFilter for a pod whose attempt found no fit. None if the result is not known yet, see `next`."""
        pod = no_fit.pod
        if self._failed_deletions.is_backing_off(pod.key.uid):
            waiting = _Search(pod=pod, due=None, no_fit=no_fit, steps=iter((Sought(_NOT_NOW, 0),)))
            return self._step(waiting, now_s)[0]
        if pod.preempts:
            self._wait(no_fit, unanswered=False)
        if self._search is None or self._nominations.full_for(pod):
            begun = self._begin(pod, None, no_fit)
            post_filtered, ended = self._step(begun, now_s)
            if ended:
                return post_filtered
            if self._search is None:
                self._search = begun
                return None
        self._wait(no_fit, unanswered=True)
        return None

    def evaluate(self, pod: Pod) -> Iterator[Diagnosis | Help | None]:
        """Evaluate a waiting pod in steps, which yield None; the last one yields the diagnosis or the Help.

        Yields no result if it is unknown now. Call this while the tables are as the pod sees them.
        """
        cycle = self._cycles[pod.scheduler_name]
        if cycle.fits_on(pod, None)[0]:
            yield Help.FIT
            return
        no_fit, sought = with_reservation(cycle.no_fit(pod), cycle, self._nominations), _NO_ANSWER
        for step in cycle.post_filter(pod, self._nominations, self._after_preemption):
            if step is None:
                yield None
            else:
                sought = step
        result = sought.result
        if isinstance(result, Preemption):
            yield Help.PREEMPTION
        elif not result.retry:
            yield replace(no_fit.diagnosis, tail=result.message, tail_reasons=result.reasons)

    def rescue(self, pod: Pod, key: Hashable, minimum: MinimumRequest) -> bool:
        """Make a search due for a waiting pod, unless some search is already due. Returns whether it did.

        key, minimum: see Preemptors.add.
        """
        waiting = self._preemptors
        if self._search is not None or waiting.any_noted or waiting.any_due or self._nominations.full_for(pod):
            return False
        if self._nominations.of(pod.key.uid) is not None or pod.key.uid in self._failed_deletions:
            return False
        waiting.add(key, pod, wakes_on=ANYTHING, minimum=minimum, unanswered=True)
        return True

    def next(self, now_s: float) -> PostFiltered | None:
        """Run one step. Returns a result that has to be reported or carried out; None if there is none yet."""
        if self._search is None:
            self._preemptors.settle(self._left_for)
            self._search = self._next_search()
        if self._search is None:
            return None
        post_filtered, ended = self._step(self._search, now_s)
        if ended:
            self._search = None
        return post_filtered

    def _is_full(self) -> bool:
        """Return whether no pod that is due can get a nomination."""
        return self._nominations.full and self._first_due() is None

    def _first_priority(self) -> int | None:
        return self._first_due() if self._search is None else self._search.pod.priority

    def _first_due(self) -> int | None:
        """Return the priority of the most important due pod that is not turned away; cached by version."""
        versions = (self._nominations.version, self._preemptors.version)
        if self._first[0] != versions:
            self._first = (versions, self._preemptors.first_priority(self._nominations.full_for))
        return self._first[1]

    def _next_search(self) -> _Search | None:
        due = self._preemptors.take(self._nominations.full_for)
        if due is None:
            # The missing node of a nomination may exist now, so that no nomination gives way any more.
            self._first = _NOT_LOOKED
            return None
        pod = due.pod
        if self._queue.state(pod.key.uid) not in _WAITING:
            self._give_up(due)
            return None
        return self._begin(pod, due, self._no_fit(pod) if due.unanswered else None)

    def _give_up(self, due: DueSearch) -> None:
        """Stop searching for this pod, because its own attempt comes first. Other pods of its class use the events."""
        self._preemptors.discard(due.pod.key.uid)
        self._preemptors.again(due)

    def _begin(self, pod: Pod, due: DueSearch | None, no_fit: NoFit | None) -> _Search:
        some = None if due is None or due.rows is None else np.array(sorted(due.rows), dtype=np.intp)
        self.begun += 1
        steps = self._cycles[pod.scheduler_name].post_filter(pod, self._nominations, self._after_preemption, some)
        return _Search(pod=pod, due=due, no_fit=no_fit, steps=steps)

    def _step(self, search: _Search, now_s: float) -> tuple[PostFiltered | None, bool]:
        """Return (result to report or to carry out, whether the search has ended)."""
        pod, due = search.pod, search.due
        waits = self._queue.state(pod.key.uid) in _WAITING
        with self._nominations.seen_by(pod):
            sought = next(search.steps, _NO_ANSWER) if waits else _NO_ANSWER
        if sought is None:
            return None, False
        result = sought.result
        if due is not None and not waits:
            self._give_up(due)
        elif due is not None and (isinstance(result, Preemption) or result.retry):
            self._preemptors.again(due)
        if isinstance(result, Preemption):
            return self._nominated(search, result), True
        self._learn(pod, sought.wakes_on)
        return self._not_preempted(search, result, now_s), True

    def _not_preempted(self, search: _Search, result: NoPreemption, now_s: float) -> PostFiltered | None:
        pod = search.pod
        if result.retry:
            self._queue.preemption_failed(pod.key.uid, now_s)
        kept = self._nominations.of(pod.key.uid)
        reserved = kept is not None and kept.reserved
        given_up = None if result.keep_nomination or reserved else self._nominations.remove(pod.key.uid)
        if kept is not None and given_up is None and not reserved:
            # The pod now waits only for its nomination.
            self._preemptors.discard(pod.key.uid)
        displaced = (pod,) if given_up is not None or self._names_a_lost_nomination(pod) else ()
        if search.no_fit is None and not displaced:
            return None
        no_fit = search.no_fit or self._no_fit(pod)
        diagnosis = replace(no_fit.diagnosis, tail=result.message, tail_reasons=result.reasons)
        return PostFiltered(pod=pod, diagnosis=diagnosis, displaced=displaced)

    def _names_a_lost_nomination(self, pod: Pod) -> bool:
        """Return whether the pod waits without a nomination while its status still names one."""
        waits = self._queue.state(pod.key.uid) is PodState.UNSCHEDULABLE
        return waits and bool(pod.nominated_node) and self._nominations.of(pod.key.uid) is None

    def _nominated(self, search: _Search, result: Preemption) -> PostFiltered:
        pod = search.pod
        diagnosis = (search.no_fit or self._no_fit(pod)).diagnosis
        if pod.key.uid in self._failed_deletions:
            # Keep the condition until the deletion is accepted; otherwise each retry would write it twice.
            diagnosis = replace(diagnosis, tail=_NOT_NOW.message, tail_reasons=_NOT_NOW.reasons)
        displaced = [kept.pod for kept in self._nominations.on(result.node) if kept.pod.priority < pod.priority]
        for other in displaced:
            self._nominations.remove(other.key.uid)
        before = self._nominations.remove(pod.key.uid)
        self._given_up.pop(pod.key.uid, None)
        if before is not None and before.reserved:
            self._given_up[pod.key.uid] = before
        if self._nominations.full and (given_up := self._nominations.gives_way_to(pod)) is not None:
            self._nominations.remove(given_up.pod.key.uid)
            displaced.append(given_up.pod)
        victims = [victim.key.uid for victim in result.victims]
        if self._nominations.nominate(pod, result.node, result.cards, victims) is not None:
            self._tables.budgets.spend(result.victims)
        self._preemptors.discard(pod.key.uid)
        return PostFiltered(pod=pod, diagnosis=diagnosis, preemption=result, displaced=tuple(displaced))

    def _learn(self, pod: Pod, wakes_on: int) -> None:
        key = self._preemptors.key_of(pod.key.uid)
        if key is not None:
            self._preemptors.learn(key, wakes_on)
            if self._nominations.full_for(pod):
                self._preemptors.mark_due(key)

    def _no_fit(self, pod: Pod) -> NoFit:
        cycle = self._cycles[pod.scheduler_name]
        with self._nominations.seen_by(pod):
            return with_reservation(cycle.no_fit(pod), cycle, self._nominations)

    def _wait(self, no_fit: NoFit, *, unanswered: bool) -> None:
        pod, cycle = no_fit.pod, self._cycles[no_fit.pod.scheduler_name]
        signature = cycle.signature(pod)
        self._preemptors.add(
            (pod.scheduler_name, signature),
            pod,
            wakes_on=no_fit.wakes_on,
            minimum=cycle.minimum_of_class(pod, signature),
            unanswered=unanswered,
        )

    @contextmanager
    def _left_for(self, pod: Pod) -> Iterator[AvailableAfterPreemption]:
        with self._nominations.seen_by(pod):
            yield self._after_preemption.of(pod.priority)
