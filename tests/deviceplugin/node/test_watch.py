"""What is seen of the node itself, and since when nothing is."""

import asyncio
import itertools
import random
from collections.abc import AsyncIterator
from typing import Any, cast

from structlog.testing import capture_logs

from deviceplugin.node.watch import NodeWatch
from scheduler.kube import objects
from scheduler.kube.port import ApiSilent, Changed, Cluster, Deleted, ListBegins, ListEnds
from scheduler.process.clock import Clock
from tests.support.clocks.virtual_time import in_virtual_time


def node(runtime: str = "", uid: str = "1") -> objects.Node:
    info = objects.NodeInfo(runtime, "v1.36.3") if runtime else None
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


async def info_of(*batches: list[Any]) -> objects.NodeInfo:
    watch = NodeWatch(cast("Cluster", Shown(*batches)), "n", random.Random(0), Clock())  # noqa: S311  (no secret)
    following = asyncio.create_task(watch.node(lambda _: None))
    try:
        return await asyncio.wait_for(watch.node_info(), 5)
    finally:
        following.cancel()


async def test_runtime_and_kubelet_are_those_that_the_node_names() -> None:
    info = await info_of([ListBegins(), Changed(node("containerd://2.1.9")), ListEnds("1")])
    assert (info.container_runtime_version, info.kubelet_version) == ("containerd://2.1.9", "v1.36.3")


async def test_a_node_that_is_created_again_is_waited_for_until_its_kubelet_reports() -> None:
    listed = [ListBegins(), Changed(node("containerd://2.1.9")), ListEnds("1"), Deleted(node())]
    again = [Changed(node(uid="2"))], [Changed(node("containerd://2.2.0", uid="2"))]
    assert (await info_of(listed, *again)).container_runtime_version == "containerd://2.2.0"


class Refusing:
    """An API server that refuses every watch, for one reason after the other."""

    def __init__(self, *reasons: str) -> None:
        self.reasons = itertools.cycle(reasons)
        self.asked = 0

    async def watch(self, _: object, __: object) -> AsyncIterator[list[Any]]:
        self.asked += 1
        raise ApiSilent(next(self.reasons))
        yield []


@in_virtual_time
async def test_a_server_that_is_away_is_asked_every_few_seconds_and_logged_once_for_each_reason() -> None:
    server, now_s = Refusing("lost", "refused"), asyncio.get_running_loop().time
    watch = NodeWatch(cast("Cluster", server), "n", random.Random(0), Clock(now_s))  # noqa: S311  (no secret)
    with capture_logs() as lines:
        following = asyncio.create_task(watch.node(lambda _: None))
        await asyncio.sleep(600)
        following.cancel()

    assert [line["reason"] for line in lines] == ["lost", "refused"]
    assert 120 < server.asked < 300
    assert watch.contact.problem(30.0).startswith("the API server has not served nodes for 600 s: ")
