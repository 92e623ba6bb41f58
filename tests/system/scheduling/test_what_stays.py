"""Pods that come, wait and go leave no garbage behind, and cost next to nothing while nothing changes."""

import asyncio
import gc
from collections import Counter
from collections.abc import Collection
from typing import Final

import pytest
from msgspec.structs import replace

from scheduler.kube import objects
from scheduler.testing.cluster.faults import Fail, Refuse, RequestFault, Verb
from scheduler.testing.cluster.store import StoredChange
from scheduler.testing.cluster.world import World
from tests.support.builders import wire_node
from tests.support.placing import on_card
from tests.support.service.looking import cluster, comes, node_of, touch
from tests.support.service.process import A_MOMENT_S, scheduling
from tests.support.service.volume_controller import VolumeController
from tests.support.service.wire import WRITES, CountedWrites
from tests.support.volumes import HOSTNAME, LOCAL, claim, storage_class, volume, with_claims

CAME = 200
WAITING = 10
TOUCHED_EVERY_S = 60.0


async def test_pods_that_come_are_bound_wait_and_go_make_no_cycles() -> None:
    """Full collections are rare (scheduler/main.py)."""
    of = cluster(a=[80] * 8)
    async with scheduling(of):
        comes(of, "first", 1)
        comes(of, "too-large", 81)
        await asyncio.sleep(1)
        gc.collect()
        gc.disable()
        try:
            for number in range(CAME):
                comes(of, f"p{number}", 1)
                comes(of, f"q{number}", 81)
                await asyncio.sleep(0.1)
                of.pods.update("default", f"p{number}", lambda pod: replace(pod, spec=replace(pod.spec, priority=1)))
                await asyncio.sleep(0.1)
                assert node_of(of, f"p{number}") == "a"
                of.pods.remove("default", f"p{number}")
                of.pods.remove("default", f"q{number}")
                await asyncio.sleep(0.1)
            found = gc.collect()
        finally:
            gc.enable()
    assert found < CAME


async def test_pods_that_are_tried_again_and_again_leave_nothing_behind() -> None:
    of = cluster(a=[16])
    async with scheduling(of):

        async def tried() -> int:
            """Have each of them tried ten times; how many objects there are then, but for the cluster's history."""
            for number in range(10):
                for pod in range(WAITING):
                    touch(of, f"p{pod}", number)
                await asyncio.sleep(TOUCHED_EVERY_S)
            gc.collect()
            return sum(not isinstance(found, StoredChange) for found in gc.get_objects())

        for number in range(WAITING):
            comes(of, f"p{number}", 17 + number % 5)
        await tried()
        before = await tried()

        assert await tried() - before < WAITING


async def test_a_heartbeat_without_news_changes_nothing_and_wakes_nobody() -> None:
    of = cluster(a=[16])
    async with scheduling(of) as process:
        comes(of, "first", 16)
        comes(of, "waits", 16)
        await asyncio.sleep(A_MOMENT_S)
        version, before, told = process.engine.tables.changes.version, process.cycle.attempts, of.version
        for number in range(10):
            conditions = (objects.NodeCondition("Ready", f"2026-01-01T00:00:{number:02}Z"),)
            of.nodes.update("a", lambda node, c=conditions: replace(node, status=replace(node.status, conditions=c)))  # type: ignore[misc]
            await asyncio.sleep(A_MOMENT_S)
        assert of.version == told + 10
        assert (process.engine.tables.changes.version, process.cycle.attempts) == (version, before)


NO_RIGHT: Final = 'pods "p" is forbidden: User "u" cannot create resource "pods/binding" in API group ""'
OF_VOLUMES: Final = (Verb.BIND_VOLUME, Verb.SELECT_NODE)
OF_STATUS: Final = (Verb.SET_CONDITION, Verb.NOMINATE)
OF_EVENTS: Final = (Verb.CREATE_EVENT, Verb.UPDATE_EVENT)
# Of each kind, in `test_a_pod_costs_at_most_one_write_a_minute`.
PODS: Final = 2
# All back-offs have grown to their ends.
AT_REST_S: Final = 600.0
COUNTED_S: Final = 600.0


def full_nodes_and_a_free_one(pods: int) -> World:
    """A node for each preemptor, whose pod may go; claims and volumes with the names of the pods that use them."""
    of = cluster(room=[64] * 4)
    controller = VolumeController(of)
    controller.comes(storage_class("fast"), LOCAL)
    for number in range(pods):
        of.nodes.add(wire_node(f"n{number}", [16]))
        comes(of, f"low-{number}", 16, node=f"n{number}", priority=1, annotations=on_card(0, 16))
        controller.comes(
            claim(f"made-{number}", class_name="fast"),
            claim(f"taken-{number}", class_name="local", selector={"matchLabels": {"of": f"{number}"}}),
            volume(f"taken-{number}", class_name="local", on=("room",), key=HOSTNAME, labels={"of": f"{number}"}),
        )
    return of


def come(of: World, number: int) -> None:
    """A pod of each kind: it fits, is too large, preempts, needs a volume that is to be made, or one that is there."""
    comes(of, f"fits-{number}", 1, priority=20)
    comes(of, f"large-{number}", 999, priority=20)
    comes(of, f"urgent-{number}", 16, to=f"n{number}", priority=10)
    for kind in ("made", "taken"):
        comes(of, f"{kind}-{number}", 1, to="room", priority=20, **with_claims(f"{kind}-{number}"))


@pytest.mark.parametrize(
    ("rejection", "verbs"),
    [
        pytest.param(Refuse(403), WRITES, id="a webhook denies every write"),
        pytest.param(Refuse(409), WRITES, id="every write conflicts"),
        pytest.param(Refuse(401), WRITES, id="the credentials are not accepted"),
        pytest.param(Refuse(403, NO_RIGHT), (Verb.BIND,), id="the right to bind is missing"),
        pytest.param(Refuse(422), (Verb.BIND,), id="a webhook denies Bindings"),
        pytest.param(Refuse(422), OF_VOLUMES, id="a webhook denies writes of volumes"),
        pytest.param(Fail(500), OF_VOLUMES, id="the webhook of volumes is down"),
        pytest.param(Refuse(422), OF_STATUS, id="a webhook denies writes of the status"),
        pytest.param(Refuse(403), (Verb.DELETE_POD,), id="a webhook denies deletions"),
        pytest.param(Refuse(404), OF_EVENTS, id="a webhook denies Events"),
    ],
)
async def test_a_pod_costs_at_most_one_write_a_minute(rejection: RequestFault, verbs: Collection[Verb]) -> None:
    of = full_nodes_and_a_free_one(PODS)
    async with scheduling(of, latency_s=0.002) as process:
        process.wire.faults = counted = CountedWrites()
        for verb in verbs:
            counted.add(verb, rejection)
        for number in range(PODS):
            come(of, number)
        await asyncio.sleep(AT_REST_S)
        counted.writes.clear()
        await asyncio.sleep(COUNTED_S)

    of_pods: Counter[str] = Counter()
    for (_, about), number in counted.writes.items():
        of_pods[about.rpartition("/")[2]] += number
    assert of_pods
    assert max(of_pods.values()) <= COUNTED_S / 60, counted.writes
