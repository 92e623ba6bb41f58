"""Schedules one pod on the tables: finds a placement, or the reason why there is none. Pure.

PreFilter → Filter → Score → pick → assume → Reserve → Permit. Nothing here awaits, so nothing changes in between.
"""

from collections.abc import Generator, Hashable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias

import msgspec
import numpy as np
from cachetools import LRUCache
from msgspec.structs import replace

from scheduler.framework.cycle_state import CycleState
from scheduler.framework.diagnosis import NOT_RESOLVABLE, Diagnosis, Resolvable, count_reasons
from scheduler.framework.evaluation_cache import Evaluation
from scheduler.framework.plugin import PermitPlugin, PreBindPlugin, Rejected, Rejection, Wait
from scheduler.framework.post_filter import post_filters
from scheduler.framework.preemption import NoPreemption, PostFilterResult, Preemption
from scheduler.framework.runtime import NOWHERE, Runtime, Signature
from scheduler.framework.what_if import RowMemo, WhatIf
from scheduler.pods.pod import Pod
from scheduler.state.available_after_preemption import AvailabilityByPriority
from scheduler.state.cards.booking import CardShare
from scheduler.state.changes import ANYTHING, Change
from scheduler.state.columns.arrays import Int64Array, RowArray
from scheduler.state.facts.namespace_memory import Priorities
from scheduler.state.minimum_request import MinimumRequest
from scheduler.state.nominations import Nominations
from scheduler.state.pod_record import PodRecord
from scheduler.state.volumes.plan import VolumePlan


@dataclass(frozen=True, slots=True)
class PermitWait:
    """Wait of a pod for a Permit plugin, for at most `timeout_s` seconds."""

    plugin: str
    timeout_s: float


class Placement(msgspec.Struct, frozen=True, kw_only=True):
    """Node and cards of a pod: assumed in the tables, not yet bound.

    annotations: added to the Binding. permit_waits: Permit plugins that must allow the pod first. volumes: plan for its
    claims, carried out before the bind. pre_bind: plugins to call in order.
    """

    pod: Pod
    node: str
    cards: tuple[CardShare, ...]
    annotations: dict[str, str]
    permit_waits: tuple[PermitWait, ...] = ()
    volumes: VolumePlan | None = None
    pre_bind: tuple[PreBindPlugin, ...] = ()


@dataclass(frozen=True, slots=True)
class NoFit:
    """Result for an unschedulable pod. wakes_on: bits of Change that can help; 0 if only a change of the pod can.

    by_permit: a node fits, but a Permit plugin rejected the pod.
    """

    pod: Pod
    diagnosis: Diagnosis
    wakes_on: int
    by_permit: bool = False


Outcome: TypeAlias = Placement | NoFit


@dataclass(frozen=True, slots=True)
class Sought:
    """Result of PostFilter. wakes_on: bits of Change that can alter it, for the rules that were evaluated."""

    result: PostFilterResult
    wakes_on: int


@dataclass(frozen=True, slots=True, kw_only=True)
class PodEvaluation:
    """Answers of every rule for every node about one pod, for `explain`. Valid until the tables change.

    diagnosis: None if a node takes the pod. unschedulable: a reason that holds for every node, or "". rules: each rule
    with its rejections over all rows. resolvable: intp[…], rows where evictions may make room. state: of the rules.
    """

    diagnosis: Diagnosis | None
    unschedulable: str
    rules: tuple[tuple[str, list[Rejection]], ...]
    resolvable: RowArray
    state: CycleState


@dataclass(frozen=True, slots=True)
class _Diagnosed:
    """A diagnosis, with the version of the tables and the cache key for which it is valid."""

    version: int
    cache_key: Signature
    diagnosis: Diagnosis
    resolvable: Resolvable


class SchedulingCycle:
    """Scheduling cycle of one profile."""

    def __init__(self, runtime: Runtime) -> None:
        """runtime: runs the profile on the tables. This cycle also changes those tables."""
        self._runtime = runtime
        self._post_filters = post_filters(runtime.profile)
        self._diagnoses: LRUCache[Signature, _Diagnosed] = LRUCache(_DIAGNOSES_BYTES, getsizeof=_size)
        self._memo = RowMemo(runtime.tables)
        # Results with the version of the tables and the cache key.
        self._without: LRUCache[Hashable, tuple[tuple[int, Hashable], bool]] = LRUCache(maxsize=_MOST_KEPT)
        # Results with the versions of the tables and of the disruption budgets, and the cache key.
        self._no_preemption: LRUCache[Hashable, tuple[tuple[int, int, Hashable], Sought]] = LRUCache(maxsize=_MOST_KEPT)
        if self._post_filters:
            # The first count is cheap only while the tables are empty.
            runtime.tables.fact(Priorities)

    def post_filter(
        self, pod: Pod, nominations: Nominations, after_preemption: AvailabilityByPriority, rows: RowArray | None = None
    ) -> Iterator[Sought | None]:
        """Run PostFilter in steps, which yield None; the last one yields the result. Empty without a PostFilter plugin.

        rows: the only candidates; None for all. Other work may run between two steps. Call this while the tables are as
        the pod sees them.
        """
        runtime, tables = self._runtime, self._runtime.tables
        if not self._post_filters:
            return
        key = runtime.signature(pod)
        asked = (key, pod.priority, pod.preempts)
        version = (tables.changes.version, tables.budgets.version, runtime.cache_key(pod))
        kept = self._no_preemption.get(asked)
        if rows is None and kept is not None and kept[0] == version and nominations.of(pod.key.uid) is None:
            yield kept[1]
            return
        if rows is None:
            evaluation = runtime.evaluate(pod)
            found, wakes_on = self._diagnosed(pod, evaluation).resolvable, evaluation.wakes_on
        else:
            found, wakes_on = runtime.resolvable_on(pod, rows)
        available = after_preemption.of(pod.priority)
        what_if = WhatIf(runtime, pod, found, nominations=nominations, after_preemption=available, memo=self._memo)
        result = yield from self._post_filtered(pod, what_if)
        sought = Sought(result, wakes_on | what_if.wakes_on)
        if rows is None and isinstance(result, NoPreemption) and not result.keep_nomination and not result.retry:
            self._no_preemption[asked] = (version, sought)
        yield sought

    def without_equals(self, pod: Pod, nominations: Nominations, after_preemption: AvailabilityByPriority) -> WhatIf:
        """Return what-if queries for an unschedulable pod; pods of the same or a lower priority are left out.

        While this method and each query run, the caller shows the tables as the pod sees them.
        """
        runtime = self._runtime
        found = self._diagnosed(pod, runtime.evaluate(pod)).resolvable
        above = replace(pod, priority=pod.priority + 1)
        available = after_preemption.of(above.priority)
        return WhatIf(runtime, above, found, nominations=nominations, after_preemption=available, memo=self._memo)

    def fits_without(self, pod: Pod, other: PodRecord) -> bool:
        """Return whether the node of `other` takes the pod once `other` is gone.

        other: another pod, which is booked.
        """
        tables, key = self._runtime.tables, (self._runtime.signature(pod), other.pod.key.uid)
        version = (tables.changes.version, self._runtime.cache_key(pod))
        known = self._without.get(key)
        if known is not None and known[0] == version:
            return known[1]
        fits, row = False, tables.row_of.get(other.node)
        if row is not None:
            tables.lift(other)
            try:
                fits = self._runtime.evaluated_on(pod, np.array([row], dtype=np.intp))[0]
            finally:
                tables.put_back(other)
        self._without[key] = (version, fits)
        return fits

    def no_fit(self, pod: Pod) -> NoFit:
        """Return the result for an unschedulable pod."""
        evaluation = self._runtime.evaluate(pod)
        return NoFit(pod, self._diagnosed(pod, evaluation).diagnosis, _wakes_on(evaluation))

    def schedule(self, pod: Pod, now_ns: int, nominated: str = "", *, permits: bool = True) -> Outcome:
        """Place the pod, which is then assumed, or return why it cannot be placed. now_ns: Unix nanoseconds.

        nominated: a node to take if it fits, whatever the scores, or "". permits: whether to call the Permit plugins.
        """
        evaluation = self._runtime.evaluate(pod)
        row = NOWHERE if evaluation.unschedulable else self._row(pod, evaluation, nominated)
        if row == NOWHERE:
            return NoFit(pod, self._diagnosed(pod, evaluation).diagnosis, _wakes_on(evaluation))
        return self._take(pod, evaluation, row, now_ns, self._runtime.profile.permit if permits else ())

    def evaluate(self, pod: Pod) -> PodEvaluation:
        """Evaluate every rule on every node. Changes nothing."""
        runtime = self._runtime
        evaluation = runtime.evaluate(pod)
        nowhere = evaluation.unschedulable or runtime.best_row(pod, evaluation) == NOWHERE
        found = self._diagnosed(pod, evaluation) if nowhere else None
        resolvable = NOT_RESOLVABLE if found is None else found.resolvable
        return PodEvaluation(
            diagnosis=None if found is None else found.diagnosis,
            unschedulable=evaluation.unschedulable,
            rules=tuple(zip(_names(evaluation), runtime.rejections(pod, evaluation), strict=True)),
            resolvable=np.setdiff1d(resolvable.rows, resolvable.ruled_out),
            state=evaluation.state,
        )

    def signature(self, pod: Pod) -> Signature:
        """Return a key: while the tables are unchanged, every rule treats pods with equal keys alike."""
        return self._runtime.signature(pod)

    def minimum_of_class(self, pod: Pod, signature: Signature) -> MinimumRequest:
        """Return the minimum request of a class: a row that lacks any of it rejects the pod."""
        return self._runtime.minimum_of_class(pod, signature)

    def fits_on(self, pod: Pod, rows: RowArray | None) -> tuple[bool, int]:
        """Return (whether any of `rows` takes the pod, bits of Change that can help if none does).

        rows: None for all.
        """
        fits, evaluation = self._runtime.fits_on(pod, rows)
        return fits, _wakes_on(evaluation)

    def fits_uncached(self, pod: Pod, rows: RowArray, only: frozenset[int] | None = None) -> bool:
        """Compute `fits_on` without the cache: valid even while pods are lifted from the tables.

        only: the only card slots that the pod may use; None for all cards.
        """
        return self._runtime.evaluated_on(pod, rows, only)[0]

    def minimum_request(self, pod: Pod) -> Int64Array:
        """Return int64[amounts]: the pod's minimum request on a row, whatever its rules read."""
        return self._runtime.profile.minimum_request(pod)

    def resolvable_on(self, pod: Pod, row: int) -> bool:
        """Return whether evictions may make room on the row for the pod, which does not fit there now."""
        return bool(len(self._runtime.resolvable_on(pod, np.array([row], dtype=np.intp))[0].rows))

    def fits_nowhere(self, pod: Pod) -> bool:
        """Return whether no node can ever fit, given the pod and its claims."""
        return bool(self._runtime.evaluate(pod).unschedulable)

    def unreserve(self, pod: Pod) -> None:
        """Undo a placement: first in the plugins, in reverse order, then in the tables."""
        for plugin in reversed(self._runtime.profile.reserve):
            plugin.unreserve(pod)
        if self._runtime.tables.is_assumed(pod.key.uid):
            self._runtime.tables.forget(pod.key.uid)

    def _post_filtered(self, pod: Pod, what_if: WhatIf) -> Generator[None, None, PostFilterResult]:
        results = []
        for plugin in self._post_filters:
            result = yield from plugin.post_filter(pod, what_if)
            if isinstance(result, Preemption):
                return result
            results.append(result)
        return NoPreemption(
            ", ".join(result.message for result in results),
            tuple(reason for result in results for reason in result.reasons),
            retry=any(result.retry for result in results),
            keep_nomination=any(result.keep_nomination for result in results),
        )

    def _row(self, pod: Pod, evaluation: Evaluation, nominated: str) -> int:
        # Source: kube-scheduler, schedule_one.go, evaluateNominatedNode.
        row = self._runtime.tables.row_of.get(nominated, NOWHERE) if nominated else NOWHERE
        if row != NOWHERE and self._runtime.feasible(pod, evaluation)[row]:
            return row
        return self._runtime.best_row(pod, evaluation)

    def _take(self, pod: Pod, evaluation: Evaluation, row: int, now_ns: int, permit: Sequence[PermitPlugin]) -> Outcome:
        try:
            outcome = self._place(pod, evaluation, row, now_ns, permit)
        except BaseException:
            self.unreserve(pod)
            raise
        if isinstance(outcome, NoFit):
            self.unreserve(pod)
        return outcome

    def _place(
        self, pod: Pod, evaluation: Evaluation, row: int, now_ns: int, permit: Sequence[PermitPlugin]
    ) -> Outcome:
        """Return the placement, reserved and assumed; or the rejection by Permit."""
        tables, profile = self._runtime.tables, self._runtime.profile
        cards: tuple[CardShare, ...] = ()
        annotations: dict[str, str] = {}
        plan: VolumePlan | None = None
        for reserver in profile.reserve:
            reservation = reserver.reserve(pod, tables, evaluation.state, row, now_ns)
            cards += reservation.cards
            annotations.update(reservation.annotations or {})
            plan = plan or reservation.volumes
        tables.assume(pod, row, cards, annotations, plan)
        permit_waits = []
        for permitter in permit:
            answer = permitter.permit(pod, tables.names[row])
            if isinstance(answer, Rejected):
                return NoFit(pod, Diagnosis(len(tables.row_of), rejected=answer.reason), ANYTHING, by_permit=True)
            if isinstance(answer, Wait):
                permit_waits.append(PermitWait(permitter.name, answer.timeout_s))
        return Placement(
            pod=pod,
            node=tables.names[row],
            cards=cards,
            annotations=annotations,
            permit_waits=tuple(permit_waits),
            volumes=plan,
            pre_bind=profile.pre_bind,
        )

    def _diagnosed(self, pod: Pod, evaluation: Evaluation) -> _Diagnosed:
        """Return the diagnosis of an unschedulable pod; cached per class while the tables are unchanged."""
        tables = self._runtime.tables
        version, nodes = tables.changes.version, len(tables.row_of)
        kept = self._diagnoses.get(evaluation.signature)
        if kept is not None and (kept.version, kept.cache_key) == (version, evaluation.cache_key):
            return kept
        if evaluation.unschedulable:
            found = _Diagnosed(
                version, evaluation.cache_key, Diagnosis(nodes, rejected=evaluation.unschedulable), NOT_RESOLVABLE
            )
        else:
            groups = list(self._runtime.rejections(pod, evaluation))
            rows = self._runtime.resolvable(evaluation, groups)
            diagnosis = Diagnosis(nodes, count_reasons(tables.valid, groups, tables.names, _names(evaluation)))
            found = _Diagnosed(version, evaluation.cache_key, diagnosis, rows)
        self._diagnoses[evaluation.signature] = found
        return found


# Enough for 500 classes with 5,000 nodes.
_DIAGNOSES_BYTES: Final = 32 * 1024 * 1024
_DIAGNOSIS_BYTES: Final = 1024
_MOST_KEPT: Final = 1024


def _size(kept: _Diagnosed) -> int:
    return _DIAGNOSIS_BYTES + kept.resolvable.rows.nbytes + kept.resolvable.ruled_out.nbytes


_EXISTENCE: Final = int(Change.EXISTENCE)


def _names(evaluation: Evaluation) -> list[str]:
    return [plugin.name for plugin in evaluation.rules.filters]


def _wakes_on(evaluation: Evaluation) -> int:
    """Return the bits of Change that can help. A new node can help every pod that some node could take."""
    return evaluation.wakes_on if evaluation.unschedulable else evaluation.wakes_on | _EXISTENCE
