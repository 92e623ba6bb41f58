"""What an attack is, and what an attacker can do: write objects of one namespace, as fast as a server takes them."""

import asyncio
from collections.abc import Callable, Coroutine, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

import msgspec
from msgspec.structs import replace

from scheduler.kube import objects
from scheduler.kube.port import CLAIMS
from scheduler.testing.cluster.faults import RequestFault, Rule, Verb
from scheduler.testing.cluster.world import World
from tests.support.builders import manifest
from tests.support.volumes import claim
from tests.tenants.cluster import SLOW, Connection

NAMESPACE: Final = "hostile"
# What one user's clients get through to an API server and its etcd.
WRITES_PER_S: Final = 500.0
BYTES_PER_S: Final = 20e6
_BREATH_S: Final = 0.01

Manifest = dict[str, object]


class Tenant:
    """Everything that it makes is in its namespace; `leave` takes all of it away."""

    def __init__(self, world: World, connection: Connection, scale: float) -> None:
        """scale: of the numbers of an attack, 1 as the issue of tests says them."""
        self.world = world
        self._connection = connection
        self._scale = scale
        self._nodes = [node.metadata.name for node in world.nodes]
        self._rules: list[Rule] = []
        self._behind_s = 0.0

    def many(self, number: int) -> int:
        """So many, scaled."""
        return max(1, round(number * self._scale))

    def pods(self) -> list[objects.PodObject]:
        """Those that are there."""
        return [pod for pod in self.world.pods if pod.metadata.namespace == NAMESPACE]

    def node(self, number: int) -> str:
        """The name of a node; round robin."""
        return self._nodes[number % len(self._nodes)]

    async def waits(self, seconds: float) -> None:
        """Do nothing for so long."""
        await asyncio.sleep(seconds)

    async def labels_its_namespace(self, labels: Mapping[str, str]) -> None:
        """One write."""
        self.world.namespaces.label(NAMESPACE, labels)
        await self._paced()

    async def creates(self, manifests: Iterable[Manifest]) -> None:
        """One after the other."""
        for made in manifests:
            await self._paced(self.world.pods.create(made))

    async def updates(self, name: str, change: Callable[[objects.PodObject], objects.PodObject]) -> None:
        """One write."""
        await self._paced(self.world.pods.update(NAMESPACE, name, change))

    async def claims(self, names: Iterable[str]) -> None:
        """Claims of the class whose provisioner never answers, one after the other."""
        for name in names:
            made = claim(name, class_name=SLOW)
            made["metadata"]["namespace"] = NAMESPACE
            self.world.storage.create(CLAIMS, made)
            await self._paced()

    async def annotates_claim(self, name: str, annotations: Mapping[str, str]) -> None:
        """One write."""
        self.world.storage.annotate_claim(NAMESPACE, name, annotations)
        await self._paced()

    async def protects(self, name: str, labels: Mapping[str, str], *, allowed: int = 0) -> None:
        """A PodDisruptionBudget for its pods with these labels."""
        self.world.disruption_budgets.create(NAMESPACE, name, labels, allowed)
        await self._paced()

    async def allows(self, name: str, disruptions: int) -> None:
        """What the controller writes into a budget, as the tenant's pods become ready or not."""
        self.world.disruption_budgets.allow(NAMESPACE, name, disruptions)
        await self._paced()

    async def deletes(self, name: str, *, grace_s: float = 0.0) -> None:
        """Ask for the end of a pod."""
        self.world.pods.delete(NAMESPACE, name, grace_s=grace_s)
        await self._paced()

    def bindings_meet(self, fault: RequestFault) -> None:
        """What the tenant's webhook or a policy makes of each binding of its pods."""
        ours = f"{NAMESPACE}/"
        self._rules.append(
            self._connection.faults.add(Verb.BIND, fault, when=lambda request: request.about.startswith(ours))
        )

    def leave(self) -> None:
        """Nothing is left of it."""
        for pod in self.pods():
            self.world.pods.remove(NAMESPACE, pod.metadata.name)
        self.world.storage.delete_all(NAMESPACE)
        for budget in list(self.world.disruption_budgets.collection):
            self.world.disruption_budgets.delete(NAMESPACE, budget.metadata.name)
        for rule in self._rules:
            self._connection.faults.remove(rule)
        self._rules.clear()

    async def _paced(self, written: objects.PodObject | None = None) -> None:
        self._behind_s += 1 / WRITES_PER_S
        if written is not None:
            self._behind_s += len(msgspec.json.encode(written)) / BYTES_PER_S
        if self._behind_s >= _BREATH_S:
            waits_s, self._behind_s = self._behind_s, 0.0
            await asyncio.sleep(waits_s)


@dataclass(frozen=True, slots=True, kw_only=True)
class Attack:
    """name: what the tenant does. server: what a real API server says to it, "" when it takes it.

    scale: of its numbers, so that it shows and the suite stays quick.
    """

    name: str
    acts: Callable[[Tenant], Coroutine[Any, Any, None]]
    server: str = ""
    scale: float = 0.1


def pod(name: str, units: int | list[int] = 1, **options: Any) -> Manifest:  # noqa: ANN401 - as `manifest`
    """A pod of the tenant."""
    return manifest(name, units, namespace=NAMESPACE, **options)


def with_metadata(found: objects.PodObject, **fields: Any) -> objects.PodObject:  # noqa: ANN401 - of ObjectMeta
    """The pod with other labels or annotations."""
    return replace(found, metadata=replace(found.metadata, **fields))
