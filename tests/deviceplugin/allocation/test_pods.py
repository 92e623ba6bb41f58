"""A node's pod as the API server has it, and what it asks."""

import msgspec
import pytest

from config.protocol import names
from config.protocol.booked_cards import Ask
from config.protocol.container_formula import ContainerKind
from deviceplugin.allocation.pods import PodContainer, read_pod
from scheduler.kube import objects
from tests.support.node_pods import node_pod


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
