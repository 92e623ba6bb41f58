"""The contract of `port.Cluster`, kept by the cluster in memory."""

from collections.abc import Mapping

import pytest
from msgspec.structs import replace

from scheduler.kube import objects
from scheduler.kube.defaults import merge_patched
from scheduler.kube.port import CLAIMS, VOLUMES
from scheduler.kube.storage import PersistentVolume, PersistentVolumeClaim
from scheduler.testing.cluster.cluster import MemoryCluster
from scheduler.testing.cluster.world import World
from tests.contract.binding_contract import BindingContract
from tests.contract.event_contract import EventContract
from tests.contract.lease_contract import LeaseContract
from tests.contract.status_contract import StatusContract
from tests.contract.under_test import ClusterUnderTest, Manifest, SeenEvent
from tests.contract.volume_contract import VolumeContract
from tests.contract.watch_contract import WatchContract


class MemoryOperator:
    """Satisfies `Operator`."""

    def __init__(self, world: World) -> None:
        self._world = world

    async def create_node(self, manifest: Manifest) -> None:
        self._world.nodes.add(manifest)

    async def label_node(self, name: str, labels: Mapping[str, str | None]) -> None:
        self._world.nodes.patch(name, labels=labels)

    async def delete_node(self, name: str) -> None:
        self._world.nodes.delete(name)

    async def create_pod(self, manifest: Manifest) -> objects.PodObject:
        return self._world.pods.create(manifest)

    async def annotate_pod(self, namespace: str, name: str, annotations: Mapping[str, str | None]) -> None:
        def annotated(pod: objects.PodObject) -> objects.PodObject:
            merged = merge_patched(pod.metadata.annotations or {}, annotations)
            return replace(pod, metadata=replace(pod.metadata, annotations=merged))

        self._world.pods.update(namespace, name, annotated)

    async def set_phase(self, namespace: str, name: str, phase: str, reason: str = "") -> None:
        self._world.pods.set_phase(namespace, name, phase, reason=reason)

    async def delete_pod(self, namespace: str, name: str, grace_s: int = 30) -> None:
        self._world.pods.delete(namespace, name, grace_s=grace_s)

    async def release_pod(self, namespace: str, name: str) -> None:
        self._world.pods.release(namespace, name)

    async def set_config_map(self, namespace: str, name: str, data: Mapping[str, str]) -> None:
        config_maps = self._world.config_maps
        if config_maps.collection.find(namespace, name) is None:
            config_maps.create(namespace, name, data)
        else:
            config_maps.update(namespace, name, data)

    async def create_claim(self, manifest: Manifest) -> PersistentVolumeClaim:
        return self._world.storage.create(CLAIMS, manifest)

    async def create_volume(self, manifest: Manifest) -> PersistentVolume:
        return self._world.storage.create(VOLUMES, manifest)

    async def event(self, namespace: str, name: str) -> SeenEvent | None:
        for stored in self._world.events:
            if (stored.record.namespace or "default", stored.record.name) == (namespace, name):
                count = stored.series.count if stored.series else 0
                return SeenEvent(stored.record.reason, stored.record.note, stored.record.object_uid, count)
        return None


@pytest.fixture
def under_test() -> ClusterUnderTest:
    world = World(lambda: 1_800_000_000.0)
    world.namespaces.create("contract")
    return ClusterUnderTest(MemoryCluster(world), MemoryOperator(world), "contract")


class TestBinding(BindingContract):
    pass


class TestEvents(EventContract):
    pass


class TestLeases(LeaseContract):
    pass


class TestStatus(StatusContract):
    pass


class TestVolumes(VolumeContract):
    pass


class TestWatching(WatchContract):
    pass
