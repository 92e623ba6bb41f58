"""What happens to nodes and pods without the scheduler."""

import json

from hypothesis import strategies as st
from msgspec.structs import replace

from config.protocol import names
from scheduler.core.scheduling_cycle import Placement
from scheduler.kube import objects
from scheduler.queue.entry import PodState
from tests.support.without_cache import decision
from tests.system.histories.happening import PICK, happens, nth
from tests.system.histories.history import READER, History
from tests.system.histories.node_plans import CHANGES, PLANS
from tests.system.histories.pod_templates import OTHERS, OURS, WRITTEN, annotations, others, ours


class ClusterRules(History):
    # Nodes

    @happens(6, name=st.sampled_from(sorted(PLANS)))
    def node_comes_or_is_well_again(self, name: str) -> None:
        self.show(PLANS[name])

    @happens(
        6,
        lambda self: self.plans,
        pick=PICK,
        changes=st.lists(st.sampled_from(sorted(CHANGES)), min_size=1, max_size=2),
    )
    def node_changes(self, pick: int, changes: list[str]) -> None:
        plan = nth(list(self.plans.values()), pick)
        for change in changes:
            plan = CHANGES[change](plan)
        self.show(plan)

    @happens(1, lambda self: len(self.plans) > 1, pick=PICK)
    def node_goes(self, pick: int) -> None:
        name = nth(list(self.plans), pick)
        del self.plans[name]
        self.world.nodes.delete(name)

    @happens(2, lambda self: self.plans, pick=PICK, gpus=st.sampled_from([None, "0", "0,1", "1, x", ""]))
    def cards_are_marked_unhealthy(self, pick: int, gpus: str | None) -> None:
        where = names.UNHEALTHY_NAMESPACE, f"{names.UNHEALTHY_PREFIX}{nth(list(self.plans), pick)}"
        config_maps = self.world.config_maps
        there = config_maps.collection.find(*where) is not None
        if gpus is None and there:
            config_maps.delete(*where)
        elif gpus is not None and there:
            config_maps.update(*where, {names.UNHEALTHY_KEY: gpus})
        elif gpus is not None:
            config_maps.create(*where, {names.UNHEALTHY_KEY: gpus})

    @happens(3, labels=st.sampled_from([None, "red", "blue"]), namespace=st.sampled_from(["default", "other"]))
    def namespace_is_labelled(self, labels: str | None, namespace: str) -> None:
        self.world.namespaces.ensure(namespace)
        self.world.namespaces.label(namespace, {"team": labels})

    # Pods that wait

    @happens(
        14,
        template=st.sampled_from(sorted(OURS)),
        copies=st.integers(1, 4),
        namespace=st.sampled_from(["default", "default", "other"]),
    )
    def pods_come(self, template: str, copies: int, namespace: str) -> None:
        for _ in range(copies):
            name, uid = self.new_name()
            self.world.pods.create(ours(template, name, uid, namespace))

    @happens(6, copies=st.integers(1, 3))
    def important_pods_come(self, copies: int) -> None:
        """Pods of lower priority go for them where nothing is left."""
        for _ in range(copies):
            name, uid = self.new_name()
            self.world.pods.create(ours("important", name, uid, "default"))

    @happens(2, lambda self: self.gated(), pick=PICK)
    def gates_open(self, pick: int) -> None:
        self.update(nth(self.gated(), pick), lambda pod: replace(pod, spec=replace(pod.spec, scheduling_gates=())))

    @happens(
        2,
        lambda self: self.pods(assigned=False, ours=True),
        pick=PICK,
        key=st.sampled_from([names.CARD_MODELS, names.CARD_POLICY]),
        value=st.sampled_from(["X", "M", ""]),
    )
    def waiting_pod_is_annotated(self, pick: int, key: str, value: str) -> None:
        pod = nth(self.pods(assigned=False, ours=True), pick)
        self.annotate(pod, {key: "spread" if key == names.CARD_POLICY else value})

    @happens(1, lambda self: self.pods(assigned=False, ours=True), pick=PICK)
    def waiting_pod_is_labelled(self, pick: int) -> None:
        pod = nth(self.pods(assigned=False, ours=True), pick)
        labels = {**(pod.metadata.labels or {}), "app": "web"}
        self.update(pod, lambda old: replace(old, metadata=replace(old.metadata, labels=labels)))

    @happens(4, lambda self: self.being_bound(), pick=PICK, how=st.sampled_from(["annotated", "deleted", "bound"]))
    def pod_that_is_being_bound_changes(self, pick: int, how: str) -> None:
        pod = nth(self.being_bound(), pick)
        if how == "annotated":
            self.annotate(pod, {names.CARD_MODELS: "X"})
        elif how == "deleted":
            self.world.pods.delete(pod.metadata.namespace, pod.metadata.name)
        elif self.plans:
            self.bind_by_hand(pod, pick, "nothing", 0)

    # Pods that end

    @happens(4, lambda self: len(self.world.pods), pick=PICK, grace_s=st.sampled_from([0.0, 30.0]), many=st.booleans())
    def pods_are_deleted(self, pick: int, grace_s: float, many: bool) -> None:  # noqa: FBT001 - hypothesis draws it
        for _ in range(3 if many else 1):
            if len(self.world.pods):
                pod = nth(list(self.world.pods), pick).metadata
                self.world.pods.delete(pod.namespace, pod.name, grace_s=grace_s)

    @happens(3, lambda self: self.terminating(), pick=PICK)
    def terminating_pod_is_gone(self, pick: int) -> None:
        pod = nth(self.terminating(), pick).metadata
        self.world.pods.remove(pod.namespace, pod.name)

    @happens(
        5,
        lambda self: self.pods(assigned=True),
        pick=PICK,
        phase=st.sampled_from(["Running", "Succeeded", "Failed"]),
        many=st.booleans(),
    )
    def pods_run_or_finish(self, pick: int, phase: str, many: bool) -> None:  # noqa: FBT001 - as above
        for _ in range(4 if many else 1):
            if assigned := self.pods(assigned=True):
                pod = nth(assigned, pick).metadata
                self.world.pods.set_phase(pod.namespace, pod.name, phase)

    @happens(3, lambda self: self.pods(assigned=True, ours=True), pick=PICK)
    def kubelet_rejects_the_pod(self, pick: int) -> None:
        pod = nth(self.pods(assigned=True, ours=True), pick).metadata
        message = "Pod was rejected: Node didn't have enough resource: cpu"
        self.world.pods.finish(pod.namespace, pod.name, "Failed", reason="OutOfcpu", message=message)

    @happens(3, lambda self: self.pods(assigned=True, ours=True), pick=PICK)
    def plugin_marks_the_pod(self, pick: int) -> None:
        """As the legacy plugin does at Allocate."""
        pod = nth(self.pods(assigned=True, ours=True), pick)
        self.annotate(pod, {names.MEM_ASSIGNED: "true", names.MEM_ASSUME_TIME: str(self.made)})

    @happens(3, lambda self: self.pods(assigned=True), pick=PICK, index=st.integers(0, 3), uuid=st.booleans())
    def allocation_is_edited(self, pick: int, index: int, uuid: bool) -> None:  # noqa: FBT001 - as above
        """By somebody with the right to do so: the first one stays."""
        pod = nth(self.pods(assigned=True), pick)
        self.edited.add(pod.metadata.uid)
        units = READER.read(pod).template.gpu_units
        cards = {index: f"GPU-{pod.spec.node_name}-{index}"} if uuid else {}
        said = {names.ALLOCATION: json.dumps({0: {index: units}}), names.CARDS: json.dumps(cards)}
        self.annotate(pod, said | {names.UNIT_MIB: "256" if index == 3 else "1024"})

    # Other schedulers

    @happens(
        3,
        lambda self: self.plans,
        pick=PICK,
        template=st.sampled_from(sorted(OTHERS)),
        written=st.sampled_from(WRITTEN),
        index=st.integers(0, 1),
    )
    def stranger_is_bound(self, pick: int, template: str, written: str, index: int) -> None:
        name, uid = self.new_name()
        self.bind_by_hand(self.world.pods.create(others(template, name, uid)), pick, written, index)

    @happens(
        2,
        lambda self: self.pods(assigned=False, ours=True),
        pick=PICK,
        written=st.sampled_from(WRITTEN),
        index=st.integers(0, 1),
    )
    def pod_of_ours_is_bound_by_another(self, pick: int, written: str, index: int) -> None:
        waiting = [pod for pod in self.pods(assigned=False, ours=True) if _may_be_bound(pod)]
        if waiting and self.plans:
            self.bind_by_hand(nth(waiting, pick), pick, written, index)

    # In a cluster where nothing goes wrong, a place that comes up is taken at once

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
        self.pass_time(0.1)
        engine, profile = self.process.engine, self.process.cycle.profile
        if self.process.service.dispatch.in_flight >= self.configuration.max_binds_in_flight:
            return
        for wire in self.process.wire.told["pods"]:
            state = engine.queue.state(wire.metadata.uid)
            # Who is held back is awake: its namespace may send no more for now. Who backs off has been refused.
            if state not in {None, PodState.GATED, PodState.THROTTLED, PodState.IN_FLIGHT, PodState.BACKING_OFF}:
                pod = READER.read(wire)
                with engine.nominations.seen_by(pod):
                    place = decision(profile, engine.tables, pod, 0)
                assert not isinstance(place, Placement), f"{place} is free, and the pod is {state}"

    # The parts of the rules

    def new_name(self) -> tuple[str, str]:
        """A free name, which an earlier pod may have had, and a uid that no pod ever had."""
        self.made += 1
        taken = {pod.metadata.name for pod in self.world.pods}
        free = next(f"p{n}" for n in range(self.made) if f"p{n}" not in taken)
        return free, f"uid-{self.made}"

    def bind_by_hand(self, pod: objects.PodObject, pick: int, written: str, index: int) -> None:
        plan = nth(list(self.plans.values()), pick)
        units = READER.read(pod).template.gpu_units
        meta = pod.metadata
        self.world.pods.bind(meta.namespace, meta.name, plan.name, annotations(written, units, plan, index))

    def update(self, pod: objects.PodObject, change: object) -> None:
        self.world.pods.update(pod.metadata.namespace, pod.metadata.name, change)  # type: ignore[arg-type]

    def annotate(self, pod: objects.PodObject, more: dict[str, str]) -> None:
        written = {**(pod.metadata.annotations or {}), **more}
        self.update(pod, lambda old: replace(old, metadata=replace(old.metadata, annotations=written)))

    def being_bound(self) -> list[objects.PodObject]:
        state = self.process.engine.queue.state
        waiting = [pod for pod in self.pods(assigned=False, ours=True) if not pod.metadata.deletion_timestamp]
        return [pod for pod in waiting if state(pod.metadata.uid) is PodState.IN_FLIGHT]

    def gated(self) -> list[objects.PodObject]:
        return [pod for pod in self.pods(assigned=False, ours=True) if pod.spec.scheduling_gates]

    def terminating(self) -> list[objects.PodObject]:
        return [pod for pod in self.world.pods if pod.metadata.deletion_timestamp]


def _may_be_bound(pod: objects.PodObject) -> bool:
    return not (pod.spec.scheduling_gates or pod.metadata.deletion_timestamp)
