"""Random histories of claims, volumes, classes, pods and restarts, through the real service.

No volume is given to two, no pod is where its volumes are not, and none sleeps that fits.
"""

import asyncio
from collections import Counter
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import initialize

from scheduler.kube import objects
from scheduler.kube.port import CLAIMS, STORAGE_CLASSES, VOLUMES, ApiNotFound
from scheduler.state.volumes.reach import of_node_selector
from scheduler.testing.cluster.faults import Effect, Fail, Refuse, RequestFault, Silence, Verb
from tests.support.builders import READER, card
from tests.support.service.looking import comes
from tests.support.service.process import AT_ONCE
from tests.support.service.volume_controller import VolumeController
from tests.support.volumes import HOSTNAME, LOCAL, ZONE, affinity, claim, storage_class, volume, with_claims
from tests.support.without_cache import evaluation
from tests.system.histories.happening import PICK, happens, nth
from tests.system.histories.history import History
from tests.system.histories.node_plans import NodePlan
from tests.system.histories.test_random_histories import portion

# The first history of each portion is the simplest one that can be drawn.
HISTORIES = 5
STEPS = 60
NODES = ("a", "b", "c")
NAMESPACE = st.sampled_from(["default", "other"])
IN_ZONE_1 = [{"matchLabelExpressions": [{"key": ZONE, "values": ["z1"]}]}]
CLASSES = {
    "local": LOCAL,
    "fast": storage_class("fast", allowedTopologies=IN_ZONE_1),
    "now": storage_class("now", waits=False),
    "later": storage_class("later"),
}
PLACES = [*({HOSTNAME: (name,)} for name in NODES), {ZONE: ("z1",)}, {ZONE: ("z0",), HOSTNAME: ("a", "b")}]
FAULTS = (Fail(500), Fail(500, Effect.AT_ONCE), Refuse(403), Silence(Effect.AT_ONCE, after_s=0.0))


class VolumeHistories(History):
    """Three nodes, storage classes that come and go, and a controller that acts now and then."""

    @initialize()
    def begins(self) -> None:
        self.configuration = AT_ONCE
        self.controller = VolumeController(self.world)
        for name in ("local", "fast", "now"):
            self.world.storage.create(STORAGE_CLASSES, CLASSES[name])
        for number, name in enumerate(NODES):
            self.show(NodePlan(name, (card(0, 16, node=name),), labels={ZONE: f"z{number % 2}"}))
        self.run(self.begin_process())
        self.pass_time()

    @happens(6, class_name=st.sampled_from(sorted(CLASSES)), size=st.sampled_from(["1Gi", "2Gi"]), namespace=NAMESPACE)
    def claim_comes(self, class_name: str, size: str, namespace: str) -> None:
        self.controller.comes(_in(namespace, claim(f"c{self.new()}", class_name=class_name, size=size)))

    @happens(5, place=st.sampled_from(PLACES), size=st.sampled_from(["1Gi", "2Gi", "4Gi"]), kept=PICK)
    def volume_comes(self, place: dict[str, tuple[str, ...]], size: str, kept: int) -> None:
        """One of five is kept for a claim."""
        made = volume(f"pv{self.new()}", size=size, class_name="local", nodeAffinity=affinity(place))
        if kept % 5 == 0 and (claims := self.claims()):
            namespace, claimed = nth(claims, kept // 5)
            made["spec"]["claimRef"] = {"namespace": namespace, "name": claimed}
        self.controller.comes(made)

    @happens(9, namespace=NAMESPACE, picks=st.lists(PICK, min_size=1, max_size=2), later=st.integers(0, 24))
    def pod_comes(self, namespace: str, picks: list[int], later: int) -> None:
        """later: of one of five pods the claim may be made later, here or in the other namespace."""
        claims = [name for of, name in self.claims() if of == namespace] or ["nothing"]
        number = self.new()
        used = {nth(claims, pick) for pick in picks} if later >= 5 else {f"c{number + later + 1}"}
        comes(self.world, f"p{number}", 1, namespace=namespace, **with_claims(*sorted(used)))

    @happens(3, class_name=st.sampled_from(["later", "now", "local"]), namespace=NAMESPACE)
    def replicas_come(self, class_name: str, namespace: str) -> None:
        """Pods of a StatefulSet, alike but for their claims."""
        number = self.new()
        for name in (f"s{number}-{replica}" for replica in range(3)):
            self.controller.comes(_in(namespace, claim(name, class_name=class_name)))
            comes(self.world, name, 1, namespace=namespace, **with_claims(name))

    @happens(2, lambda self: len(self.world.pods), pick=PICK)
    def pod_is_deleted(self, pick: int) -> None:
        meta = nth(list(self.world.pods), pick).metadata
        self.world.pods.remove(meta.namespace, meta.name)

    @happens(4)
    def controller_acts(self) -> None:
        self.controller.bind_kept()
        self.controller.provision()

    @happens(1, lambda self: self.claims(), pick=PICK)
    def provisioner_rejects(self, pick: int) -> None:
        namespace, name = nth(self.claims(), pick)
        with suppress(ApiNotFound):
            self.controller.reject(name, namespace)

    @happens(1, verb=st.sampled_from([Verb.BIND_VOLUME, Verb.SELECT_NODE]), fault=st.sampled_from(FAULTS))
    def writes_fail(self, verb: Verb, fault: RequestFault) -> None:
        self.process.wire.faults.add(verb, fault, count=2)

    @happens(4, lambda self: self.unbound(), pick=PICK)
    def claim_of_an_immediate_class_is_bound(self, pick: int) -> None:
        one = nth(self.unbound(), pick)
        name = f"pv{self.new()}"
        self.controller.comes(volume(name, class_name=one.spec.storage_class_name or ""))
        self.controller.bind(one.metadata.name, name, one.metadata.namespace)

    @happens(1, name=st.sampled_from(["later", "now"]))
    def class_comes_or_goes(self, name: str) -> None:
        if self.world.storage.of(STORAGE_CLASSES).find("", name) is None:
            self.world.storage.create(STORAGE_CLASSES, CLASSES[name])
        else:
            self.world.storage.delete(STORAGE_CLASSES, "", name)

    @happens(1)
    def process_is_killed_and_another_started(self) -> None:
        self.run(self.process.kill())
        self.posts.end_by(self.loop.time())
        self.run(self.begin_process())

    @happens(6, seconds=st.sampled_from([1.0, 30.0]))
    def time_passes(self, seconds: float) -> None:
        self.pass_time(seconds)

    def new(self) -> int:
        self.made += 1
        return self.made

    def claims(self) -> list[tuple[str, str]]:
        """Namespaces and names."""
        return sorted((found.metadata.namespace, found.metadata.name) for found in self.world.storage.of(CLAIMS))

    def unbound(self) -> list[Any]:
        """Claims of classes that may bind at once."""
        claims = self.world.storage.of(CLAIMS)
        return [c for c in claims if c.spec.storage_class_name in {"now", "later"} and not c.spec.volume_name]

    def check_that_all_ends_well(self) -> None:
        """Nothing goes wrong any more, and the controller does what there is to do, well before the leftover time."""
        self.spare_requests()
        for _ in range(6):
            self.run(asyncio.sleep(10.0))
            self.controller_acts()
        self.pass_time(2.0)
        self.check_volumes()

    def check_volumes(self) -> None:
        """No volume is two claims'; pods are where their volumes can be used; a pod that waits fits nowhere."""
        volumes = {found.metadata.name: found for found in self.world.storage.of(VOLUMES)}
        claims = {(one.metadata.namespace, one.metadata.name): one for one in self.world.storage.of(CLAIMS)}
        named = Counter(found.spec.volume_name for found in claims.values() if found.spec.volume_name)
        assert [name for name, count in named.items() if count > 1] == []
        for pod in self.world.pods:
            used = [v["persistentVolumeClaim"].claim_name for v in pod.spec.volumes if "persistentVolumeClaim" in v]  # type: ignore[union-attr]
            if not pod.spec.node_name:
                self.check_waits(pod)
                continue
            labels = self.world.nodes.collection.existing("", pod.spec.node_name).metadata.labels or {}
            for name in used:
                affinity_of = volumes[claims[pod.metadata.namespace, name].spec.volume_name].spec.node_affinity
                required = None if affinity_of is None else affinity_of.required
                usable = required is None or of_node_selector(required).accepts(labels)
                assert usable, f"{pod.metadata.name} on {pod.spec.node_name} cannot use {name}"

    def check_waits(self, wire: objects.PodObject) -> None:
        """The pod fits nowhere, or has its place and waits for volumes that a controller would have to give it."""
        cycle, tables, pod = self.process.cycle, self.process.engine.tables, READER.read(wire)
        if tables.record(pod.key.uid) is None:
            runtime, judged = evaluation(cycle.profile, tables, pod)
            assert judged.unschedulable or not runtime.feasible(pod, judged).any(), f"{pod.key} waits, and fits"


def _in(namespace: str, made: dict[str, Any]) -> dict[str, Any]:
    return {**made, "metadata": {**made["metadata"], "namespace": namespace}}


@pytest.mark.parametrize("number", range(2))
def test_whatever_happens_to_volumes_no_two_pods_share_one_and_none_sleeps_that_fits(number: int) -> None:
    happened = portion(VolumeHistories, number, histories=HISTORIES, steps=STEPS)

    assert happened["bound"] >= 2 * HISTORIES
