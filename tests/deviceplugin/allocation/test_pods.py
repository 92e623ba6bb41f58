"""The pods of a node: what they ask, what the watch shows of them, who has which cards, and telling pods so."""

import asyncio
from collections.abc import Mapping

import msgspec
import pytest

from config.protocol import names
from config.protocol.booked_cards import Ask
from config.protocol.container_formula import ContainerKind
from deviceplugin.allocation.assigned import AssignedCards, Marker
from deviceplugin.allocation.pods import NodePod, PodContainer, read_pod
from deviceplugin.allocation.view import OwnPods, kind_of
from scheduler.kube import objects
from scheduler.kube.port import ApiConflict, ApiError, ApiSilent, Changed, Deleted, ListBegins, ListEnds, PodKey
from tests.support.node.node_pods import node_pod


def test_containers_stand_in_the_order_in_which_the_kubelet_allocates() -> None:
    pod = node_pod("p", [3, 0], init=[2, 1], sidecars={1})
    assert pod.containers == (
        PodContainer("i0", ContainerKind.INIT, 0, 2),
        PodContainer("i1", ContainerKind.SIDECAR, 1, 1),
        PodContainer("c0", ContainerKind.APP, 0, 3),
        PodContainer("c1", ContainerKind.APP, 1, 0),
    )
    assert [container.name for container in pod.asking()] == ["i0", "i1", "c0"]


def test_what_the_pods_state_is() -> None:
    fresh = node_pod("p", [1], phase="Pending", conditions=[{"type": "PodScheduled", "status": "True"}])
    assert (fresh.terminating, fresh.finished, fresh.reported, fresh.exclusive) == (False, False, False, False)
    assert node_pod("p", [1], terminating=True).terminating
    assert node_pod("p", [1], phase="Failed").finished
    assert node_pod("p", [1], containerStatuses=[{"name": "c0"}]).reported
    assert node_pod("p", [1], initContainerStatuses=[{"name": "i0"}]).reported


def test_a_whole_card_pod_is_one_by_annotation_or_label() -> None:
    assert node_pod("p", [1], annotations={names.EXCLUSIVE: "true"}).exclusive
    assert node_pod("p", [1], labels={names.PLACEMENT_LABEL: names.PLACEMENT_WHOLE_DEVICE}).exclusive
    assert not node_pod("p", [1], annotations={names.EXCLUSIVE: "false"}).exclusive


@pytest.mark.parametrize(
    ("count", "cards"), [("", 1), ("1", 1), ("2", 2), ("two", 0), ("\N{SUPERSCRIPT TWO}", 0), ("1000", 0), ("-1", 0)]
)
def test_what_it_asks_as_a_whole(count: str, cards: int) -> None:
    labels = {names.GPU_COUNT: count} if count else {}
    pod = node_pod("p", [4, 2], init=[8, 1], sidecars={1}, labels=labels)
    assert pod.ask() == Ask(units=8, cards=cards, sidecars=(False, True))


def test_what_isolation_looks_at_is_read() -> None:
    limits = {names.GPU_MEM: "2", names.GPU_CORE: "30"}
    spec = {"containers": [{"name": "c", "resources": {"limits": limits}}, {"name": "plain"}], "hostIPC": True}
    wire = msgspec.convert({"metadata": {"name": "p"}, "spec": spec}, type=objects.PodObject)
    pod = read_pod(wire)
    assert ([one.percent for one in pod.containers], pod.host_ipc) == ([30, 0], True)
    other = read_pod(wire, gpu_core="example.com/core")
    assert [one.percent for one in other.containers] == [0, 0]


def object_of(uid: str) -> objects.PodObject:
    return objects.PodObject(objects.ObjectMeta(f"name-{uid}", uid=uid))


def test_pods_come_change_and_go() -> None:
    pods = OwnPods()
    pods.apply([ListBegins(), Changed(object_of("a")), Changed(object_of("b"))])
    assert not pods.complete
    pods.apply([ListEnds("1")])
    assert pods.complete
    pods.apply([Deleted(object_of("a")), Deleted(object_of("never seen"))])
    assert [one.metadata.uid for one in pods] == ["b"]
    assert (pods.get("a"), pods.get("b")) == (None, object_of("b"))


async def test_everybody_who_waits_is_woken_by_the_next_batch() -> None:
    pods = OwnPods()
    waiting = [asyncio.create_task(pods.change()) for _ in range(2)]
    given_up = asyncio.create_task(pods.change())
    await asyncio.sleep(0)
    given_up.cancel()
    pods.apply([Changed(object_of("a"))])
    await asyncio.wait_for(asyncio.gather(*waiting), 5)


def test_only_unfinished_pods_of_the_node_are_watched() -> None:
    assert kind_of("n1").field_selector == "spec.nodeName=n1,status.phase!=Succeeded,status.phase!=Failed"


CONTAINERS = (
    PodContainer("i", ContainerKind.INIT, 0, 1),
    PodContainer("c", ContainerKind.APP, 0, 2),
    PodContainer("plain", ContainerKind.APP, 1, 0),
)
POD = NodePod(uid="uid-p", namespace="ns", name="p", containers=CONTAINERS, annotations={names.MEM_ASSIGNED: "false"})
KEY = PodKey("ns", "p", "uid-p")


class Pods:
    """Takes marks; fails as told first."""

    def __init__(self, *failures: ApiError) -> None:
        self.failures = list(failures)
        self.marked: asyncio.Queue[tuple[PodKey, Mapping[str, str]]] = asyncio.Queue()

    async def mark_assigned(self, pod: PodKey, annotations: Mapping[str, str]) -> None:
        if self.failures:
            raise self.failures.pop(0)
        self.marked.put_nowait((pod, annotations))


def test_a_pod_has_its_cards_once_every_container_that_asks_has_them() -> None:
    given = AssignedCards()
    given.note(POD, ["i"], frozenset({"GPU-a"}))
    assert not given.complete(POD)
    given.note(POD, ["c"], frozenset({"GPU-a"}))
    assert given.complete(POD)


async def marks(pods: Pods, *wanted: NodePod) -> list[PodKey]:
    marker = Marker(pods, lambda _: 0.0)
    for pod in wanted:
        marker.mark(pod)
    task = asyncio.create_task(marker.run())
    await asyncio.sleep(0.01)
    task.cancel()
    return [pods.marked.get_nowait()[0] for _ in range(pods.marked.qsize())]


async def test_a_mark_that_failed_is_written_again() -> None:
    assert await marks(Pods(ApiSilent("no answer"), ApiSilent("no answer")), POD) == [KEY]


async def test_a_mark_that_is_refused_does_not_block_the_next_one() -> None:
    other = NodePod(
        uid="uid-q", namespace="ns", name="q", containers=CONTAINERS, annotations={names.MEM_ASSIGNED: "false"}
    )
    assert await marks(Pods(ApiConflict("another uid", 409)), POD, other) == [PodKey("ns", "q", "uid-q")]


async def test_a_pod_is_marked_once_and_only_if_it_says_false() -> None:
    said = NodePod(
        uid="uid-q", namespace="ns", name="q", containers=CONTAINERS, annotations={names.MEM_ASSIGNED: "true"}
    )
    silent = NodePod(uid="uid-r", namespace="ns", name="r", containers=CONTAINERS)
    assert await marks(Pods(), POD, POD, said, silent) == [KEY]
