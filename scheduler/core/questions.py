"""Questions about pods that change nothing for anybody else: of tables that somebody schedules by, or of a copy.

Whatever is taken away, or put somewhere, is as it was when the `with` ends that did it, and nobody is woken by it. So a
question may be asked between two decisions. What takes long is asked in steps; other things may happen between them.
Owned by the event loop; no method awaits.
"""

from collections.abc import Callable, Collection, Generator, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from typing import Final

import numpy as np

from scheduler.core.scheduling_cycle import Judgement, Outcome, Placement, SchedulingCycle
from scheduler.framework.preemption import PostFilterResult
from scheduler.pods.pod import Pod
from scheduler.state.available_after_preemption import AvailabilityByPriority
from scheduler.state.columns.arrays import Int64Array
from scheduler.state.nominations import Nominations
from scheduler.state.pod_record import PodRecord
from scheduler.state.tables import Tables

_NO_TIME: Final = 0


class Without:
    """A node without some of its pods, as one pod sees it."""

    def __init__(self, tables: Tables, cycle: SchedulingCycle, pod: Pod, node: str) -> None:
        """All of its pods are there."""
        self._tables = tables
        self._cycle = cycle
        self._pod = pod
        self._node = node
        self._lifted: dict[str, PodRecord] = {}

    def fits(self) -> bool:
        """Whether the node takes the pod now."""
        row = self._tables.row_of.get(self._node)
        return row is not None and self._cycle.judged_on(self._pod, np.array([row], dtype=np.intp))

    def lift(self, record: PodRecord) -> None:
        """Take the pod away; no effect where it is not there any more."""
        uid = record.pod.key.uid
        if self._tables.record(uid) is record and record.node == self._node and self._node in self._tables.row_of:
            self._tables.lift(record)
            self._lifted[uid] = record

    def put_back(self, record: PodRecord) -> None:
        """It is there again; no effect where it is."""
        if self._lifted.pop(record.pod.key.uid, None) is not None:
            self._tables.put_back(record)

    def put_back_all(self) -> None:
        """As it was."""
        for record in list(self._lifted.values()):
            self.put_back(record)


class Questions:
    """See the module."""

    def __init__(self, tables: Tables, cycles: Mapping[str, SchedulingCycle], nominations: Nominations) -> None:
        """cycles: by scheduler name."""
        self._tables = tables
        self._cycles = cycles
        self._nominations = nominations
        self._after_preemption = AvailabilityByPriority(tables)

    def judge(self, pod: Pod) -> Judgement:
        """What every rule says of every node about the pod. Asked within `nominations.seen_by`."""
        return self._cycles[pod.scheduler_name].judge(pod)

    def minimum_request(self, pod: Pod) -> Int64Array:
        """int64[amounts]: what the pod needs of a row at least, as far as plain amounts say it."""
        return self._cycles[pod.scheduler_name].minimum_request(pod)

    @contextmanager
    def without(self, pod: Pod, node: str, records: Collection[PodRecord] = ()) -> Iterator[Without]:
        """One node without these pods, as the pod sees it."""
        with self._nominations.seen_by(pod):
            found = Without(self._tables, self._cycles[pod.scheduler_name], pod, node)
            try:
                for record in records:
                    found.lift(record)
                yield found
            finally:
                found.put_back_all()

    def preemption_for(self, pod: Pod) -> Generator[None, None, PostFilterResult | None]:
        """What could be done for a pod that fits nowhere, in steps; None when the profile does nothing. Nobody goes."""
        steps = self._cycles[pod.scheduler_name].post_filter(pod, self._nominations, self._after_preemption)
        while True:
            with self._nominations.seen_by(pod):
                try:
                    sought = next(steps)
                except StopIteration:
                    return None
            if sought is not None:
                return sought.result
            yield

    @contextmanager
    def placing(self) -> Iterator["Placing"]:
        """Place pods, one beside the other, and leave some out; all is as it was when this ends."""
        before = self._tables.take_openings()
        placing = Placing(self._tables, self._cycles, self._nominations)
        with self._tables.target.left_as_it_is():
            try:
                yield placing
            finally:
                placing.undo()
                # Room that was taken here, and given back, is no news for pods that wait.
                self._tables.take_openings()
                self._tables.openings.add(before)


class Placing:
    """Pods that are placed, or left out, for the length of a question, in a journal that can be taken back.

    Permit is not asked: it may count who has a place.
    """

    def __init__(self, tables: Tables, cycles: Mapping[str, SchedulingCycle], nominations: Nominations) -> None:
        """None yet."""
        self._tables = tables
        self._cycles = cycles
        self._nominations = nominations
        self._journal: list[Callable[[], None]] = []

    @property
    def mark(self) -> int:
        """How far the journal is, for `undo`."""
        return len(self._journal)

    def attempt(self, pod: Pod) -> Outcome:
        """A place, which the pod has until the end, or why there is none."""
        with self._nominations.seen_by(pod):
            kept = self._nominations.of(pod.key.uid)
            return self._scheduled(pod, "" if kept is None else kept.node)

    def place(self, pod: Pod, node: str = "") -> Placement | None:
        """The same without a reason; None where nothing, or not that node, takes it. node: "" for the best."""
        if not self.fits(pod, node):
            return None
        with self._nominations.seen_by(pod):
            outcome = self._scheduled(pod, node)
        return outcome if isinstance(outcome, Placement) else None

    def fits(self, pod: Pod, node: str = "") -> bool:
        """Whether the node takes the pod, or any node where none is named."""
        row = self._tables.row_of.get(node)
        rows = None if row is None else np.array([row], dtype=np.intp)
        with self._nominations.seen_by(pod):
            return self._cycles[pod.scheduler_name].fits_on(pod, rows)[0]

    def put(self, pod: Pod, placement: Placement) -> None:
        """The pod is there, whether it fits or not."""
        row = self._tables.row_of[placement.node]
        self._tables.assume(pod, row, placement.cards, placement.annotations, placement.volumes)
        self._journal.append(partial(self._cycles[pod.scheduler_name].unreserve, pod))

    def leave_out(self, record: PodRecord) -> None:
        """As if the pod had left its node, which is there."""
        self._tables.leave_out(record)
        self._journal.append(partial(self._tables.bring_back, record))

    def bring_back(self, record: PodRecord) -> None:
        """A pod that was left out is there again, whether there is still room for it or not."""
        self._tables.bring_back(record)
        self._journal.append(partial(self._tables.leave_out, record))

    def undo(self, mark: int = 0) -> None:
        """Everything since then, the last first."""
        while len(self._journal) > mark:
            self._journal.pop()()

    def _scheduled(self, pod: Pod, node: str) -> Outcome:
        cycle = self._cycles[pod.scheduler_name]
        outcome = cycle.schedule(pod, _NO_TIME, node, permits=False)
        if isinstance(outcome, Placement):
            self._journal.append(partial(cycle.unreserve, pod))
        return outcome
