"""The pods of the node as the watch shows them."""

import asyncio

from deviceplugin.allocation.view import OwnPods, kind_of
from scheduler.kube import objects
from scheduler.kube.port import Changed, Deleted, ListBegins, ListEnds


def pod(uid: str) -> objects.PodObject:
    return objects.PodObject(objects.ObjectMeta(f"name-{uid}", uid=uid))


def test_pods_come_change_and_go() -> None:
    pods = OwnPods()
    pods.apply([ListBegins(), Changed(pod("a")), Changed(pod("b"))])
    assert not pods.complete
    pods.apply([ListEnds("1")])
    assert pods.complete
    pods.apply([Deleted(pod("a")), Deleted(pod("never seen"))])
    assert [one.metadata.uid for one in pods] == ["b"]
    assert (pods.get("a"), pods.get("b")) == (None, pod("b"))


async def test_everybody_who_waits_is_woken_by_the_next_batch() -> None:
    pods = OwnPods()
    waiting = [asyncio.create_task(pods.change()) for _ in range(2)]
    given_up = asyncio.create_task(pods.change())
    await asyncio.sleep(0)
    given_up.cancel()
    pods.apply([Changed(pod("a"))])
    await asyncio.wait_for(asyncio.gather(*waiting), 5)


def test_only_unfinished_pods_of_the_node_are_watched() -> None:
    assert kind_of("n1").field_selector == "spec.nodeName=n1,status.phase!=Succeeded,status.phase!=Failed"
