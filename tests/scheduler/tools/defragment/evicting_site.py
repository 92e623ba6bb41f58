"""A cluster in memory whose pods are moved: with a controller that replaces them, and a scheduler."""

import asyncio
from collections.abc import Callable, Mapping
from typing import Any

from msgspec.structs import replace

from config.protocol import names
from config.settings.scheduler import SchedulerConfiguration
from scheduler.kube.objects import PodObject
from scheduler.kube.port import ApiConflict, ApiFailed, PodKey
from scheduler.pods.pod import PodReader
from scheduler.testing.cluster.cluster import MemoryCluster
from scheduler.testing.cluster.world import World
from scheduler.tools.cli.asking import cluster_view
from scheduler.tools.cli.manifests import Manifest
from scheduler.tools.defragment.evicting import Planner, Rebalancing
from scheduler.tools.defragment.planning import MovePlan
from tests.support.builders import manifest, wire_pod
from tests.support.explaining import world
from tests.support.placing import on_card

CONFIGURATION = SchedulerConfiguration()


class Operated(MemoryCluster):
    """A cluster with a controller that replaces what is evicted, and a scheduler that places it.

    before_eviction: called with the pod's name. places: whether the scheduler is there.
    """

    def __init__(self, of: World, *, places: bool = True) -> None:
        super().__init__(of)
        self.places = places
        self.before_eviction: Callable[[str], None] = lambda _: None
        self.cordons: list[tuple[str, str | None]] = []
        self.refuses_uncordon = False
        self.evicted: list[str] = []

    async def annotate_node(self, name: str, annotations: Mapping[str, str | None], version: str) -> None:
        value = annotations[names.CORDON]
        if self.refuses_uncordon and not value:
            message = "away"
            raise ApiFailed(message, 500)
        node = self.world.nodes.collection.existing("", name)
        if node.metadata.resource_version != version:
            message = "changed"
            raise ApiConflict(message, 409)
        self.cordons.append((name, value))
        written = {**(node.metadata.annotations or {}), names.CORDON: value or ""}
        self.world.nodes.collection.replace(replace(node, metadata=replace(node.metadata, annotations=written)))

    async def evict_pod(self, pod: PodKey) -> None:
        self.before_eviction(pod.name)
        found = self.world.pods.collection.existing(pod.namespace, pod.name)
        assert found.metadata.uid == pod.uid
        self.evicted.append(pod.name)
        self.world.pods.remove(pod.namespace, pod.name)
        again = replace(found.metadata, name=f"{pod.name}-again", uid="", annotations={}, resource_version="")
        made = self.world.pods.create(PodObject(again, replace(found.spec, node_name="")))
        if self.places:
            await self._place(made)

    async def _place(self, wire: PodObject) -> None:
        of = await cluster_view(self, CONFIGURATION)
        pod = PodReader(of.reader.resources).read(wire)
        with of.reading.engine.queries.placing() as placing:
            place = placing.place(pod)
        if place is not None:
            self.world.pods.bind("default", wire.metadata.name, place.node, place.annotations)


def waiting(name: str, units: int, **options: Any) -> dict[str, Any]:  # noqa: ANN401 - as `manifest`
    """A pod of the ReplicaSet, to be created."""
    made: dict[str, Any] = manifest(name, units, **options)
    owner = {"kind": "ReplicaSet", "name": "web", "uid": "uid-of-web", "controller": True}
    made["metadata"]["ownerReferences"] = [owner]
    return made


def runs(of: World, name: str, units: int, node: str, card: int, **options: Any) -> None:  # noqa: ANN401 - as `manifest`
    """A pod of the ReplicaSet on a card."""
    of.pods.create(waiting(name, units, **options))
    of.pods.bind("default", name, node, on_card(card, units))


def half_used() -> World:
    """Three nodes; a pod of two whole cards fits after two moves."""
    of = world(a=[8, 8], b=[8, 8], c=[8])
    for number, (node, card) in enumerate((("a", 0), ("a", 1), ("b", 0), ("b", 1), ("c", 0))):
        runs(of, f"p{number}", 4, node, card)
    return of


def rebalance(
    cluster: Operated,
    asks: PodObject | None = None,
    *,
    timeout_s: float = 5.0,
    most_moves: int = 10,
    said: list[str] | None = None,
) -> tuple[bool, list[str], MovePlan]:
    """(whether all of it has come, what was said, the plan that was shown)."""
    asks = wire_pod("asks", 16, labels={names.GPU_COUNT: "2"}) if asks is None else asks
    said, shown = [] if said is None else said, list[MovePlan]()
    planner = Planner(CONFIGURATION, Manifest(asks, ""), most_moves=most_moves, max_priority=None)
    rebalancing = Rebalancing(cluster, CONFIGURATION, planner, timeout_s, said.append)
    done = asyncio.run(rebalancing.run(shown.append))
    return done, said, shown[0]


def cordons(cluster: Operated) -> list[str]:
    """What nodes say at the end."""
    return [(node.metadata.annotations or {}).get(names.CORDON, "") for node in cluster.world.nodes.collection]
