"""In a cluster where nothing goes wrong, a place that comes up is taken at once."""

from typing import Final

from hypothesis import strategies as st

from scheduler.core.scheduling_cycle import Placement
from scheduler.queue.entry import PodState
from tests.support.without_cache import decision
from tests.system.histories.happening import PICK, happens, nth
from tests.system.histories.history import READER, History
from tests.system.histories.node_plans import CHANGES, PLANS

AT_ONCE_S: Final = 0.1


class PromptRules(History):
    @happens(2, lambda self: self.pods(assigned=True), pick=PICK)
    def pod_goes_and_its_place_is_taken(self, pick: int) -> None:
        self.settle()
        if assigned := self.pods(assigned=True):
            meta = nth(assigned, pick).metadata
            self.world.pods.remove(meta.namespace, meta.name)
            self.check_that_no_pod_sleeps_beside_a_place()

    @happens(1, name=st.sampled_from(sorted(PLANS)))
    def node_is_well_and_is_used(self, name: str) -> None:
        self.settle()
        self.show(PLANS[name])
        self.check_that_no_pod_sleeps_beside_a_place()

    @happens(2, lambda self: self.plans, pick=PICK, change=st.sampled_from(sorted(CHANGES)))
    def node_changes_and_is_used(self, pick: int, change: str) -> None:
        self.settle()
        self.show(CHANGES[change](nth(list(self.plans.values()), pick)))
        self.check_that_no_pod_sleeps_beside_a_place()

    @happens(1, lambda self: len(self.plans) > 1, pick=PICK)
    def node_goes_and_keeps_no_pod_away(self, pick: int) -> None:
        self.settle()
        name = nth(list(self.plans), pick)
        del self.plans[name]
        self.world.nodes.delete(name)
        self.check_that_no_pod_sleeps_beside_a_place()

    def settle(self) -> None:
        self.spare_requests()
        self.pass_time(self.settled_after_s)

    def check_that_no_pod_sleeps_beside_a_place(self) -> None:
        self.pass_time(AT_ONCE_S)
        engine, profile = self.process.engine, self.process.cycle.profile
        if self.process.service.binds_in_flight >= self.configuration.max_binds_in_flight:
            return
        for wire in self.process.wire.told["pods"]:
            state = engine.queue.state(wire.metadata.uid)
            # Who is held back is awake: its namespace may send no more for now. Who backs off has been refused.
            if state not in {None, PodState.GATED, PodState.THROTTLED, PodState.IN_FLIGHT, PodState.BACKING_OFF}:
                pod = READER.read(wire)
                with engine.nominations.seen_by(pod):
                    place = decision(profile, engine.tables, pod, 0)
                assert not isinstance(place, Placement), f"{place} is free, and the pod is {state}"
