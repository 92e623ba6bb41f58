"""Random histories of claims, volumes, classes, pods and restarts.

No volume is given to two, no pod is where its volumes are not, and none sleeps that fits.
"""

import asyncio
from collections import Counter
from contextlib import suppress
from random import Random
from typing import TYPE_CHECKING

import pytest

from scheduler.kube import objects
from scheduler.kube.port import CLAIMS, STORAGE_CLASSES, VOLUMES, ApiError, ApiNotFound
from scheduler.pods.gpu_request import ResourceNames
from scheduler.pods.pod import PodReader
from scheduler.queue.entry import PodState
from scheduler.state.volumes.reach import of_node_selector
from scheduler.testing.cluster.faults import Effect, Fail, Refuse, Silence, Verb
from tests.support.builders import wire_node
from tests.support.volumes import HOSTNAME, ZONE, affinity, claim, storage_class, volume, with_claims
from tests.support.without_cache import evaluation
from tests.system.looking import cluster, comes
from tests.system.process import Process, in_virtual_time, start
from tests.system.volume_controller import VolumeController
from tests.system.wire import Posts, Wire

if TYPE_CHECKING:
    from collections.abc import Callable

STEPS = 60
NODES = ("a", "b", "c")
NAMESPACES = ("default", "other")
IN_ZONE_1 = [{"matchLabelExpressions": [{"key": ZONE, "values": ["z1"]}]}]
CLASSES = {
    "local": storage_class("local", provisioner="kubernetes.io/no-provisioner"),
    "fast": storage_class("fast", allowedTopologies=IN_ZONE_1),
    "now": storage_class("now", waits=False),
    "later": storage_class("later"),
}
FAULTS = (Fail(500), Fail(500, Effect.AT_ONCE), Refuse(403), Silence(Effect.AT_ONCE, after_s=0.0))


class History:
    """A world with three nodes and storage classes that come and go, and the process that schedules it."""

    def __init__(self, seed: int) -> None:
        self.rng = Random(seed)  # noqa: S311 - repeatable
        self.of = cluster()
        self.controller = VolumeController(self.of)
        self.made = 0
        for name in ("local", "fast", "now"):
            self.of.storage.create(STORAGE_CLASSES, CLASSES[name])
        for namespace in NAMESPACES:
            self.of.namespaces.ensure(namespace)
        for number, name in enumerate(NODES):
            self.of.nodes.add(wire_node(name, [16], labels={ZONE: f"z{number % 2}"}))
        self.posts = Posts(self.of)
        self.process: Process = start(Wire(self.of, self.posts))
        self._happenings: list[Callable[[], None] | None] = [
            *(2 * [self._claim_comes]),
            *(2 * [self._volume_comes]),
            *(3 * [self._pod_comes]),
            self._replicas_come,
            self._delete_a_pod,
            self._controller_acts,
            self._provisioner_rejects,
            self._writes_fail,
            *(2 * [self._bind_one_of_an_immediate_class]),
            self._class_comes_or_goes,
            None,
        ]

    async def step(self) -> None:
        """Something happens."""
        self.made += 1
        what = self.rng.choice(self._happenings)
        if what is None:
            await self._restart()
        else:
            what()
        await asyncio.sleep(self.rng.choice([0.02, 0.02, 1.0, 30.0]))
        self.check_that_none_sleeps()

    async def settle(self) -> None:
        """Nothing goes wrong any more, and the controller does what there is to do, well before the leftover time."""
        self.process.wire.faults.clear()
        for _ in range(6):
            await asyncio.sleep(10.0)
            self.controller.bind_kept()
            self.controller.provision()
        await asyncio.sleep(2.0)

    def check_that_none_sleeps(self) -> None:
        """A pod that waits for something to change fits nowhere."""
        engine, metrics = self.process.engine, self.process.metrics.registry
        assert metrics.get_sample_value("gpushare_scheduler_lost_wakeups_total") == 0
        if self.process.service.leads() and not engine.queue.has_hints and not engine.tables.cluster_events:
            for entry in engine.queue:
                if entry.state is PodState.UNSCHEDULABLE:
                    fits = self.process.cycle.fits_on(entry.pod, None)[0]
                    assert not fits, f"{entry.pod.key} sleeps, and fits"

    def check(self) -> None:
        """No volume is two claims'; pods are where their volumes can be used; who waits fits nowhere."""
        volumes = {found.metadata.name: found for found in self.of.storage.of(VOLUMES)}
        claims = {(one.metadata.namespace, one.metadata.name): one for one in self.of.storage.of(CLAIMS)}
        named = Counter(found.spec.volume_name for found in claims.values() if found.spec.volume_name)
        assert [name for name, count in named.items() if count > 1] == []
        for pod in self.of.pods:
            used = [v["persistentVolumeClaim"].claim_name for v in pod.spec.volumes if "persistentVolumeClaim" in v]  # type: ignore[union-attr]
            if not pod.spec.node_name:
                self._check_waits(pod)
                continue
            labels = self.of.nodes.collection.existing("", pod.spec.node_name).metadata.labels or {}
            for name in used:
                volume_name = claims[pod.metadata.namespace, name].spec.volume_name
                affinity_of = volumes[volume_name].spec.node_affinity
                required = None if affinity_of is None else affinity_of.required
                usable = required is None or of_node_selector(required).accepts(labels)
                assert usable, f"{pod.metadata.name} on {pod.spec.node_name} cannot use {name}"

    def _check_waits(self, wire: objects.PodObject) -> None:
        cycle, engine = self.process.cycle, self.process.engine
        pod = PodReader(ResourceNames()).read(wire)
        if engine.tables.record(pod.key.uid) is not None:
            # It has a place, and waits for its volumes, which a controller would have to give it.
            return
        runtime, judged = evaluation(cycle.profile, engine.tables, pod)
        assert judged.unschedulable or not runtime.feasible(pod, judged).any(), f"{pod.key} waits, and fits"

    def _claim_comes(self) -> None:
        self.controller.comes(self._claim(f"c{self.made}"))

    def _volume_comes(self) -> None:
        self.controller.comes(self._volume(f"pv{self.made}"))

    def _controller_acts(self) -> None:
        self.controller.bind_kept()
        self.controller.provision()

    def _provisioner_rejects(self) -> None:
        with suppress(ApiError, IndexError):
            namespace, name = self.rng.choice(self._claims())
            self.controller.reject(name, namespace)

    def _writes_fail(self) -> None:
        verb = self.rng.choice([Verb.BIND_VOLUME, Verb.SELECT_NODE])
        self.process.wire.faults.add(verb, self.rng.choice(FAULTS), count=2)

    def _pod_comes(self) -> None:
        rng, namespace = self.rng, self.rng.choice(NAMESPACES)
        claims = [name for of, name in self._claims() if of == namespace] or ["nothing"]
        used = rng.sample(claims, min(len(claims), rng.choice([1, 1, 2])))
        if rng.random() < 0.2:
            # It may be made later, here or in the other namespace.
            used = [f"c{self.made + rng.randrange(1, 6)}"]
        comes(self.of, f"p{self.made}", 1, namespace=namespace, **with_claims(*used))

    def _replicas_come(self) -> None:
        """Of a StatefulSet: alike but for their claims."""
        class_name, namespace = self.rng.choice(["now", "later", "local"]), self.rng.choice(NAMESPACES)
        for number in range(3):
            name = f"s{self.made}-{number}"
            made = claim(name, class_name=class_name)
            made["metadata"]["namespace"] = namespace
            self.controller.comes(made)
            comes(self.of, name, 1, namespace=namespace, **with_claims(name))

    def _bind_one_of_an_immediate_class(self) -> None:
        waiting = [
            one
            for one in self.of.storage.of(CLAIMS)
            if one.spec.storage_class_name in {"now", "later"} and not one.spec.volume_name
        ]
        if waiting:
            one = self.rng.choice(waiting)
            self.controller.comes(volume(f"pv{self.made}", class_name=one.spec.storage_class_name or ""))
            self.controller.bind(one.metadata.name, f"pv{self.made}", one.metadata.namespace)

    def _class_comes_or_goes(self) -> None:
        name = self.rng.choice(["later", "now"])
        if self.of.storage.of(STORAGE_CLASSES).find("", name) is None:
            self.of.storage.create(STORAGE_CLASSES, CLASSES[name])
        else:
            self.of.storage.delete(STORAGE_CLASSES, "", name)

    def _claim(self, name: str) -> dict[str, object]:
        class_name = self.rng.choice(["local", "fast", "now", "later"])
        made = claim(name, class_name=class_name, size=self.rng.choice(["1Gi", "2Gi"]))
        made["metadata"]["namespace"] = self.rng.choice(NAMESPACES)
        return made

    def _volume(self, name: str) -> dict[str, object]:
        rng = self.rng
        where: dict[str, tuple[str, ...]] = rng.choice(
            [{HOSTNAME: (rng.choice(NODES),)}, {ZONE: ("z1",)}, {ZONE: ("z0",), HOSTNAME: ("a", "b")}]
        )
        made = volume(name, size=rng.choice(["1Gi", "2Gi", "4Gi"]), class_name="local", nodeAffinity=affinity(where))
        if rng.random() < 0.2 and (claims := self._claims()):
            namespace, claimed = rng.choice(claims)
            made["spec"]["claimRef"] = {"namespace": namespace, "name": claimed}
        return made

    def _claims(self) -> list[tuple[str, str]]:
        """Namespaces and names."""
        return sorted((found.metadata.namespace, found.metadata.name) for found in self.of.storage.of(CLAIMS))

    def _delete_a_pod(self) -> None:
        pods = sorted((pod.metadata.namespace, pod.metadata.name) for pod in self.of.pods)
        if pods:
            with suppress(ApiNotFound):
                self.of.pods.remove(*self.rng.choice(pods))

    async def _restart(self) -> None:
        await self.process.kill()
        self.posts.end_by(asyncio.get_running_loop().time())
        self.process = start(Wire(self.of, self.posts))


@pytest.mark.parametrize("seed", range(6))
@in_virtual_time
async def test_a_random_history_of_volumes(seed: int) -> None:
    history = History(seed)
    for _ in range(STEPS):
        await history.step()
    await history.settle()
    history.check()
    assert any(pod.spec.node_name for pod in history.of.pods)
    await history.process.kill()
