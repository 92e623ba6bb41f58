"""What tests of preemption on the running service start with, and look at."""

import asyncio
from typing import Any

from scheduler.testing.cluster.world import World
from tests.system.looking import comes, node_of
from tests.system.process import A_MOMENT_S


async def runs(of: World, name: str, gpu_mem: int, priority: int = 0, **options: Any) -> None:  # noqa: ANN401 - as `manifest`
    """A pod comes, and its kubelet starts it."""
    comes(of, name, gpu_mem, priority=priority, **options)
    await asyncio.sleep(A_MOMENT_S)
    if node_of(of, name):
        of.pods.set_phase("default", name, "Running")


def is_going(of: World, name: str) -> bool:
    found = of.pods.find("default", name)
    return found is not None and bool(found.metadata.deletion_timestamp)


def nominated(of: World, name: str) -> str:
    return of.pods.collection.existing("default", name).status.nominated_node_name
