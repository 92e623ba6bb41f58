"""One pod against the tables: a place, or why there is none. Pure.

PreFilter → Filter → Score → pick → assume → Reserve → Permit. Nothing here awaits, so nothing can change under it.
"""

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Final, TypeAlias

import msgspec
import numpy as np
from cachetools import LRUCache

from scheduler.framework.diagnosis import Diagnosis, count_reasons
from scheduler.framework.evaluation_cache import Evaluation
from scheduler.framework.plugin import (
    CardVerdict,
    NotHelped,
    Objection,
    PostFilterResult,
    PreBindPlugin,
    Preemption,
    Rejected,
    Wait,
)
from scheduler.framework.runtime import NOWHERE, Runtime, Signature
from scheduler.framework.what_if import RowMemo, WhatIf
from scheduler.pods.pod import Pod
from scheduler.state.cards.booking import CardShare
from scheduler.state.changes import ANYTHING, Change
from scheduler.state.columns.arrays import RowArray
from scheduler.state.facts.priorities import Priorities
from scheduler.state.needs import Needs
from scheduler.state.nominations import Nominations
from scheduler.state.volumes.plan import Plan


@dataclass(frozen=True, slots=True)
class Hold:
    """A Permit plugin holds the pod, at most `timeout_s` seconds."""

    plugin: str
    timeout_s: float


class Placement(msgspec.Struct, frozen=True, kw_only=True):
    """Where a pod goes: assumed in the tables, not yet bound.

    annotations: of the Binding. holds: Permit plugins that have to allow it first. volumes: what its claims are to
    get first. pre_bind: to be called in order.
    """

    pod: Pod
    node: str
    cards: tuple[CardShare, ...]
    annotations: dict[str, str]
    holds: tuple[Hold, ...] = ()
    volumes: Plan | None = None
    pre_bind: tuple[PreBindPlugin, ...] = ()


@dataclass(frozen=True, slots=True)
class NoFit:
    """No node takes the pod. wakes_on: bits of Change that can help; 0 when only a change of the pod itself can.

    by_permit: a node would take it, and a Permit plugin rejected that.
    """

    pod: Pod
    diagnosis: Diagnosis
    wakes_on: int
    by_permit: bool = False


Outcome: TypeAlias = Placement | NoFit


@dataclass(frozen=True, slots=True, kw_only=True)
class Judgement:
    """What every rule says of every node about one pod, for `explain`. Valid while the tables stay as they are.

    diagnosis: None when a node takes the pod. never: a reason that holds for every node, or "". rules: the name of each
    rule with its objections over all rows. verdicts: of a row, what each of its cards is to the pod.
    """

    diagnosis: Diagnosis | None
    never: str
    rules: tuple[tuple[str, list[Objection]], ...]
    verdicts: Callable[[int], list[CardVerdict]]


@dataclass(frozen=True, slots=True)
class _Diagnosed:
    """At a version of the tables and a moment. resolvable: intp[…], rows of which pods that leave may make room.

    ruled_out: those of them that the node's own fields rule out besides.
    """

    version: int
    moment: Signature
    diagnosis: Diagnosis
    resolvable: RowArray
    ruled_out: frozenset[int] = frozenset()


class SchedulingCycle:
    """Decides, for one profile."""

    def __init__(self, runtime: Runtime) -> None:
        """runtime: the profile over the tables that this cycle also changes."""
        self._runtime = runtime
        self._diagnoses: LRUCache[Signature, _Diagnosed] = LRUCache(maxsize=_MOST_DIAGNOSES)
        self._memo = RowMemo(runtime.tables)
        if runtime.profile.post_filter:
            # Made while nothing is there yet, which takes no time.
            runtime.tables.fact(Priorities)

    def post_filter(self, pod: Pod, nominations: Nominations) -> Iterator[PostFilterResult | None]:
        """What can be done for a pod that fits nowhere, in steps: None, and at last the result; nothing without a rule.

        Other things may happen between two steps. The caller sees to it that the tables are as the pod sees them.
        """
        if not self._runtime.profile.post_filter:
            return
        key = self._runtime.signature(pod)
        found = self._diagnosed(pod, key, self._runtime.evaluate(pod, key))
        what_if = WhatIf(self._runtime, nominations, pod, found.resolvable, found.ruled_out, self._memo)
        unhelped = []
        for plugin in self._runtime.profile.post_filter:
            result = yield from plugin.post_filter(pod, what_if)
            if isinstance(result, Preemption):
                yield result
                return
            unhelped.append(result)
        yield NotHelped(
            ", ".join(result.message for result in unhelped),
            tuple(reason for result in unhelped for reason in result.reasons),
            again=any(result.again for result in unhelped),
            keeps=any(result.keeps for result in unhelped),
        )

    def schedule(self, pod: Pod, now_ns: int, nominated: str = "") -> Outcome:
        """Place the pod (it is then assumed) or say why not. now_ns: Unix nanoseconds.

        nominated: the node that is taken if it fits, whatever others score; "" for none.
        """
        key = self._runtime.signature(pod)
        evaluation = self._runtime.evaluate(pod, key)
        row = NOWHERE if evaluation.never else self._row(pod, evaluation, nominated)
        if row == NOWHERE:
            return NoFit(pod, self._diagnosed(pod, key, evaluation).diagnosis, _wakes_on(evaluation))
        return self._take(pod, evaluation, row, now_ns)

    def judge(self, pod: Pod) -> Judgement:
        """What stands between the pod and each node; changes nothing."""
        runtime, key = self._runtime, self._runtime.signature(pod)
        evaluation = runtime.evaluate(pod, key)
        nowhere = evaluation.never or runtime.best_row(pod, evaluation) == NOWHERE
        return Judgement(
            diagnosis=self._diagnosed(pod, key, evaluation).diagnosis if nowhere else None,
            never=evaluation.never,
            rules=tuple(runtime.objections_by_rule(pod, evaluation)),
            verdicts=lambda row: runtime.verdicts(pod, evaluation, row),
        )

    def signature(self, pod: Pod) -> Signature:
        """Equal for pods that every rule answers alike while the tables stay as they are."""
        return self._runtime.signature(pod)

    def needs(self, pod: Pod, signature: Signature) -> Needs:
        """Of a row: one that lacks some of it is surely rejected as the tables are."""
        return self._runtime.needs(pod, signature)

    def fits_on(self, pod: Pod, rows: RowArray | None) -> tuple[bool, int]:
        """(whether some of `rows` take the pod now, bits of Change that can help if none does). rows: None for all."""
        fits, evaluation = self._runtime.fits_on(pod, rows)
        return fits, _wakes_on(evaluation)

    def fits_nowhere(self, pod: Pod, signature: Signature) -> bool:
        """Whether no node will ever do, as the pod and its claims are."""
        return bool(self._runtime.evaluate(pod, signature).never)

    def unreserve(self, pod: Pod) -> None:
        """Undo a placement: the plugins in reverse order, then the tables."""
        for plugin in reversed(self._runtime.profile.reserve):
            plugin.unreserve(pod)
        if self._runtime.tables.is_assumed(pod.key.uid):
            self._runtime.tables.forget(pod.key.uid)

    def _row(self, pod: Pod, evaluation: Evaluation, nominated: str) -> int:
        # Source: kube-scheduler, schedule_one.go, evaluateNominatedNode.
        row = self._runtime.tables.row_of.get(nominated, NOWHERE) if nominated else NOWHERE
        if row != NOWHERE and self._runtime.feasible(pod, evaluation)[row]:
            return row
        return self._runtime.best_row(pod, evaluation)

    def _take(self, pod: Pod, evaluation: Evaluation, row: int, now_ns: int) -> Outcome:
        tables, profile = self._runtime.tables, self._runtime.profile
        cards: tuple[CardShare, ...] = ()
        annotations: dict[str, str] = {}
        plan: Plan | None = None
        holds = []
        with ExitStack() as undo:
            for reserver in profile.reserve:
                reservation = reserver.reserve(pod, tables, evaluation.state, row, now_ns)
                undo.callback(reserver.unreserve, pod)
                cards += reservation.cards
                annotations.update(reservation.annotations or {})
                plan = plan or reservation.volumes
            tables.assume(pod, row, cards, annotations, plan)
            undo.callback(tables.forget, pod.key.uid)
            for permitter in profile.permit:
                answer = permitter.permit(pod, tables.names[row])
                if isinstance(answer, Rejected):
                    nodes = len(tables.row_of)
                    diagnosis = Diagnosis(nodes, rejected=answer.reason)
                    return NoFit(pod, diagnosis, ANYTHING, by_permit=True)
                if isinstance(answer, Wait):
                    holds.append(Hold(permitter.name, answer.timeout_s))
            undo.pop_all()
        return Placement(
            pod=pod,
            node=tables.names[row],
            cards=cards,
            annotations=annotations,
            holds=tuple(holds),
            volumes=plan,
            pre_bind=profile.pre_bind,
        )

    def _diagnosed(self, pod: Pod, key: Signature, evaluation: Evaluation) -> _Diagnosed:
        """Of a pod that fits nowhere, worked out once per class while the tables stay as they are."""
        tables = self._runtime.tables
        version, nodes = tables.changes.version, len(tables.row_of)
        kept = self._diagnoses.get(key)
        if kept is not None and (kept.version, kept.moment) == (version, evaluation.moment):
            return kept
        if evaluation.never:
            found = _Diagnosed(version, evaluation.moment, Diagnosis(nodes, rejected=evaluation.never), _NO_ROWS)
        else:
            groups = list(self._runtime.objections(pod, evaluation))
            rows = np.flatnonzero(self._runtime.resolvable(evaluation, groups))
            diagnosis = Diagnosis(nodes, count_reasons(tables.valid, groups, tables.names))
            ruled_out = frozenset(rows[~evaluation.allowed[rows]].tolist())
            found = _Diagnosed(version, evaluation.moment, diagnosis, rows, ruled_out)
        self._diagnoses[key] = found
        return found


_MOST_DIAGNOSES: Final = 1024
_NO_ROWS: Final = np.zeros(0, dtype=np.intp)
_EXISTENCE: Final = int(Change.EXISTENCE)


def _wakes_on(evaluation: Evaluation) -> int:
    """A node that comes can help every pod that some node could take."""
    return evaluation.wakes_on if evaluation.never else evaluation.wakes_on | _EXISTENCE
