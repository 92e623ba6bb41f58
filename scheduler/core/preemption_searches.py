"""What can be done for pods that fit nowhere: one search at a time, in steps, the best pod first. Pure.

    post_filter ── a step ──▶ answered                                a pod's own attempt has found no fit
              └─────────────▶ searching ── next ──▶ answered          the rest of its steps
    opened ──▶ due ── next ──▶ searching, on the rows that have opened

A class of pods that waits is searched for again when something opens that preemption can use, see
`scheduler.queue.preemptors`. Its pods keep the messages that they have, until a search helps one of them.
While as many places are kept as can be, pods are searched for only if another gives its place up for them: one of
lower priority, or of the same where its namespace has most. Those who were turned away have their turn after that.
A pod for which a victim could not be deleted is not searched for during its back-off.
"""

from collections.abc import Hashable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from enum import Enum, auto
from typing import Final

import msgspec
import numpy as np

from scheduler.core.reservations import with_reserved_place
from scheduler.core.scheduling_cycle import NoFit, SchedulingCycle, Sought
from scheduler.framework.diagnosis import Diagnosis
from scheduler.framework.preemption import NoPreemption, Preemption
from scheduler.pods.pod import Pod
from scheduler.queue.entry import PodState
from scheduler.queue.preemptors import Preemptors, Question
from scheduler.queue.refused_preemptors import RefusedPreemptors
from scheduler.queue.scheduling_queue import SchedulingQueue
from scheduler.state.available_after_preemption import AvailabilityByPriority, AvailableAfterPreemption
from scheduler.state.changes import ANYTHING, Openings
from scheduler.state.minimum_request import MinimumRequest
from scheduler.state.nominations import Nomination, Nominations
from scheduler.state.tables import Tables


class PostFiltered(msgspec.Struct, frozen=True, kw_only=True):
    """What came of PostFilter for a pod that fits nowhere. diagnosis: what its user reads.

    preemption: the place is kept already. displaced: pods for which a place was kept, and is no longer.
    reserved: whether a place is reserved for the pod now, or no longer; None where it is about something else.
    """

    pod: Pod
    diagnosis: Diagnosis
    preemption: Preemption | None = None
    displaced: tuple[Pod, ...] = ()
    reserved: bool | None = None


class Help(Enum):
    """How an attempt would help a pod that waits: it fits as things are, or once pods of lower priority are evicted."""

    FIT = auto()
    PREEMPTION = auto()


class _Search(msgspec.Struct, frozen=True, kw_only=True):
    """steps: None, and at last what came of it. no_fit: None where the pod's user has been told."""

    pod: Pod
    question: Question | None
    no_fit: NoFit | None
    steps: Iterator[Sought | None]


_NO_ANSWER: Final = Sought(NoPreemption("", keeps=True), 0)
NOT_DELETED: Final = "not eligible due to a pod of lower priority that could not be deleted."
_HELD: Final = NoPreemption(f"preemption: {NOT_DELETED}", (NOT_DELETED,))
_NOT_LOOKED: Final[tuple[tuple[int, int], int | None]] = ((-1, -1), None)
_WAITING: Final = frozenset({PodState.UNSCHEDULABLE, PodState.BACKING_OFF})


class Searches:
    """See the module. begun: how many, ever. Owned by the event loop; no method awaits."""

    def __init__(
        self, tables: Tables, queue: SchedulingQueue, cycles: Mapping[str, SchedulingCycle], nominations: Nominations
    ) -> None:
        """cycles: by scheduler name."""
        self._tables = tables
        self._queue = queue
        self._cycles = cycles
        self._nominations = nominations
        self._after_preemption = AvailabilityByPriority(tables)
        self._preemptors = Preemptors()
        self._refused = RefusedPreemptors()
        # By uid: reserved places that were given up for a preemption whose victims are not being deleted yet.
        self._given_up: dict[str, Nomination] = {}
        self._search: _Search | None = None
        self._first = _NOT_LOOKED
        self._turn = False
        self.begun = 0

    @property
    def any(self) -> bool:
        """Whether `next` has something to do."""
        if self._search is not None or self._preemptors.any_noted:
            return True
        return self._preemptors.any_due and not self._is_full()

    def comes_before(self, priority: int) -> bool:
        """Whether a step of a search comes before the decision for a pod of this priority; equals take turns."""
        if self._search is None and self.any:
            self._preemptors.settle(self._left_for)
        first = self._first_priority() if self.any else None
        if first is None or first < priority:
            return False
        self._turn = first > priority or not self._turn
        return self._turn

    def opened(self, openings: Openings) -> None:
        """Something may have become possible there."""
        self._preemptors.note(openings)

    def everybody(self) -> None:
        """What keeps a search from beginning for anybody is over."""
        self._preemptors.open_all()

    def updated(self, pod: Pod) -> None:
        """A pod that waits was seen again."""
        self._preemptors.update(pod)

    def left(self, uid: str) -> None:
        """The pod waits no longer, or is being decided."""
        self._preemptors.discard(uid)
        if self._search is not None and self._search.pod.key.uid == uid:
            if self._search.question is not None:
                self._preemptors.again(self._search.question)
            self._search = None

    def reclassified(self, pod: Pod, key: Hashable, minimum: MinimumRequest) -> None:
        """What rules read of a pod that waits is other than it was. key: its class."""
        if pod.key.uid in self._preemptors:
            self._preemptors.add(key, pod, wakes_on=ANYTHING, minimum=minimum, unanswered=False)
            self._preemptors.open(self._preemptors.key_of(pod.key.uid))

    def refused(self, uid: str, now_s: float) -> Nomination | None:
        """A victim could not be deleted for the pod. Returns the reserved place that was given up for it, if any.

        Others of its class are searched for as before.
        """
        self._preemptors.discard(uid)
        self._refused.refused(uid, now_s)
        return self._given_up.pop(uid, None)

    def gone(self, uid: str) -> None:
        """The pod needs no place any more."""
        self.left(uid)
        self.settled(uid)

    def settled(self, uid: str) -> None:
        """Victims are being deleted for the pod, or it needs none any more."""
        self._refused.forget(uid)
        self._given_up.pop(uid, None)

    def take_ready(self, now_s: float) -> list[str]:
        """Pods, by uid, for which victims may be deleted again."""
        return self._refused.take_ready(now_s)

    def next_ready_s(self) -> float | None:
        """When `take_ready` will next have some; None without any."""
        return self._refused.next_ready_s()

    def post_filter(self, no_fit: NoFit, now_s: float) -> PostFiltered | None:
        """PostFilter for a pod whose attempt has found no fit. None: not known yet, see `next`."""
        pod = no_fit.pod
        if self._refused.is_held(pod.key.uid):
            held = _Search(pod=pod, question=None, no_fit=no_fit, steps=iter((Sought(_HELD, 0),)))
            return self._step(held, now_s)[0]
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

    def judge(self, pod: Pod) -> Iterator[Diagnosis | Help | None]:
        """What an attempt would tell a waiting pod, or how it would help it, in steps: None, and at last that.

        Nothing where that is not known now. To be asked while the tables are as the pod sees them.
        """
        cycle = self._cycles[pod.scheduler_name]
        if cycle.fits_on(pod, None)[0]:
            yield Help.FIT
            return
        no_fit, sought = with_reserved_place(cycle.no_fit(pod), cycle, self._nominations), _NO_ANSWER
        for step in cycle.post_filter(pod, self._nominations, self._after_preemption):
            if step is None:
                yield None
            else:
                sought = step
        result = sought.result
        if isinstance(result, Preemption):
            yield Help.PREEMPTION
        elif not result.again:
            yield replace(no_fit.diagnosis, tail=result.message, tail_reasons=result.reasons)

    def rescue(self, pod: Pod, key: Hashable, minimum: MinimumRequest) -> bool:
        """Search victims for a waiting pod, unless searches are due anyway. Returns whether it did.

        key, minimum: as Preemptors.add.
        """
        waiting = self._preemptors
        if self._search is not None or waiting.any_noted or waiting.any_due or self._nominations.full_for(pod):
            return False
        if self._nominations.of(pod.key.uid) is not None or pod.key.uid in self._refused:
            return False
        waiting.add(key, pod, wakes_on=ANYTHING, minimum=minimum, unanswered=True)
        return True

    def next(self, now_s: float) -> PostFiltered | None:
        """One step; what came of it that has to be told or done, None: nothing, or not known yet."""
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
        """Whether no place can be kept for any of the pods that are due."""
        return self._nominations.full and self._first_due() is None

    def _first_priority(self) -> int | None:
        return self._first_due() if self._search is None else self._search.pod.priority

    def _first_due(self) -> int | None:
        """Of the best pod that is due and not turned away, the priority; looked for again when that may be another."""
        versions = (self._nominations.version, self._preemptors.version)
        if self._first[0] != versions:
            self._first = (versions, self._preemptors.first_priority(self._nominations.full_for))
        return self._first[1]

    def _next_search(self) -> _Search | None:
        question = self._preemptors.take(self._nominations.full_for)
        if question is None:
            # A node may have come, so that no place gives way any more.
            self._first = _NOT_LOOKED
            return None
        pod = question.pod
        if self._queue.state(pod.key.uid) not in _WAITING:
            self._give_up(question)
            return None
        return self._begin(pod, question, self._no_fit(pod) if question.unanswered else None)

    def _give_up(self, question: Question) -> None:
        """The pod has its own attempt before it; what has opened is for others of its class."""
        self._preemptors.discard(question.pod.key.uid)
        self._preemptors.again(question)

    def _begin(self, pod: Pod, question: Question | None, no_fit: NoFit | None) -> _Search:
        some = None if question is None or question.rows is None else np.array(sorted(question.rows), dtype=np.intp)
        self.begun += 1
        steps = self._cycles[pod.scheduler_name].post_filter(pod, self._nominations, self._after_preemption, some)
        return _Search(pod=pod, question=question, no_fit=no_fit, steps=steps)

    def _step(self, search: _Search, now_s: float) -> tuple[PostFiltered | None, bool]:
        """(what there is to tell or to do, whether the search has ended)."""
        pod, question = search.pod, search.question
        waits = self._queue.state(pod.key.uid) in _WAITING
        with self._nominations.seen_by(pod):
            sought = next(search.steps, _NO_ANSWER) if waits else _NO_ANSWER
        if sought is None:
            return None, False
        result = sought.result
        if question is not None and not waits:
            self._give_up(question)
        elif question is not None and (isinstance(result, Preemption) or result.again):
            self._preemptors.again(question)
        if isinstance(result, Preemption):
            return self._nominated(search, result), True
        self._learn(pod, sought.wakes_on)
        return self._not_preempted(search, result, now_s), True

    def _not_preempted(self, search: _Search, result: NoPreemption, now_s: float) -> PostFiltered | None:
        pod = search.pod
        if result.again:
            self._queue.in_vain(pod.key.uid, now_s)
        kept = self._nominations.of(pod.key.uid)
        reserved = kept is not None and kept.reserved
        given_up = None if result.keeps or reserved else self._nominations.remove(pod.key.uid)
        if kept is not None and given_up is None and not reserved:
            # It waits for its place, and for nothing else.
            self._preemptors.discard(pod.key.uid)
        displaced = (pod,) if given_up is not None or self._names_a_lost_place(pod) else ()
        if search.no_fit is None and not displaced:
            return None
        no_fit = search.no_fit or self._no_fit(pod)
        diagnosis = replace(no_fit.diagnosis, tail=result.message, tail_reasons=result.reasons)
        return PostFiltered(pod=pod, diagnosis=diagnosis, displaced=displaced)

    def _names_a_lost_place(self, pod: Pod) -> bool:
        """Whether it waits, no place is kept for it, and its status names one that was."""
        waits = self._queue.state(pod.key.uid) is PodState.UNSCHEDULABLE
        return waits and bool(pod.nominated_node) and self._nominations.of(pod.key.uid) is None

    def _nominated(self, search: _Search, result: Preemption) -> PostFiltered:
        pod = search.pod
        diagnosis = (search.no_fit or self._no_fit(pod)).diagnosis
        if pod.key.uid in self._refused:
            # The condition stays as it is until the deletion is accepted: otherwise each try would write it twice.
            diagnosis = replace(diagnosis, tail=_HELD.message, tail_reasons=_HELD.reasons)
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
                self._preemptors.open(key)

    def _no_fit(self, pod: Pod) -> NoFit:
        cycle = self._cycles[pod.scheduler_name]
        with self._nominations.seen_by(pod):
            return with_reserved_place(cycle.no_fit(pod), cycle, self._nominations)

    def _wait(self, no_fit: NoFit, *, unanswered: bool) -> None:
        pod, cycle = no_fit.pod, self._cycles[no_fit.pod.scheduler_name]
        signature = cycle.signature(pod)
        self._preemptors.add(
            (pod.scheduler_name, signature),
            pod,
            wakes_on=no_fit.wakes_on,
            minimum=cycle.class_minimum(pod, signature),
            unanswered=unanswered,
        )

    @contextmanager
    def _left_for(self, pod: Pod) -> Iterator[AvailableAfterPreemption]:
        with self._nominations.seen_by(pod):
            yield self._after_preemption.of(pod.priority)
