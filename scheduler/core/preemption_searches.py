"""PostFilter for unschedulable pods: one search at a time, in steps, the most important pod first. Pure.

    post_filter ── a step ──▶ answered                                a pod's own attempt found no fit
              └─────────────▶ searching ── step ──▶ answered          the rest of its steps
    note_events ──▶ due ── step ──▶ searching, on the rows that changed

A cluster event that preemption can use starts a new search for a class of waiting pods (`scheduler.queue.preemptors`),
after the class has had its hint: as long as one of its pods fits, preemption helps none. Its pods keep their messages
until a search helps one of them. When the number of nominations is at its limit, a pod is searched for only if another
nomination gives way (`Nominations.gives_way_to`). The others are searched for later. A pod whose victim could not be
deleted is skipped during its back-off.
"""

from collections.abc import Hashable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from enum import Enum, auto
from typing import TYPE_CHECKING, Final

import msgspec
import numpy as np

from scheduler.core.agenda import Rank, Work
from scheduler.core.effects import Effect, Evict, Nominate, Unschedulable
from scheduler.core.reservations import with_reservation
from scheduler.core.scheduling_cycle import NoFit, Sought
from scheduler.core.shared import Shared
from scheduler.framework.diagnosis import Diagnosis
from scheduler.framework.preemption import NoPreemption, Preemption
from scheduler.plugins.preemption.default_preemption import TOO_MANY
from scheduler.pods.pod import Pod
from scheduler.queue.entry import PodState
from scheduler.queue.preemptors import DueSearch, FailedDeletions, Preemptors
from scheduler.state.available_after_preemption import AvailabilityByPriority, AvailableAfterPreemption
from scheduler.state.changes import ANYTHING, ClusterEvents
from scheduler.state.minimum_request import MinimumRequest

if TYPE_CHECKING:
    from scheduler.state.nominations import Nomination


class _PostFiltered(msgspec.Struct, frozen=True, kw_only=True):
    """Result of PostFilter for an unschedulable pod. diagnosis: the message for its user.

    preemption: its nomination is already booked. displaced: pods that lost their nomination.
    """

    pod: Pod
    diagnosis: Diagnosis
    preemption: Preemption | None = None
    displaced: tuple[Pod, ...] = ()


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


_FULL: Final = NoPreemption(f"preemption: {TOO_MANY}", (TOO_MANY,))
_NO_ANSWER: Final = Sought(NoPreemption("", keep_nomination=True), 0)
NOT_DELETED: Final = "not eligible due to a pod of lower priority that could not be deleted."
_NOT_NOW: Final = NoPreemption(f"preemption: {NOT_DELETED}", (NOT_DELETED,))
_WAITING: Final = frozenset({PodState.UNSCHEDULABLE, PodState.BACKING_OFF})


class Searches(Work):
    """PostFilter searches of all waiting pods. begun: searches so far. Owned by the event loop; no method awaits."""

    def __init__(self, shared: Shared) -> None:
        self._shared = shared
        self._tables, self._queue = shared.tables, shared.queue
        self._cycles, self._nominations = shared.cycles, shared.nominations
        self._after_preemption = AvailabilityByPriority(shared.tables)
        self._preemptors = Preemptors()
        self._failed_deletions = FailedDeletions()
        # By uid: reservations given up for a preemption whose victims are not deleted yet.
        self._given_up: dict[str, Nomination] = {}
        self._search: _Search | None = None
        self.begun = 0

    def rank(self, now_s: float) -> Rank | None:  # noqa: ARG002 - the same at any time
        """Return the priority of the pod whose search comes next; None if there is none."""
        if self._search is not None:
            return self._search.pod.priority
        if not self._preemptors.any_due:
            return None
        self._preemptors.settle(self._left_for)
        return self._first_due()

    def step(self, now_s: float, now_ns: int) -> Sequence[Effect] | None:  # noqa: ARG002 - writes no annotation
        """Run one step of the most important search."""
        if self.rank(now_s) is None:
            return None
        found = self._next(now_s)
        return () if found is None else self._effects(found)

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

    def deletion_failed(self, uid: str, now_s: float) -> None:
        """Record that a victim could not be deleted for the pod. Searches continue for other pods of its class."""
        self._preemptors.discard(uid)
        self._failed_deletions.note(uid, now_s)
        if (reserved := self._given_up.pop(uid, None)) is not None:
            self._nominations.restore(reserved)

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

    def post_filter(self, no_fit: NoFit, now_s: float, attempt: int) -> Sequence[Effect]:
        """Run PostFilter for a pod whose attempt found no fit. If its result is not known yet, `step` finds it."""
        found = None if no_fit.by_permit else self._post_filtered(no_fit, now_s)
        return (
            (Unschedulable(no_fit.pod, no_fit.diagnosis, attempt),) if found is None else self._effects(found, attempt)
        )

    def _effects(self, found: _PostFiltered, attempt: int | None = None) -> Sequence[Effect]:
        self._shared.retries.extend(pod for pod in found.displaced if pod is not found.pod)
        # The status of another scheduler's pod is that scheduler's.
        displaced = [pod for pod in found.displaced if pod.scheduler_name in self._cycles]
        evicted = () if found.preemption is None else (Evict(found.preemption),)
        return Unschedulable(found.pod, found.diagnosis, attempt), *map(Nominate, displaced), *evicted

    def _post_filtered(self, no_fit: NoFit, now_s: float) -> _PostFiltered | None:
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

    def overlooks(self, pod: Pod) -> bool:
        """Return whether no search is due that may help this waiting pod, and nothing keeps it from one."""
        if self._search is not None or self._preemptors.any_due:
            return False
        kept_out = self._nominations.full_for(pod) or pod.key.uid in self._failed_deletions
        return not kept_out and self._nominations.of(pod.key.uid) is None

    def _next(self, now_s: float) -> _PostFiltered | None:
        if self._search is None:
            self._search = self._next_search()
        if self._search is None:
            return None
        post_filtered, ended = self._step(self._search, now_s)
        if ended:
            self._search = None
        return post_filtered

    def _first_due(self) -> int | None:
        """Return the priority of the most important due pod that can be nominated."""
        return self._preemptors.first_priority(self._nominations.closed())

    def _next_search(self) -> _Search | None:
        due = self._preemptors.take(self._nominations.closed())
        if due is None:
            return None
        pod = due.pod
        state = self._queue.state(pod.key.uid)
        if state not in _WAITING:
            self._give_up(due)
            return None
        if state is PodState.UNSCHEDULABLE and self._queue.awaits_hint(self._shared.class_of(pod)):
            # A pod of its class may fit now. If it takes the room, the search may help the others. The hint comes
            # before the pods that this one precedes. A pod that backs off has its own attempt afterwards.
            self._preemptors.put_back(due)
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

    def _step(self, search: _Search, now_s: float) -> tuple[_PostFiltered | None, bool]:
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
            if self._nominations.of(pod.key.uid) is not None or not self._nominations.full_for(pod):
                return self._nominated(search, result), True
            # Others have been nominated since the search began.
            result = _FULL
        self._learn(pod, sought.wakes_on)
        return self._not_preempted(search, result, now_s), True

    def _not_preempted(self, search: _Search, result: NoPreemption, now_s: float) -> _PostFiltered | None:
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
        return _PostFiltered(pod=pod, diagnosis=diagnosis, displaced=displaced)

    def _names_a_lost_nomination(self, pod: Pod) -> bool:
        """Return whether the pod waits without a nomination while its status still names one."""
        waits = self._queue.state(pod.key.uid) is PodState.UNSCHEDULABLE
        return waits and bool(pod.nominated_node) and self._nominations.of(pod.key.uid) is None

    def _nominated(self, search: _Search, result: Preemption) -> _PostFiltered:
        pod = search.pod
        # Keep the condition until the deletion is accepted; otherwise each retry would write it twice.
        told = _NOT_NOW if pod.key.uid in self._failed_deletions else result
        diagnosis = (search.no_fit or self._no_fit(pod)).diagnosis
        diagnosis = replace(diagnosis, tail=told.message, tail_reasons=told.reasons)
        displaced = [kept.pod for kept in self._nominations.on(result.node) if kept.pod.priority < pod.priority]
        for other in displaced:
            self._nominations.remove(other.key.uid)
        before = self._nominations.remove(pod.key.uid)
        if before is not None and before.reserved:
            self._given_up[pod.key.uid] = before
        if (given_up := self._nominations.gives_way_to(pod)) is not None:
            self._nominations.remove(given_up.pod.key.uid)
            displaced.append(given_up.pod)
        victims = [victim.key.uid for victim in result.victims]
        if self._nominations.nominate(pod, result.node, result.cards, victims) is not None:
            self._tables.budgets.spend(result.victims)
        self._preemptors.discard(pod.key.uid)
        return _PostFiltered(pod=pod, diagnosis=diagnosis, preemption=result, displaced=tuple(displaced))

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
