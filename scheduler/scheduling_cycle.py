"""One pod against the tables: a place, or why there is none. Pure.

PreFilter → Filter → Score → pick → assume → Reserve → Permit. Nothing here awaits, so nothing can change under it.
"""

from contextlib import ExitStack
from dataclasses import dataclass
from typing import Final, TypeAlias

import msgspec
from cachetools import LRUCache

from scheduler.framework.diagnosis import Diagnosis, count_reasons
from scheduler.framework.evaluation_cache import Evaluation
from scheduler.framework.plugin import PreBindPlugin, Rejected, Wait
from scheduler.framework.runtime import NOWHERE, Runtime, Signature
from scheduler.pods.pod import Pod
from scheduler.state.cards.booking import CardShare
from scheduler.state.changes import ANYTHING, Change
from scheduler.state.columns.arrays import RowArray
from scheduler.state.needs import Needs
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


class SchedulingCycle:
    """Decides, for one profile."""

    def __init__(self, runtime: Runtime) -> None:
        """runtime: the profile over the tables that this cycle also changes."""
        self._runtime = runtime
        self._diagnoses: LRUCache[Signature, tuple[int, Signature, Diagnosis]] = LRUCache(maxsize=_MOST_DIAGNOSES)

    def schedule(self, pod: Pod, now_ns: int) -> Outcome:
        """Place the pod (it is then assumed) or say why not. now_ns: Unix nanoseconds."""
        key = self._runtime.signature(pod)
        evaluation = self._runtime.evaluate(pod, key)
        row = NOWHERE if evaluation.never else self._runtime.best_row(pod, evaluation)
        if row == NOWHERE:
            return NoFit(pod, self._diagnose(pod, key, evaluation), _wakes_on(evaluation))
        return self._take(pod, evaluation, row, now_ns)

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

    def _diagnose(self, pod: Pod, key: Signature, evaluation: Evaluation) -> Diagnosis:
        """Words for a pod that fits nowhere, worked out once per class while the tables stay as they are."""
        tables = self._runtime.tables
        kept = self._diagnoses.get(key)
        if kept is not None and kept[:2] == (tables.changes.version, evaluation.moment):
            return kept[2]
        nodes = len(tables.row_of)
        if evaluation.never:
            diagnosis = Diagnosis(nodes, rejected=evaluation.never)
        else:
            diagnosis = Diagnosis(nodes, count_reasons(tables.valid, self._runtime.objections(pod, evaluation)))
        self._diagnoses[key] = (tables.changes.version, evaluation.moment, diagnosis)
        return diagnosis


_MOST_DIAGNOSES: Final = 1024
_EXISTENCE: Final = int(Change.EXISTENCE)


def _wakes_on(evaluation: Evaluation) -> int:
    """A node that comes can help every pod that some node could take."""
    return evaluation.wakes_on if evaluation.never else evaluation.wakes_on | _EXISTENCE
