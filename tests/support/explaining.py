"""Clusters in memory, and the answers of `explain` and `what-if` about them."""

import asyncio
from collections.abc import AsyncIterator

from config.protocol import names
from config.settings.scheduler import SchedulerConfiguration
from scheduler.kube.objects import Node, PodCondition
from scheduler.kube.port import ApiForbidden, Kind, PodKey, T, WatchEvent
from scheduler.pods.pod import DISRUPTION_TARGET, PREEMPTION_BY_SCHEDULER
from scheduler.testing.cluster.cluster import MemoryCluster
from scheduler.testing.cluster.world import World
from scheduler.tools.cli.asking import ClusterView, cluster_view
from scheduler.tools.explain.answers import Explanation, WhatIfAnswer
from scheduler.tools.kubectl.explaining import text
from tests.support.builders import manifest, wire_node

NOW_S = 1_800_000_000.0  # 2027-01-15T08:00:00Z


def world(*nodes: Node, **cards: list[int]) -> World:
    """Return a world. nodes: complete nodes. cards: more nodes, by the units of their cards."""
    of = World(lambda: NOW_S)
    for node in (*nodes, *(wire_node(name, units) for name, units in cards.items())):
        of.nodes.add(node)
    return of


def there(of: World, name: str, units: int, node: str, index: int, **options: object) -> None:
    """Create a pod on a card of a node."""
    of.pods.create(manifest(name, units, **options))  # type: ignore[arg-type]
    of.pods.bind("default", name, node, {names.MEM_IDX: str(index), names.UNIT_MIB: "1024"})


def waits(of: World, name: str, units: int = 0, **options: object) -> None:
    of.pods.create(manifest(name, units, **options))  # type: ignore[arg-type]


def preempts(of: World, name: str, units: int, node: str, *victims: str, **options: object) -> None:
    """Create a pod with a nomination, after the scheduler has deleted its victims, which are terminating."""
    waits(of, name, units, **options)
    of.pods.nominate(PodKey("default", name, f"uid-default-{name}"), node)
    for victim in victims:
        condition = PodCondition(DISRUPTION_TARGET, "True", PREEMPTION_BY_SCHEDULER)
        of.pods.set_condition(PodKey("default", victim, f"uid-default-{victim}"), condition)
        of.pods.delete("default", victim)


class Limited(MemoryCluster):
    """A cluster that forbids reading some kinds, and counts requests."""

    def __init__(self, of: World, *refused: str) -> None:
        super().__init__(of)
        self.refused = refused
        self.asked: list[str] = []

    async def watch(self, kind: Kind[T], since: str | None) -> AsyncIterator[list[WatchEvent[T]]]:
        self.asked.append(kind.name)
        if kind.name in self.refused:
            message = f"{kind.name} is forbidden"
            raise ApiForbidden(message, 403)
        async for batch in super().watch(kind, since):
            yield batch


def asked(of: World, *refused: str) -> ClusterView:
    """Read the cluster. refused: names of kinds that may not be read."""
    return asyncio.run(cluster_view(Limited(of, *refused), SchedulerConfiguration()))


def explained(of: World, name: str, node: str = "", refused: tuple[str, ...] = ()) -> Explanation:
    return asyncio.run(asked(of, *refused).explained("default", name, node))


def explained_new(of: World, name: str, units: int = 0, **options: object) -> Explanation:
    """Return the answer about a newly created pod that waits."""
    waits(of, name, units, **options)
    return explained(of, name)


def lines(answer: Explanation | WhatIfAnswer, width: int = 80) -> list[str]:
    return text(answer, width).splitlines()


def prose(answer: Explanation | WhatIfAnswer) -> str:
    """Return the text as one line."""
    return " ".join(text(answer, 80).split())
