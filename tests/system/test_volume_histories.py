"""Random histories of claims, volumes, pods and restarts: no volume for two, no pod where its volumes are not."""

import asyncio
from collections import Counter
from contextlib import suppress
from random import Random

import pytest

from scheduler.kube.port import CLAIMS, STORAGE_CLASSES, VOLUMES, ApiError, ApiNotFound
from scheduler.pods.gpu_request import ResourceNames
from scheduler.pods.pod import PodReader
from scheduler.simulation.faults import Effect, Fail, Refuse, Silence, Verb
from scheduler.state.volumes.reach import of_node_selector
from tests.support.builders import wire_node
from tests.support.volumes import HOSTNAME, ZONE, affinity, claim, storage_class, volume, with_claims
from tests.support.without_cache import evaluation
from tests.system.looking import cluster, comes, node_of
from tests.system.process import Process, in_virtual_time, start
from tests.system.volume_controller import VolumeController
from tests.system.wire import Posts, Wire

STEPS = 60
NODES = ("a", "b", "c")
FAULTS = (Fail(500), Fail(500, Effect.AT_ONCE), Refuse(403), Silence(Effect.AT_ONCE, after_s=0.0))


class History:
    """A world with three nodes and two storage classes, and the process that schedules it."""

    def __init__(self, seed: int) -> None:
        self.rng = Random(seed)  # noqa: S311 - repeatable
        self.of = cluster()
        self.controller = VolumeController(self.of)
        self.made = 0
        self.of.storage.create(STORAGE_CLASSES, storage_class("local", provisioner="kubernetes.io/no-provisioner"))
        topologies = [{"matchLabelExpressions": [{"key": ZONE, "values": ["z1"]}]}]
        self.of.storage.create(STORAGE_CLASSES, storage_class("fast", allowedTopologies=topologies))
        for number, name in enumerate(NODES):
            self.of.nodes.add(wire_node(name, [16], labels={ZONE: f"z{number % 2}"}))
        self.posts = Posts(self.of)
        self.process: Process = start(Wire(self.of, self.posts))

    async def step(self) -> None:
        """Something happens."""
        rng = self.rng
        self.made += 1
        match rng.randrange(12):
            case 0 | 1:
                self.controller.comes(self._claim(f"c{self.made}"))
            case 2 | 3:
                self.controller.comes(self._volume(f"pv{self.made}"))
            case 4 | 5 | 6:
                claims = self._claims() or ["nothing"]
                used = rng.sample(claims, min(len(claims), rng.choice([1, 1, 2])))
                comes(self.of, f"p{self.made}", 1, **with_claims(*used))
            case 7:
                self._delete_a_pod()
            case 8:
                self.controller.bind_kept()
                self.controller.provision()
            case 9:
                with suppress(ApiError, IndexError):
                    self.controller.reject(rng.choice(self._claims()))
            case 10:
                verb = rng.choice([Verb.GIVE_VOLUME, Verb.SELECT_NODE])
                self.process.wire.faults.add(verb, rng.choice(FAULTS), count=2)
            case 11:
                await self._restart()
        await asyncio.sleep(rng.choice([0.0, 0.01, 1.0, 30.0]))

    async def settle(self) -> None:
        """Nothing goes wrong any more, and the controller does what there is to do."""
        self.process.wire.faults.clear()
        for _ in range(20):
            await asyncio.sleep(20.0)
            self.controller.bind_kept()
            self.controller.provision()

    def check(self) -> None:
        """No volume is two claims'; pods are where their volumes can be used; who waits fits nowhere."""
        volumes = {found.metadata.name: found for found in self.of.storage.of(VOLUMES)}
        claims = {found.metadata.name: found for found in self.of.storage.of(CLAIMS)}
        named = Counter(found.spec.volume_name for found in claims.values() if found.spec.volume_name)
        assert [name for name, count in named.items() if count > 1] == []
        for pod in self.of.pods:
            used = [v["persistentVolumeClaim"].claim_name for v in pod.spec.volumes if "persistentVolumeClaim" in v]  # type: ignore[union-attr]
            if not pod.spec.node_name:
                self._check_waits(pod.metadata.name)
                continue
            labels = self.of.nodes.collection.existing("", pod.spec.node_name).metadata.labels or {}
            for name in used:
                affinity_of = volumes[claims[name].spec.volume_name].spec.node_affinity
                required = None if affinity_of is None else affinity_of.required
                usable = required is None or of_node_selector(required).accepts(labels)
                assert usable, f"{pod.metadata.name} on {pod.spec.node_name} cannot use {name}"

    def _check_waits(self, name: str) -> None:
        cycle, engine = self.process.cycle, self.process.engine
        pod = PodReader(ResourceNames()).read(self.of.pods.collection.existing("default", name))
        if engine.tables.record(pod.key.uid) is not None:
            # It has a place, and waits for its volumes, which a controller would have to give it.
            return
        runtime, judged = evaluation(cycle.profile, engine.tables, pod)
        assert judged.never or not runtime.feasible(pod, judged).any(), f"{name} waits, and fits"

    def _claim(self, name: str) -> dict[str, object]:
        return claim(name, class_name=self.rng.choice(["local", "fast"]), size=self.rng.choice(["1Gi", "2Gi"]))

    def _volume(self, name: str) -> dict[str, object]:
        rng = self.rng
        where: dict[str, tuple[str, ...]] = rng.choice(
            [{HOSTNAME: (rng.choice(NODES),)}, {ZONE: ("z1",)}, {ZONE: ("z0",), HOSTNAME: ("a", "b")}]
        )
        made = volume(name, size=rng.choice(["1Gi", "2Gi", "4Gi"]), class_name="local", nodeAffinity=affinity(where))
        if rng.random() < 0.2 and (claims := self._claims()):
            made["spec"]["claimRef"] = {"namespace": "default", "name": rng.choice(claims)}
        return made

    def _claims(self) -> list[str]:
        return sorted(found.metadata.name for found in self.of.storage.of(CLAIMS))

    def _delete_a_pod(self) -> None:
        pods = sorted(pod.metadata.name for pod in self.of.pods)
        if pods:
            with suppress(ApiNotFound):
                self.of.pods.remove("default", self.rng.choice(pods))

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
    assert any(node_of(history.of, pod.metadata.name) for pod in history.of.pods)
    await history.process.kill()
