"""Questions about pods that change nothing for anybody else: of tables that somebody schedules by, or of a copy.

Whatever is taken away, or put somewhere, is as it was when the `with` ends that did it, and nobody is woken by it. So a
question may be asked between two decisions. What takes long is asked in steps; other things may happen between them.
Owned by the event loop; no method awaits.
"""

from collections.abc import Collection, Generator, Iterator, Mapping
from contextlib import contextmanager
from typing import Final

import numpy as np

from scheduler.framework.preemption import PostFilterResult
from scheduler.pods.pod import Pod
from scheduler.scheduling_cycle import Judgement, Outcome, Placement, SchedulingCycle
from scheduler.state.left_above import LeftAboves
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
        self._lefts = LeftAboves(tables)

    def judge(self, pod: Pod) -> Judgement:
        """What every rule says of every node about the pod. Asked within `nominations.seen_by`."""
        return self._cycles[pod.scheduler_name].judge(pod)

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
        steps = self._cycles[pod.scheduler_name].post_filter(pod, self._nominations, self._lefts)
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
        """Place pods, one beside the other; all of them are gone again when this ends."""
        before = self._tables.take_openings()
        placing = Placing(self._cycles, self._nominations)
        try:
            yield placing
        finally:
            placing.undo()
            # Room that was taken here, and given back, is no news for pods that wait.
            self._tables.take_openings()
            self._tables.openings.add(before)


class Placing:
    """Pods that are placed for the length of a question. Permit is not asked: it may count who has a place."""

    def __init__(self, cycles: Mapping[str, SchedulingCycle], nominations: Nominations) -> None:
        """None yet."""
        self._cycles = cycles
        self._nominations = nominations
        self._placed: list[Pod] = []

    def attempt(self, pod: Pod) -> Outcome:
        """A place, which the pod has until the end, or why there is none."""
        with self._nominations.seen_by(pod):
            kept = self._nominations.of(pod.key.uid)
            nominated = "" if kept is None else kept.node
            outcome = self._cycles[pod.scheduler_name].schedule(pod, _NO_TIME, nominated, permits=False)
        if isinstance(outcome, Placement):
            self._placed.append(pod)
        return outcome

    def undo(self) -> None:
        """The last one first."""
        while self._placed:
            pod = self._placed.pop()
            self._cycles[pod.scheduler_name].unreserve(pod)
