"""Others on the same cluster: clients that replace pods and nodes by others of their names, or edit the Lease.

They go on while the API server is away, and come back to what they have begun.
"""

import asyncio
import random
from dataclasses import dataclass, field
from typing import Final

from e2e.fire import reading, workload
from e2e.fire.reading import Json
from e2e.fire.site import AT_ONCE, NODES, Site, tolerant

_NAMES: Final = 16
_LEASE: Final = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases/gpushare-scheduler"
# None: it is deleted.
_LEASE_EDITS: Final[tuple[Json | None, ...]] = (
    None,
    {"holderIdentity": ""},
    {"holderIdentity": "somebody-else"},
    {"leaseDurationSeconds": 1},
)
_FINISH: Final = ("Succeeded", "Failed")
_AGAIN_AFTER_S: Final = 0.1


@dataclass(slots=True)
class Others:
    """generations: of each node's cards; a node that was replaced by another machine has other cards."""

    site: Site
    rng: random.Random
    generations: dict[str, int] = field(default_factory=dict)

    async def replace_pod(self) -> None:
        """Delete a pod and create another one of its name; or delete it in two steps, or let it end before that."""
        name = f"again-{self.rng.randrange(_NAMES)}"
        at = f"{self.site.pods_path}/{name}"
        match self.rng.randrange(4):
            case 0:
                await tolerant(self.site.admin.patch(f"{at}/status", {"status": {"phase": self.rng.choice(_FINISH)}}))
            case 1:
                await tolerant(self.site.admin.delete(at))
        await asyncio.sleep(self.rng.uniform(0.0, 0.05))
        await tolerant(self.site.admin.delete(at, AT_ONCE))
        await tolerant(self.site.admin.post(self.site.pods_path, workload.pod(name, self.rng)))

    async def replace_node(self) -> None:
        """Delete a node and create one of its name: the same machine with its pods, or another one without them."""
        name = self.rng.choice(sorted(self.site.witness.nodes))
        other, after_s = self.rng.random() < 1 / 2, self.rng.uniform(0.0, 0.3)
        generation = self.generations.get(name, 0) + other
        self.generations[name] = generation
        self.site.say(f"{name} is deleted and comes back {'with other cards' if other else 'with the same cards'}")
        await self._deleted(name)
        await asyncio.sleep(after_s)
        if other and self.rng.random() < 1 / 2:
            await self._created(name, generation)
            await self._collect(name)
        else:
            await self._collect(name) if other else None
            await self._created(name, generation)

    async def _deleted(self, name: str) -> None:
        while name in self.site.witness.nodes:
            await tolerant(self.site.admin.delete(f"{NODES}/{name}"))
            await asyncio.sleep(_AGAIN_AFTER_S)

    async def _created(self, name: str, generation: int) -> None:
        while name not in self.site.witness.nodes:
            await tolerant(self.site.admin.post(NODES, workload.node(name, generation)))
            await asyncio.sleep(_AGAIN_AFTER_S)

    async def _collect(self, node: str) -> None:
        """As the pod garbage collector of Kubernetes does with the pods of a node that is gone."""
        pods = [one.pod for one in self.site.witness.pods.values() if one.node == node and not one.gone]
        for name in [pod["metadata"]["name"] for pod in pods if reading.is_ours(pod)]:
            await tolerant(self.site.admin.delete(f"{self.site.pods_path}/{name}", AT_ONCE))

    async def meddle_with_lease(self) -> None:
        """Delete the Lease, take its holder away, make another one its holder, or shorten it."""
        edit = self.rng.choice(_LEASE_EDITS)
        self.site.say(f"the Lease is {'deleted' if edit is None else f'edited: {edit}'}")
        if edit is None:
            await tolerant(self.site.admin.delete(_LEASE))
        else:
            await tolerant(self.site.admin.patch(_LEASE, {"spec": edit}))

    async def cpu_pods(self, count: int, of: str) -> None:
        """Pods for kube-scheduler, which has the same nodes."""
        for number in range(count):
            await tolerant(self.site.admin.post(self.site.pods_path, workload.cpu_pod(f"{of}-{number}")))
