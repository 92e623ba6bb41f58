"""A scheduling cycle that proves each of its decisions before it is used."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Final

import numpy as np

from config.protocol.inventory import Health
from scheduler.core.scheduling_cycle import NoFit, Outcome, Placement, SchedulingCycle, Sought
from scheduler.framework.evaluation_cache import Evaluation
from scheduler.framework.profile import Profile
from scheduler.framework.runtime import Runtime
from scheduler.kube import objects
from scheduler.pods.pod import Pod
from scheduler.queue.class_table import ClassTable
from scheduler.state.amounts import AvailableOnRows
from scheduler.state.available_after_preemption import AvailabilityByPriority
from scheduler.state.columns.arrays import ALL_ROWS, RowArray
from scheduler.state.ledger import NodeLedger
from scheduler.state.minimum_request import minimum_request_of
from scheduler.state.nominations import Nominations
from scheduler.state.tables import Tables
from tests.support.builders import READER
from tests.support.without_cache import decision, evaluation

_OPEN: Final = frozenset({Health.HEALTHY, Health.CORDONED})


class CheckedCycle(SchedulingCycle):
    """Cycle that checks each decision: for the pod as last seen, equal without the cache, and within free capacity.

    seen: UID -> the last version of the pod. nominations: of the engine. ledger: free capacity, counted from scratch,
    from the objects that the process received and its own assumptions.
    """

    def __init__(
        self,
        profile: Profile,
        tables: Tables,
        seen: Callable[[str], objects.PodObject],
        ledger: Callable[[], Mapping[str, NodeLedger]],
        nominations: Callable[[], Nominations],
    ) -> None:
        super().__init__(Runtime(profile, tables))
        self._seen = seen
        self.profile = profile
        self._tables = tables
        self._ledger = ledger
        self._nominations = nominations
        self.placed = 0
        self.refused = 0
        self.asked = 0
        self.searches = 0

    @property
    def attempts(self) -> int:
        """Number of decisions so far."""
        return self.placed + self.refused

    def post_filter(
        self, pod: Pod, nominations: Nominations, after_preemption: AvailabilityByPriority, rows: RowArray | None = None
    ) -> Iterator[Sought | None]:
        self.searches += 1
        return super().post_filter(pod, nominations, after_preemption, rows)

    def schedule(self, pod: Pod, now_ns: int, nominated: str = "", *, permits: bool = True) -> Outcome:
        self.asked += 1
        seen = self._seen(pod.key.uid)
        as_seen = READER.read(seen)
        assert not seen.metadata.deletion_timestamp, f"{pod.key} is being deleted"
        assert not seen.spec.node_name, f"{pod.key} has a place"
        read = (as_seen.labels, as_seen.annotations)
        assert (pod.labels, pod.annotations) == read, f"{pod.key} has changed"
        expected = decision(self.profile, self._tables, pod, now_ns, nominated)
        before = self._ledger()
        outcome = super().schedule(pod, now_ns, nominated, permits=permits)
        if isinstance(outcome, NoFit) and isinstance(expected, NoFit):
            # Any earlier rejection of the class may wake it: more than necessary, never less.
            assert outcome.wakes_on & expected.wakes_on == expected.wakes_on, (
                f"{pod.key} is not woken by all that helps"
            )
            expected = replace(expected, wakes_on=outcome.wakes_on)
        assert outcome == expected, f"{outcome} with the cache, {expected} without"
        if isinstance(outcome, Placement):
            self.placed += 1
            self._assert_kept(outcome)
            self._assert_free(outcome, before[outcome.node])
        else:
            self.refused += 1
        return outcome

    def no_fit(self, pod: Pod) -> NoFit:
        answered, expected = super().no_fit(pod), decision(self.profile, self._tables, pod, 0)
        if isinstance(expected, NoFit):
            assert answered.diagnosis == expected.diagnosis, f"{answered} with the cache, {expected} without"
        return answered

    def fits_on(self, pod: Pod, rows: RowArray | None) -> tuple[bool, int]:
        self.asked += 1
        runtime, judged = evaluation(self.profile, self._tables, pod)
        feasible = None if judged.unschedulable else runtime.feasible(pod, judged)
        expected = feasible is not None and bool(feasible[ALL_ROWS if rows is None else rows].any())
        answered = super().fits_on(pod, rows)
        assert answered[0] == expected
        if feasible is not None:
            self._assert_not_ruled_out(pod, judged, np.flatnonzero(feasible))
        return answered

    def _assert_not_ruled_out(self, pod: Pod, judged: Evaluation, rows: RowArray) -> None:
        """Assert that the pod's minimum request, as seen in the tables, did not rule it out."""
        minimum = minimum_request_of(
            self.profile.minimum_request(pod), pod.template.gpu_request, self._tables.cards.model_code, judged.allowed
        )
        table, left, slots = ClassTable(measured_by=0), AvailableOnRows(self._tables), np.zeros(64, dtype=np.bool_)
        slot = table.take()
        table.need(slot, minimum)
        slots[slot] = True
        for row in rows:
            assert table.rule_out(slots, np.array([row]), left)[slot], f"{pod.key} fits where too little is left"

    def _assert_kept(self, placement: Placement) -> None:
        """Assert that capacity kept for other pods of equal or higher priority counts as taken, whoever freed it."""
        pod = placement.pod
        for kept in self._nominations().on(placement.node):
            if kept.pod.key != pod.key and kept.pod.priority >= pod.priority:
                assert kept.shown, f"{pod.key} does not see what is kept for {kept.pod.key}"

    def _assert_free(self, placement: Placement, before: NodeLedger) -> None:
        gpu_request, announced = placement.pod.template.gpu_request, self._tables.inventory(placement.node)
        if gpu_request is None:
            assert not placement.cards
            return
        cards = {card.uuid: card for card in announced.cards}
        by_index = {card.index: card.uuid for card in announced.cards}
        taken = [share.uuid or by_index[share.index] for share in placement.cards]
        assert len(set(taken)) == gpu_request.cards
        assert announced.allocatable - before.counted >= gpu_request.units
        for uuid in taken:
            assert cards[uuid].health in _OPEN
            assert not {uuid, str(cards[uuid].index)} & announced.cordoned
            assert before.free[uuid] >= gpu_request.units_per_card, f"{placement} on {before}"
            assert not before.exclusive[uuid]
            assert not (gpu_request.exclusive and before.holders[uuid])
