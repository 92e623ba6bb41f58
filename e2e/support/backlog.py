"""A backlog of pods, nodes that can take them, and what has been seen of every pod."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from itertools import islice
from typing import Final

from e2e.bench import workload
from e2e.bench.race import ledger
from e2e.bench.race.ledger import Audit
from e2e.control_plane.admin import Admin
from e2e.control_plane.cluster import ControlPlane
from e2e.support.pod_history import PodHistory

# Pods are packed card by card: a scheduler that has forgotten the first 300 would fill the same cards again.
SIZE: Final = workload.Size(nodes=24, pods=1000, templates=50)
FIRST: Final = 300
# Eight cards of 79 units each: room for more than FIRST of the largest pods, and for fewer than all of the smallest.
_HALF: Final = 12
_NODES: Final = "/api/v1/nodes"
_EVERY_POD_ONCE: Final = Audit(
    placed=SIZE.pods, unannotated=0, misbooked=0, overcommitted_cards=0, overcommitted_nodes=0
)


@dataclass(frozen=True, slots=True)
class Backlog:
    """Pods that wait at `path`, and what has been seen of them."""

    cluster: ControlPlane
    admin: Admin
    path: str
    history: PodHistory

    async def until_bound(self, count: int, within_s: float = 60.0) -> None:
        """Return when so many pods have been seen with a node."""
        await self.history.until(lambda: len(self.history.bound_at_s) >= count, within_s=within_s)

    async def faults(self) -> list[str]:
        """[] when every pod was bound once, and what lies on the cards, recomputed from what there is, fits."""
        pods = await self.admin.items(self.path)
        audit = ledger.judged(await self.admin.items(_NODES), pods)
        return self.history.faults(pods) + [str(audit)] * (audit != _EVERY_POD_ONCE)

    async def make_nodes(self) -> None:
        """From now on they can be bound."""
        await self.make_half_of_the_nodes()
        await self.make_the_other_nodes()

    async def make_half_of_the_nodes(self) -> None:
        """From now on some can be bound, and not all, however late it is seen that the first of them are."""
        await self.admin.create_all(_NODES, islice(workload.nodes(SIZE), _HALF))

    async def make_the_other_nodes(self) -> None:
        """From now on the rest can be bound, too."""
        await self.admin.create_all(_NODES, islice(workload.nodes(SIZE), _HALF, None))


@asynccontextmanager
async def backlog_in(cluster: ControlPlane, admin: Admin, namespace: str) -> AsyncIterator[Backlog]:
    """The pods, followed until the end; there is no node yet."""
    path = f"/api/v1/namespaces/{namespace}/pods"
    await admin.create_all(path, workload.pods(SIZE))
    history = PodHistory(admin, path)
    following = asyncio.create_task(history.follow())
    yield Backlog(cluster, admin, path, history)
    following.cancel()
    await asyncio.wait({following})
    await admin.delete(_NODES)
