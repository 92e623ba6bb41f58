"""Who has which cards, and telling pods so."""

import asyncio
from collections.abc import Mapping

from config.protocol import names
from config.protocol.container_formula import ContainerKind
from deviceplugin.allocation.allocators import AssignedCards, Marker
from deviceplugin.allocation.pods import NodePod, PodContainer
from scheduler.kube.port import ApiConflict, ApiError, ApiSilent, PodKey

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


def test_pods_that_are_gone_are_forgotten() -> None:
    given = AssignedCards()
    given.note(POD, ["i", "c"], frozenset({"GPU-a"}))
    given.keep({"uid-other"})
    assert given.by_container == {}


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
