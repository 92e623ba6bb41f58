"""Re-evaluation of waiting pods in the background, and of nominated pods after a change of their node.

Re-evaluation keeps the messages of unschedulable pods true. It is not an attempt: the pod keeps its state, and nothing
is counted or booked. Pods of one class share results. NominationChecks retries pods with a nomination or reservation:

    a node changed ──▶ in doubt ── step: it fits, or its node can no longer help it ──▶ to retry

Pure. Owned by the event loop; no method awaits. now_s: monotonic seconds.
"""

from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping
from typing import Final, TypeAlias

import msgspec
import numpy as np
from cachetools import LRUCache

from scheduler.core.preemption_searches import Help, Searches
from scheduler.core.reservations import Reservations
from scheduler.core.scheduling_cycle import SchedulingCycle
from scheduler.framework.diagnosis import Diagnosis
from scheduler.pods.pod import Pod
from scheduler.queue.entry import Entry, PodState
from scheduler.queue.scheduling_queue import SchedulingQueue
from scheduler.state.changes import Change, ClusterEvents
from scheduler.state.nominations import Nominations
from scheduler.state.tables import Tables

_NODE: Final = int(Change.NODE)


class NominationChecks:
    """Pods with a nomination or reservation to check or retry after a change of their node."""

    def __init__(
        self,
        tables: Tables,
        cycles: Mapping[str, SchedulingCycle],
        nominations: Nominations,
        reservations: Reservations,
    ) -> None:
        """cycles: scheduler name -> its cycle."""
        self._tables = tables
        self._cycles = cycles
        self._nominations = nominations
        self._reservations = reservations
        self._to_try: list[Pod] = []
        # Uids of nominated pods whose nodes changed.
        self._in_doubt: dict[str, None] = {}

    def __bool__(self) -> bool:
        """Return whether there are pods to retry or to check."""
        return bool(self._to_try or self._in_doubt)

    def try_again(self, pods: Iterable[Pod]) -> None:
        """Retry these pods, because their node has room or their nomination is gone."""
        self._to_try += pods

    def take(self) -> list[Pod]:
        """Remove and return the pods to retry."""
        found, self._to_try = self._to_try, []
        return found

    def doubt(self, node: str) -> None:
        """Check the pods that are nominated to the node."""
        self._in_doubt |= dict.fromkeys(kept.pod.key.uid for kept in self._nominations.on(node))

    def note_events(self, events: ClusterEvents) -> None:
        """Mark the nominated pods of the changed rows for a check."""
        for row, kinds in events.rows.items() if len(self._nominations) else ():
            node = self._tables.names[row]
            # Other nominations on the node kept these pods out; another pod answers for their class.
            free, others = self._nominations.in_turn(node)
            self._to_try += free
            self._in_doubt |= dict.fromkeys(pod.key.uid for pod in others)
            if kinds & _NODE:
                self.doubt(node)
        for kept in self._nominations.reserved.values():
            if self._tables.row_of.get(kept.node) in events.rows:
                self._in_doubt[kept.pod.key.uid] = None

    def step(self) -> bool:
        """Check one pod. Returns False if none is left to check."""
        if not self._in_doubt:
            return False
        self._check(self._in_doubt.popitem()[0])
        return True

    def _check(self, uid: str) -> None:
        """Retry the pod now if it fits, or if its nominated node can no longer help it."""
        kept = self._nominations.of(uid)
        row = None if kept is None else self._tables.row_of.get(kept.node)
        if kept is None or row is None or kept.pod.scheduler_name not in self._cycles:
            return
        cycle = self._cycles[kept.pod.scheduler_name]
        with self._nominations.seen_by(kept.pod):
            fits = cycle.fits_on(kept.pod, np.array([row], dtype=np.intp))[0]
            helps = fits or cycle.resolvable_on(kept.pod, row)
        if kept.reserved and not fits:
            if not (helps and self._nominations.cards_serve(kept)):
                self._reservations.lost(kept)
        elif fits or not (helps and self._nominations.cards_serve(kept)):
            self._to_try.append(kept.pod)


# A result is shared despite changes if it is younger than the pod's message by this factor.
_YOUNGER: Final = 2.0
_MOST_KNOWN: Final = 4096

_Version: TypeAlias = tuple[int, int, int, int]


class Reevaluated(msgspec.Struct, frozen=True):
    """Result for one pod. diagnosis: the message that an attempt would produce; None if unknown or unchanged.

    help: how an attempt would help the waiting pod; None if it would not.
    """

    pod: Pod
    diagnosis: Diagnosis | None
    help: Help | None = None


class _Known(msgspec.Struct, frozen=True):
    version: _Version
    evaluated_s: float
    diagnosis: Diagnosis | None


class _Evaluation(msgspec.Struct, frozen=True):
    entry: Entry
    key: Hashable
    version: _Version
    steps: Iterator[Diagnosis | Help | None]


class Reevaluation:
    """Background evaluation of waiting pods, one step at a time."""

    def __init__(
        self,
        tables: Tables,
        queue: SchedulingQueue,
        nominations: Nominations,
        searches: Searches,
        class_of: Callable[[Pod], Hashable],
    ) -> None:
        """class_of: returns equal keys for pods that every rule treats alike."""
        self._tables = tables
        self._queue = queue
        self._nominations = nominations
        self._searches = searches
        self._class_of = class_of
        self._known: LRUCache[Hashable, _Known] = LRUCache(_MOST_KNOWN)
        self._evaluation: _Evaluation | None = None

    def step(self, now_s: float) -> Reevaluated | None:
        """Evaluate the next pod, or continue the current evaluation; None if no pod is due."""
        if self._evaluation is not None:
            return self._ask(self._evaluation, now_s)
        due = self._queue.evaluated.take(now_s)
        if due is None:
            return None
        entry, ago_s = due
        version = self._version
        if entry.evaluated_at == version:
            return Reevaluated(entry.pod, None)
        entry.evaluated_at = version
        key = self._key(entry.pod)
        known = self._known.get(key)
        if known is not None and (known.version == version or _YOUNGER * (now_s - known.evaluated_s) <= ago_s):
            entry.evaluated_at = known.version
            return Reevaluated(entry.pod, known.diagnosis)
        return self._ask(_Evaluation(entry, key, version, self._searches.evaluate(entry.pod)), now_s)

    @property
    def _version(self) -> _Version:
        """Version that stays equal as long as every result is valid.

        Does not count changes made only to show the tables as one pod sees them.
        """
        tables, nominations = self._tables, self._nominations
        version = tables.changes.version - nominations.views
        return version, nominations.version, tables.budgets.version, tables.references

    def _key(self, pod: Pod) -> Hashable:
        """Return a key that is equal for pods that get the same message."""
        its_own = pod.key.uid if self._nominations.of(pod.key.uid) is not None else ""
        shares = pod.key.namespace if self._nominations.full else ""
        return self._class_of(pod), pod.priority, pod.preempts, shares, its_own

    def _ask(self, evaluation: _Evaluation, now_s: float) -> Reevaluated:
        pod, self._evaluation = evaluation.entry.pod, None
        if self._queue.state(pod.key.uid) is not PodState.UNSCHEDULABLE:
            return Reevaluated(pod, None)
        found: Diagnosis | Help | None = None
        with self._nominations.seen_by(pod):
            for found in evaluation.steps:
                if found is None:
                    self._evaluation = evaluation
                break
        if isinstance(found, Help):
            # Not cached: the attempt that follows changes the tables.
            evaluation.entry.evaluated_at = None
            return Reevaluated(pod, None, found)
        if self._evaluation is None:
            self._known[evaluation.key] = _Known(evaluation.version, now_s, found)
        return Reevaluated(pod, found)
