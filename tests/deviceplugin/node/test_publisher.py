"""The node object says what the plugin wants it to say, whatever happens to it."""

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager

import pytest

from deviceplugin.node.inventory import NodePatch
from deviceplugin.node.publisher import NodePublisher, differing
from scheduler.kube import objects
from scheduler.kube.port import ApiConflict, ApiError, ApiSilent

WANTED = NodePatch({"inv": "{}"}, {"x.com/count": 2})


def node(
    annotations: dict[str, str] | None = None, capacity: objects.Quantities | None = None, version: str = ""
) -> objects.Node:
    meta = objects.ObjectMeta("n", annotations=annotations, resource_version=version)
    return objects.Node(meta, status=objects.NodeStatus(capacity=capacity))


class ServedNode:
    """A node object that changes as it is written; the publisher sees every change, as from a watch."""

    def __init__(self, failures: list[ApiError] | None = None) -> None:
        self.annotations: dict[str, str] = {"other": "stays"}
        self.capacity: objects.Quantities = {"cpu": "2"}
        self.failures = failures or []
        self.version = 1
        self.writes: asyncio.Queue[Mapping[str, object]] = asyncio.Queue()
        self.publisher = NodePublisher(self, lambda _: 0.0)

    async def annotate(self, annotations: Mapping[str, str | None], version: str) -> None:
        if self.failures:
            raise self.failures.pop(0)
        if version != str(self.version):
            message = "the object has been modified"
            raise ApiConflict(message, 409)
        self.version += 1
        both = {**self.annotations, **annotations}
        self.annotations = {key: text for key, text in both.items() if text is not None}
        self.writes.put_nowait(annotations)
        self.show()

    async def set_capacity(self, capacity: Mapping[str, int]) -> None:
        self.capacity = {**self.capacity, **{name: str(amount) for name, amount in capacity.items()}}
        self.writes.put_nowait(capacity)
        self.show()

    def show(self) -> None:
        self.publisher.seen(node(dict(self.annotations), dict(self.capacity), str(self.version)))

    @asynccontextmanager
    async def running(self) -> AsyncIterator["ServedNode"]:
        task = asyncio.create_task(self.publisher.run())
        yield self
        assert not task.done()
        task.cancel()

    async def written(self) -> Mapping[str, object]:
        return await asyncio.wait_for(self.writes.get(), 5)


class LateNode(ServedNode):
    """A node object that the watch shows as it was at the last `shown`."""

    def __init__(self) -> None:
        super().__init__()
        self.conflicts = 0
        self.shown()

    async def annotate(self, annotations: Mapping[str, str | None], version: str) -> None:
        self.conflicts += version != str(self.version)
        await super().annotate(annotations, version)

    def show(self) -> None:
        self.publisher.seen(self.visible)

    def shown(self) -> None:
        self.visible = node(dict(self.annotations), dict(self.capacity), str(self.version))
        self.show()


@pytest.mark.parametrize(
    ("seen", "missing"),
    [
        pytest.param(node(), WANTED, id="nothing there"),
        pytest.param(node({"inv": "{}"}, {"x.com/count": "2"}), NodePatch(), id="all there"),
        pytest.param(node({"inv": "{}"}, {"x.com/count": 2}), NodePatch(), id="a number"),
        pytest.param(node({"inv": "{}", "y": "z"}, {"x.com/count": "2", "cpu": "1"}), NodePatch(), id="and more"),
        pytest.param(node({"inv": "[]"}, {"x.com/count": "2"}), NodePatch({"inv": "{}"}), id="another text"),
        pytest.param(node({"inv": "{}"}, {"x.com/count": "0"}), NodePatch({}, {"x.com/count": 2}), id="zeroed"),
        pytest.param(node({"inv": "{}"}, {"x.com/count": "2k"}), NodePatch({}, {"x.com/count": 2}), id="other"),
        pytest.param(node({"inv": "{}"}, {"x.com/count": "?"}), NodePatch({}, {"x.com/count": 2}), id="no number"),
    ],
)
def test_what_differs_is_what_is_written(seen: objects.Node, missing: NodePatch) -> None:
    assert differing(seen, WANTED) == missing


async def test_both_are_written_once_and_what_others_wrote_stays() -> None:
    async with ServedNode().running() as served:
        served.show()
        served.publisher.want(WANTED)
        assert await served.written() == WANTED.annotations
        assert await served.written() == WANTED.capacity
        assert served.annotations == {"other": "stays", "inv": "{}"}
        assert served.publisher.announced
        served.show()
        await asyncio.sleep(0)
        assert served.writes.empty()


async def test_what_somebody_removes_is_put_back() -> None:
    async with ServedNode().running() as served:
        served.publisher.want(WANTED)
        served.show()
        await served.written()
        await served.written()
        del served.annotations["inv"]
        served.show()
        assert await served.written() == WANTED.annotations


async def test_an_annotation_to_remove_is_removed_and_an_absent_one_is_not_written() -> None:
    async with ServedNode().running() as served:
        served.publisher.want(NodePatch({"other": None, "absent": None}))
        served.show()
        assert await served.written() == {"other": None}
        assert served.annotations == {}
        assert served.publisher.announced


async def test_a_write_by_somebody_else_is_seen_before_anything_is_written() -> None:
    async with ServedNode().running() as served:
        served.show()
        served.annotations, served.version = {"other": "stays", "inv": "mine"}, 2
        served.publisher.want(WANTED)
        await asyncio.sleep(0.01)
        assert served.annotations["inv"] == "mine"
        served.show()
        assert await served.written() == WANTED.annotations


async def test_what_is_wanted_meanwhile_waits_until_the_watch_shows_the_last_write() -> None:
    """The cards of a node come into use within a second, one at a time; a write of an older version is rejected."""
    served, late = LateNode(), NodePatch({"inv": "[]"}, {"x.com/count": 2})
    served.publisher.want(WANTED)
    async with served.running():
        assert [await served.written(), await served.written()] == [WANTED.annotations, WANTED.capacity]
        served.publisher.want(late)
        served.show()  # As each announcement does.
        await asyncio.sleep(0.01)
        served.shown()
        assert await served.written() == late.annotations
    assert served.conflicts == 0


async def test_a_node_that_is_created_again_gets_everything_again() -> None:
    async with ServedNode().running() as served:
        served.publisher.want(WANTED)
        served.show()
        await served.written()
        await served.written()
        served.publisher.seen(None)
        assert not served.publisher.announced
        served.annotations, served.capacity = {}, {}
        served.show()
        assert await served.written() == WANTED.annotations
        assert await served.written() == WANTED.capacity


async def test_a_write_that_fails_is_tried_again() -> None:
    async with ServedNode([ApiSilent("no answer"), ApiSilent("no answer")]).running() as served:
        served.publisher.want(WANTED)
        served.show()
        assert await served.written() == WANTED.annotations
        assert served.failures == []


async def test_nothing_is_written_before_the_node_and_the_cards_are_known() -> None:
    async with ServedNode().running() as served:
        served.show()
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert served.writes.empty()
        assert not served.publisher.announced


async def test_what_the_api_server_refuses_is_a_problem_until_it_takes_a_write() -> None:
    refused = ApiError('nodes "n" is forbidden', 403)
    served = ServedNode([ApiConflict("the object has been modified", 409), refused])
    told: list[str] = []

    def at_once(_: int) -> float:
        told.append(served.publisher.problem)
        return 0.0

    served.publisher = NodePublisher(served, at_once)
    async with served.running():
        served.publisher.want(WANTED)
        served.show()
        async with asyncio.timeout(5):
            await served.publisher.settled()
    # A conflict is nothing to see to.
    assert told == ["", 'the node object cannot be written: 403 nodes "n" is forbidden']
    assert served.publisher.problem == ""
