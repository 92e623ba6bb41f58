"""What-if queries about pods, on live tables or on a copy. They change nothing for other pods.

Each `with` block restores the tables when it ends and wakes no pod, so a query may run between two decisions. Long
queries run in steps; other work may run between steps. Owned by the event loop; no method awaits.
"""

from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from itertools import count
from typing import Final

import numpy as np

from scheduler.core.scheduling_cycle import Outcome, Placement, PodEvaluation, SchedulingCycle
from scheduler.framework.preemption import PostFilterResult
from scheduler.plugins.preemption.leaving import leaving
from scheduler.pods.pod import Pod
from scheduler.state.available_after_preemption import AvailabilityByPriority
from scheduler.state.nominations import Nominations
from scheduler.state.pod_record import PodRecord
from scheduler.state.tables import Tables

_NO_TIME: Final = 0


class Without:
    """One node without some of its pods, as one pod sees it."""

    def __init__(self, tables: Tables, cycle: SchedulingCycle, pod: Pod, node: str) -> None:
        self._tables = tables
        self._cycle = cycle
        self._pod = pod
        self._node = node
        self._lifted: dict[str, PodRecord] = {}

    def fits(self) -> bool:
        """Return whether the node takes the pod now."""
        row = self._tables.row_of.get(self._node)
        return row is not None and self._cycle.fits_uncached(self._pod, np.array([row], dtype=np.intp))

    def lift(self, record: PodRecord) -> None:
        """Lift a pod off the node; no effect if it is no longer there."""
        uid = record.pod.key.uid
        if self._tables.record(uid) is record and record.node == self._node and self._node in self._tables.row_of:
            self._tables.lift(record)
            self._lifted[uid] = record

    def put_back(self, record: PodRecord) -> None:
        """Put a lifted pod back; no effect if it is not lifted."""
        if self._lifted.pop(record.pod.key.uid, None) is not None:
            self._tables.put_back(record)

    def put_back_all(self) -> None:
        """Put every lifted pod back."""
        for record in list(self._lifted.values()):
            self.put_back(record)


class WhatIfQueries:
    """What-if queries of one engine."""

    def __init__(self, tables: Tables, cycles: Mapping[str, SchedulingCycle], nominations: Nominations) -> None:
        """cycles: scheduler name -> its cycle."""
        self._tables = tables
        self._cycles = cycles
        self._nominations = nominations
        self._after_preemption = AvailabilityByPriority(tables)
        self._numbers = count(1)

    def evaluate(self, pod: Pod) -> PodEvaluation:
        """Evaluate every rule on every node for the pod. Call this within `nominations.seen_by`."""
        return self._cycles[pod.scheduler_name].evaluate(pod)

    def leaving(
        self, pod: Pod, potential: Mapping[str, Collection[PodRecord]], most_nodes: int
    ) -> list[tuple[PodRecord, ...]]:
        """Return sets of pods, each of one node, that would have to leave so that an unschedulable pod fits there.

        Fewest pods first; all pods are equally important. The sets suffice by plain amounts, but the rules may still
        reject the pod. potential: by node, pods that may leave; those that are left out count as gone.
        most_nodes: number of nodes examined pod by pod.
        """
        cycle = self._cycles[pod.scheduler_name]
        with self._nominations.seen_by(pod):
            rows = cycle.evaluate(pod).resolvable
            return leaving(pod, cycle.minimum_request(pod), self._tables, rows, potential, most_nodes=most_nodes)

    @contextmanager
    def without(self, pod: Pod, node: str, records: Collection[PodRecord] = ()) -> Iterator[Without]:
        """Lift these pods off a node, as the pod sees it, until the block ends."""
        with self._nominations.seen_by(pod):
            found = Without(self._tables, self._cycles[pod.scheduler_name], pod, node)
            try:
                for record in records:
                    found.lift(record)
                yield found
            finally:
                found.put_back_all()

    def preemption_for(self, pod: Pod) -> PostFilterResult | None:
        """Run PostFilter for an unschedulable pod; evicts nothing. None if the profile has no PostFilter."""
        steps = self._cycles[pod.scheduler_name].post_filter(pod, self._nominations, self._after_preemption)
        with self._nominations.seen_by(pod):
            return next((sought.result for sought in steps if sought is not None), None)

    @contextmanager
    def placing(self) -> Iterator["Placing"]:
        """Place several pods together and leave out others; undone when the block ends."""
        tables = self._tables
        before, outer = tables.take_cluster_events(), tables.query
        placing = Placing(tables, self._cycles, self._nominations)
        tables.query = outer or next(self._numbers)
        try:
            yield placing
        finally:
            placing.undo()
            tables.query = outer
            # Capacity taken and released here must not wake waiting pods.
            tables.take_cluster_events()
            tables.cluster_events.add(before)


class Placing:
    """Trial placements and removals of pods, in a journal that can be undone.

    Permit is not called, because it may count the pods that it allows.
    """

    def __init__(self, tables: Tables, cycles: Mapping[str, SchedulingCycle], nominations: Nominations) -> None:
        self._tables = tables
        self._cycles = cycles
        self._nominations = nominations
        self._journal: list[Callable[[], None]] = []

    @property
    def mark(self) -> int:
        """Current length of the journal, to be passed to `undo`."""
        return len(self._journal)

    def attempt(self, pod: Pod) -> Outcome:
        """Place the pod until the query ends, or return why it fits nowhere."""
        with self._nominations.seen_by(pod):
            kept = self._nominations.of(pod.key.uid)
            return self._scheduled(pod, "" if kept is None else kept.node)

    def place(self, pod: Pod, node: str = "") -> Placement | None:
        """Place the pod on `node` ("" for the best node). None if it does not fit."""
        if not self.fits(pod, node):
            return None
        with self._nominations.seen_by(pod):
            outcome = self._scheduled(pod, node)
        return outcome if isinstance(outcome, Placement) else None

    def fits(self, pod: Pod, node: str = "") -> bool:
        """Return whether `node` ("" for any node) takes the pod."""
        row = self._tables.row_of.get(node)
        rows = None if row is None else np.array([row], dtype=np.intp)
        with self._nominations.seen_by(pod):
            return self._cycles[pod.scheduler_name].fits_on(pod, rows)[0]

    def repeat(self, placement: Placement) -> bool:
        """Place the pod again on the same node and cards, if the rules accept that now. Returns whether they do."""
        pod, row, tables = placement.pod, self._tables.row_of[placement.node], self._tables
        indexes = {share.index for share in placement.cards}
        slots = frozenset(slot for slot, its in enumerate(tables.cards.slots[row]) if its.card.index in indexes)
        cycle = self._cycles[pod.scheduler_name]
        with self._nominations.seen_by(pod):
            if not cycle.fits_uncached(pod, np.array([row], dtype=np.intp), slots):
                return False
        tables.assume(pod, row, placement.cards, placement.annotations, placement.volumes)
        self._journal.append(partial(cycle.unreserve, pod))
        return True

    def leave_out(self, record: PodRecord) -> None:
        """Remove a pod from its node, which must exist."""
        self._tables.leave_out(record)
        self._journal.append(partial(self._tables.bring_back, record))

    def bring_back(self, record: PodRecord) -> None:
        """Put back a pod that was left out, whether or not it still fits."""
        self._tables.bring_back(record)
        self._journal.append(partial(self._tables.leave_out, record))

    def undo(self, mark: int = 0) -> None:
        """Undo the journal down to `mark`, newest first."""
        while len(self._journal) > mark:
            self._journal.pop()()

    def _scheduled(self, pod: Pod, node: str) -> Outcome:
        cycle = self._cycles[pod.scheduler_name]
        outcome = cycle.schedule(pod, _NO_TIME, node, permits=False)
        if isinstance(outcome, Placement):
            self._journal.append(partial(cycle.unreserve, pod))
        return outcome
