"""What is seen of the node itself."""

import asyncio
import random
from collections.abc import AsyncIterator
from typing import Any, cast

from deviceplugin.node.watch import NodeWatch
from scheduler.kube import objects
from scheduler.kube.port import Changed, Cluster, Deleted, ListBegins, ListEnds


def node(runtime: str = "", uid: str = "1") -> objects.Node:
    info = objects.NodeInfo(runtime) if runtime else None
    return objects.Node(
        objects.ObjectMeta("n", uid=uid, resource_version="1"), status=objects.NodeStatus(node_info=info)
    )


class Shown:
    """An API server that shows these batches, and then nothing."""

    def __init__(self, *batches: list[Any]) -> None:
        self.batches = batches

    async def watch(self, _: object, __: object) -> AsyncIterator[list[Any]]:
        for batch in self.batches:
            yield batch
            await asyncio.sleep(0)
        await asyncio.Event().wait()


async def runtime_of(*batches: list[Any]) -> str:
    watch = NodeWatch(cast("Cluster", Shown(*batches)), "n", random.Random(0), lambda: 0.0)  # noqa: S311  (no secret)
    following = asyncio.create_task(watch.node(lambda _: None))
    try:
        return await asyncio.wait_for(watch.runtime_version(), 5)
    finally:
        following.cancel()


async def test_the_runtime_is_that_which_the_node_names() -> None:
    assert await runtime_of([ListBegins(), Changed(node("containerd://2.1.9")), ListEnds("1")]) == "containerd://2.1.9"


async def test_a_node_that_is_created_again_is_waited_for_until_its_kubelet_reports() -> None:
    listed = [ListBegins(), Changed(node("containerd://2.1.9")), ListEnds("1"), Deleted(node())]
    again = [Changed(node(uid="2"))], [Changed(node("containerd://2.2.0", uid="2"))]
    assert await runtime_of(listed, *again) == "containerd://2.2.0"
