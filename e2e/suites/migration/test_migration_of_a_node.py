"""A node changes from the legacy device plugin to ours, on a real kubelet, while pods of the extender run there.

docs/migrate.md, "3. The device plugin, node by node".
"""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from http import HTTPStatus
from pathlib import Path
from typing import Final, Self

import pytest

from config.protocol import environment, names
from deviceplugin.kubelet import client, server
from deviceplugin.kubelet.server import ContainerResponse, Devices
from e2e.control_plane import pinned
from e2e.control_plane.admin import Access, Admin, Json, done
from e2e.node.announced import allocatable, card_units
from e2e.node.node_pods import PODS, has_restarted, pod, pod_seen, runs, waits_because
from e2e.programs import manifests
from e2e.support.kubectl_gpushare import kubectl_gpushare
from e2e.support.shared_node import GIB, NODE, SharedNode, lives, pods, shared_pod, sharing, what_is_inside
from tests.support.legacy import chosen

SOCKET: Final = "aliyungpushare.sock"


class LegacyPlugin:
    """On one node. index: of the card for the next Allocate; the real one takes that of the pod which it guesses."""

    def __init__(self, folder: Path, cards: Sequence[str], card_units: int) -> None:
        """folder: where the kubelet's socket is. cards: UUIDs."""
        self.index = 0
        self._folder = folder
        self._ids = tuple(f"{uuid}-_-{number}" for uuid in cards for number in range(card_units))
        self._card_units = card_units

    @asynccontextmanager
    async def running(self) -> AsyncIterator[Self]:
        """Registered with the kubelet; at the end its socket is gone."""
        async with server.serving(self, self._folder / SOCKET):
            await client.register(self._folder, SOCKET, names.GPU_MEM)
            yield self

    async def devices(self) -> AsyncIterator[Devices]:
        """All of them, healthy for ever."""
        yield tuple((name, True) for name in self._ids)
        await asyncio.Event().wait()

    async def allocate(self, ids: frozenset[str]) -> ContainerResponse:
        """For a container of as many units."""
        units, index = str(len(ids)), str(self.index)
        return ContainerResponse(
            environment={
                environment.VISIBLE_DEVICES: index,
                names.MEM_IDX: index,
                names.MEM_POD: units,
                environment.MEM_CONTAINER: units,
                names.MEM_DEV: str(self._card_units),
            }
        )

    async def pre_start(self, ids: frozenset[str]) -> None:
        """Nothing."""


_UNITS = 15
# From 1.37 on, the kubelet tells plugins of one resource apart by their sockets.
KEEPS_THE_OTHER = int(pinned.kubernetes_version().split(".")[1]) >= 37


@asynccontextmanager
async def the_extender(shared: SharedNode, on_node: Admin) -> AsyncIterator[Admin]:
    """An account that may write allocations."""
    access = shared.node.cluster.access()
    async with Admin(Access(access.url, access.tls, f"Bearer {await manifests.token(on_node)}")) as client:
        yield client


async def of_the_extender(shared: SharedNode, on_node: Admin, old: LegacyPlugin, name: str, index: int) -> Json:
    """A pod that is annotated for card 1; the legacy plugin gives it the card of that index."""
    old.index = index
    return await annotated_and_bound(shared, on_node, name, chosen(1, 3, _UNITS))


async def annotated_and_bound(shared: SharedNode, on_node: Admin, name: str, annotations: dict[str, str]) -> Json:
    """The pod as it runs then."""
    async with the_extender(shared, on_node) as extender:
        target = {"apiVersion": "v1", "kind": "Node", "name": shared.node.name}
        body = {"metadata": {"name": name, "annotations": annotations}, "target": target}
        assert (await extender.post(f"{PODS}/{name}/binding", body)).status == HTTPStatus.CREATED
    return await runs(on_node, name)


async def test_running_pods_go_on_and_start_again_with_the_card_that_they_had(
    shared: SharedNode, on_node: Admin, tmp_path: Path
) -> None:
    uuids = list(card_units(await shared.read(on_node)))
    theirs = [pod(name, [sharing(3)]) for name in ("kept", "swapped")]
    async with shared.instead() as plugin, pods(on_node, theirs):
        plugin.stop()
        nothing = {"metadata": {"annotations": {names.INVENTORY: None, names.HELD_UNTIL: None}}}
        done(await on_node.patch(f"{NODE}/{shared.node.name}", nothing))
        async with LegacyPlugin(shared.node.device_plugins, uuids, _UNITS).running() as old:
            await shared.node_seen(on_node, lambda node: allocatable(node) == 3 * _UNITS)
            kept = await of_the_extender(shared, on_node, old, "kept", 1)
            swapped = await of_the_extender(shared, on_node, old, "swapped", 2)
            ran = await asyncio.to_thread(kubectl_gpushare, shared.node.cluster, tmp_path, "adopt")
            assert (ran.returncode, "no-inventory: 1 node" in ran.stdout) == (1, True), ran.stdout
            # Of two that have registered the kubelet asks the last.
            plugin.start()
            await plugin.ready()
            await shared.node_seen(on_node, lambda node: allocatable(node) == 110)
            async with pods(on_node, [shared_pod("beside", [sharing(2)])]):
                beside = await runs(on_node, "beside")
                assert environment.CARD_UUIDS in what_is_inside(shared.node.container(beside))
        if not KEEPS_THE_OTHER:
            # When the first ends, the kubelet drops the last as well, and it registers again.
            await plugin.said("kubelet.disconnected")
            assert not (shared.node.device_plugins / SOCKET).exists()
            await plugin.ready()
        await shared.node_seen(on_node, lambda node: allocatable(node) == 110)
        async with pods(on_node, [shared_pod("after", [sharing(2)])]):
            assert shared.mismatches(await runs(on_node, "after")) == []
        again = [(await on_node.get(f"{PODS}/{name}")).body for name in ("kept", "swapped")]
        assert [lives(found) for found in again] == [lives(kept), lives(swapped)]
        ran = await asyncio.to_thread(kubectl_gpushare, shared.node.cluster, tmp_path, "adopt")
        assert (ran.returncode, "No problems found." in ran.stdout) == (0, True), ran.stdout

        shared.kill_container(kept)
        inside = what_is_inside(shared.node.container(await pod_seen(on_node, "kept", has_restarted)))
        assert (inside[names.MEM_IDX], inside[environment.VISIBLE_DEVICES]) == ("1", "1")
        shared.kill_container(swapped)
        refused = await pod_seen(on_node, "swapped", lambda found: "it was allocated with" in waits_because(found))
        assert f"{names.MEM_IDX}=2, but its allocation says 1" in waits_because(refused)


@pytest.mark.parametrize("mode", ["cdi", "environment"])
async def test_under_our_plugin_a_pod_of_the_extender_has_the_card_of_its_annotation(
    shared: SharedNode, on_node: Admin, mode: str
) -> None:
    """So it is between the steps 3 and 4, and again on the way back from step 4."""
    async with (
        shared.instead([_UNITS * GIB] * 2, oldStyleIds=True, mode=mode) as plugin,
        pods(on_node, [pod("theirs", [sharing(3)])]),
    ):
        await plugin.ready()
        uuids = list(card_units(await shared.read(on_node)))
        theirs = await annotated_and_bound(shared, on_node, "theirs", chosen(1, 3, _UNITS, assigned=False))
        inside = what_is_inside(shared.node.container(theirs))
    assert (inside[names.MEM_IDX], inside[environment.CARD_UUIDS]) == ("1", uuids[1])
    assert inside[names.MEM_POD] == "3"


async def test_on_the_way_back_containers_of_ours_go_on_and_start_again(shared: SharedNode, on_node: Admin) -> None:
    """With `oldStyleIds` the legacy plugin lists the ids that they hold."""
    async with (
        shared.instead([_UNITS * GIB] * 2, oldStyleIds=True) as plugin,
        pods(on_node, [shared_pod("ours", [sharing(2)])]),
    ):
        await plugin.ready()
        uuids = list(card_units(await shared.read(on_node)))
        ours = await runs(on_node, "ours")
        plugin.stop()
        old = LegacyPlugin(shared.node.device_plugins, uuids, _UNITS)
        async with old.running():
            await shared.node_seen(on_node, lambda node: allocatable(node) == 2 * _UNITS)
            shared.kill_container(ours)
            again = await pod_seen(on_node, "ours", has_restarted)
            assert shared.mismatches(again) == []
            shared.node.stop_kubelet()
        shared.node.start_kubelet()
        await shared.node_seen(on_node, lambda node: allocatable(node) == 0)
        async with old.running():
            await shared.node_seen(on_node, lambda node: allocatable(node) == 2 * _UNITS)
            assert lives((await on_node.get(f"{PODS}/ours")).body) == lives(again)
