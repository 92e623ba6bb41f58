"""What is asked of the kubelet, against a double that serves its sockets."""

import asyncio
import shutil
import socket
import time
from collections.abc import AsyncIterator
from pathlib import Path

import grpc
import pytest

from deviceplugin.kubelet import client, server
from deviceplugin.kubelet.checkpoint import KubeletContainer
from deviceplugin.kubelet.client import KubeletSilent, PodResources, RegistrationRefused
from deviceplugin.kubelet.server import CallRejected, ContainerResponse, Mount
from tests.support.clocks.quickest import quickest
from tests.support.node.kubelet_double import KubeletDouble

RESOURCE = "x.com/mem"


class Plugin:
    """Lists what is put, answers with what it was asked."""

    def __init__(self) -> None:
        self.lists: asyncio.Queue[list[tuple[str, bool]]] = asyncio.Queue()
        self.lists.put_nowait([("u0", True), ("u1", False)])
        self.refusal = ""

    async def devices(self) -> AsyncIterator[list[tuple[str, bool]]]:
        while True:
            yield await self.lists.get()

    async def allocate(self, ids: frozenset[str]) -> ContainerResponse:
        if self.refusal:
            raise CallRejected(self.refusal, "Test")
        return ContainerResponse({"IDS": ",".join(sorted(ids))}, (Mount("/in", "/out"),), ("gpushare/handle=1",))

    async def pre_start(self, ids: frozenset[str]) -> None:
        if self.refusal:
            message = f"{self.refusal}: {sorted(ids)}"
            raise CallRejected(message, "Test")


async def test_a_registered_plugin_is_asked_for_its_options_and_its_devices(folder: Path) -> None:
    plugin = Plugin()
    async with KubeletDouble(folder).running() as double, server.serving(plugin, folder / "p.sock"):
        await client.register(folder, "p.sock", RESOURCE)
        request = await double.registered.get()
        assert (request.version, request.endpoint, request.resource_name) == ("v1beta1", "p.sock", RESOURCE)
        assert double.options.pre_start_required
        assert await double.listed.get() == {"u0": "Healthy", "u1": "Unhealthy"}
        plugin.lists.put_nowait([("u0", False)])
        assert await double.listed.get() == {"u0": "Unhealthy"}


async def test_an_allocate_gets_the_answer_for_its_container(folder: Path) -> None:
    async with KubeletDouble(folder).running() as double, server.serving(Plugin(), folder / "p.sock"):
        await client.register(folder, "p.sock", RESOURCE)
        answer = await double.allocate(["u1", "u0"])
        assert dict(answer.envs) == {"IDS": "u0,u1"}
        assert [(m.container_path, m.host_path, m.read_only) for m in answer.mounts] == [("/in", "/out", True)]
        assert [device.name for device in answer.cdi_devices] == ["gpushare/handle=1"]
        await double.pre_start(["u0"])


async def test_a_refusal_reaches_the_kubelet_with_its_message(folder: Path) -> None:
    plugin = Plugin()
    plugin.refusal = "no allocation for a/b"
    async with KubeletDouble(folder).running() as double, server.serving(plugin, folder / "p.sock"):
        await client.register(folder, "p.sock", RESOURCE)
        with pytest.raises(grpc.aio.AioRpcError, match="no allocation for a/b"):
            await double.allocate(["u0"])
        with pytest.raises(grpc.aio.AioRpcError, match="no allocation for a/b"):
            await double.pre_start(["u0"])


async def test_a_kubelet_that_rejects_the_registration_refuses(folder: Path) -> None:
    async with KubeletDouble(folder).running() as double:
        double.refusal = "unsupported version"
        with pytest.raises(RegistrationRefused, match="unsupported version"):
            await client.register(folder, "p.sock", RESOURCE)


async def reached_after_s(folder: Path) -> float:
    """Seconds from when nobody listened until a kubelet that then does is registered with and asked."""
    resources = PodResources(folder / "pod-resources.sock", RESOURCE)
    with socket.socket(socket.AF_UNIX) as early, socket.socket(socket.AF_UNIX) as early_too:
        early.bind(str(folder / "kubelet.sock"))
        early_too.bind(str(folder / "pod-resources.sock"))
        with pytest.raises(KubeletSilent):
            await client.register(folder, "p.sock", RESOURCE)
        with pytest.raises(KubeletSilent):
            await resources.of_pod("ns", "p", timeout_s=1)
    refused_s = time.monotonic()
    async with KubeletDouble(folder).running(), server.serving(Plugin(), folder / "p.sock"), asyncio.timeout(20):
        await client.register(folder, "p.sock", RESOURCE)
        while not await answers(resources):  # noqa: ASYNC110 - nothing tells
            await asyncio.sleep(0.02)
        took_s = time.monotonic() - refused_s
    await resources.close()
    return took_s


async def test_a_kubelet_that_does_not_listen_yet_is_reached_as_soon_as_it_does(folder: Path) -> None:
    """Its socket is there a moment before anybody listens, and the file is seen at once."""

    async def one_turn_s(turn: int) -> float:
        (of_its_own := folder / str(turn)).mkdir()
        return await reached_after_s(of_its_own)

    # gRPC itself would wait for a second, or a fifth less.
    assert await quickest(one_turn_s, 0.7) < 0.7


async def answers(resources: PodResources) -> bool:
    try:
        return await resources.of_pod("ns", "p", timeout_s=1) is None
    except KubeletSilent:
        return False


async def test_pod_resources_tell_the_ids_of_our_resource(folder: Path) -> None:
    async with KubeletDouble(folder).running() as double:
        double.pods["ns", "p"] = {"c": {RESOURCE: ["u0", "u1"], "y.com/other": ["z"]}, "d": {}}
        pods = PodResources(folder / "pod-resources.sock", RESOURCE)
        expected = [
            KubeletContainer("ns", "p", "c", frozenset({"u0", "u1"})),
            KubeletContainer("ns", "p", "d", frozenset()),
        ]
        assert await pods.of_pod("ns", "p", timeout_s=5) == expected
        assert await pods.all(timeout_s=5) == expected
        assert await pods.of_pod("ns", "gone", timeout_s=5) is None
        await pods.close()


async def test_a_kubelet_that_throttles_is_asked_again(folder: Path) -> None:
    async with KubeletDouble(folder).running() as double:
        double.pods["ns", "p"] = {"c": {RESOURCE: ["u0"]}}
        double.too_busy = 3
        pods = PodResources(folder / "pod-resources.sock", RESOURCE)
        assert await pods.of_pod("ns", "p", timeout_s=5) == [KubeletContainer("ns", "p", "c", frozenset({"u0"}))]
        double.too_busy = 1_000
        with pytest.raises(KubeletSilent, match="rejected by rate limit"):
            await pods.of_pod("ns", "p", timeout_s=0.1)
        await pods.close()


async def test_a_kubelet_that_is_not_there_is_silent(folder: Path) -> None:
    with pytest.raises(KubeletSilent, match=r"registering x\.com/mem"):
        await client.register(folder, "p.sock", RESOURCE)
    pods = PodResources(folder / "pod-resources.sock", RESOURCE)
    with pytest.raises(KubeletSilent, match="asking the kubelet for a pod of this node: "):
        await pods.of_pod("ns", "p", timeout_s=1)
    with pytest.raises(KubeletSilent, match="asking the kubelet for all pods"):
        await pods.all(timeout_s=1)
    await pods.close()


async def test_every_new_socket_of_the_kubelet_is_noticed(folder: Path) -> None:
    seen: asyncio.Queue[None] = asyncio.Queue()

    async def watch() -> None:
        async for _ in client.restarts(folder):
            seen.put_nowait(None)

    async with KubeletDouble(folder).running():
        watching = asyncio.create_task(watch())
        await asyncio.wait_for(seen.get(), 5)
    (folder / "other.sock").touch()
    async with KubeletDouble(folder).running():
        await asyncio.wait_for(seen.get(), 5)
    watching.cancel()
    assert seen.empty()


async def test_a_socket_that_is_replaced_between_two_looks_is_noticed(tmp_path: Path) -> None:
    socket = tmp_path / "kubelet.sock"
    starts = client.restarts(tmp_path)
    async with asyncio.timeout(5):
        for number in range(3):
            (tmp_path / "new").write_text(str(number))
            (tmp_path / "new").replace(socket)
            await anext(starts)


async def test_a_directory_that_is_made_anew_is_watched(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client, "_LOOK_S", 0.02)
    folder = tmp_path / "device-plugins"
    folder.mkdir()
    (folder / "kubelet.sock").touch()
    starts = client.restarts(folder)
    async with asyncio.timeout(5):
        await anext(starts)
        for _ in range(2):
            shutil.rmtree(folder)
            waiting = asyncio.ensure_future(anext(starts))
            await asyncio.sleep(0.05)
            folder.mkdir()
            (folder / "kubelet.sock").touch()
            await waiting


async def test_a_directory_that_stays_away_is_said_to_be_gone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client, "_LOOK_S", 0.02)
    monkeypatch.setattr(client, "_GONE_S", 0.05)
    folder = tmp_path / "device-plugins"
    folder.mkdir()
    starts = client.restarts(folder)
    waiting = asyncio.ensure_future(anext(starts))
    await asyncio.sleep(0.05)
    folder.rmdir()
    with pytest.raises(client.DirectoryGone, match="has been missing for"):
        await asyncio.wait_for(waiting, 5)


async def test_a_directory_behind_a_link_is_gone_with_what_it_leads_to(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(client, "_LOOK_S", 0.02)
    monkeypatch.setattr(client, "_GONE_S", 0.05)
    (tmp_path / "device-plugins").symlink_to(tmp_path / "none")
    with pytest.raises(client.DirectoryGone, match="has been missing for"):
        await asyncio.wait_for(anext(client.restarts(tmp_path / "device-plugins")), 2)
