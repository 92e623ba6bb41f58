"""Whatever the kubelet does, the plugin is registered with the one that runs."""

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TypeVar

import pytest

from deviceplugin.kubelet.server import SOCKET_NAME, ContainerResponse, Devices, Listeners, Registration
from deviceplugin.kubelet.session import FakeDevices
from tests.support.node.kubelet_double import KubeletDouble

RESOURCE = "x.com/mem"
T = TypeVar("T")


class Plugin:
    def __init__(self) -> None:
        self.fakes = FakeDevices()
        self.fakes.show((("u0", True),))

    def devices(self) -> AsyncIterator[Devices]:
        return self.fakes.follow()

    async def allocate(self, ids: frozenset[str]) -> ContainerResponse:
        return ContainerResponse({"IDS": ",".join(sorted(ids))})

    async def pre_start(self, ids: frozenset[str]) -> None:
        pass


@asynccontextmanager
async def registering(folder: Path) -> AsyncIterator[list[str]]:
    """What the listeners were told, in order."""
    told: list[str] = []

    async def registering_soon() -> None:
        told.append("registering")

    listeners = Listeners(
        registering=registering_soon,
        registered=lambda: told.append("registered"),
        unregistered=lambda: told.append("unregistered"),
        problem=lambda message: told.append(message.partition(":")[0]),
    )
    task = asyncio.create_task(Registration(Plugin(), folder, RESOURCE, listeners, lambda _: 0.01, say_nothing).run())
    try:
        yield told
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


@pytest.fixture
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    # A unix socket's path has at most 107 characters.
    return tmp_path_factory.mktemp("r")


async def soon(queue: "asyncio.Queue[T]") -> T:
    return await asyncio.wait_for(queue.get(), 5)


async def test_a_kubelet_that_runs_already_is_registered_with(folder: Path) -> None:
    async with KubeletDouble(folder).running() as double, registering(folder) as told:
        assert await soon(double.registered) is not None
        assert await soon(double.listed) == {"u0": "Healthy"}
        assert (await double.allocate(["u0"])).envs["IDS"] == "u0"
        assert told == ["unregistered", "registering", "", "registered"]


async def test_a_kubelet_that_starts_later_and_again_is_registered_with_each_time(folder: Path) -> None:
    async with registering(folder):
        for _ in range(3):
            async with KubeletDouble(folder).running() as double:
                assert await soon(double.registered) is not None
                assert await soon(double.listed) == {"u0": "Healthy"}
                assert (await double.allocate(["u0"])).envs["IDS"] == "u0"
            # As a kubelet does when it starts.
            (folder / SOCKET_NAME).unlink(missing_ok=True)


async def test_a_kubelet_that_refuses_is_asked_again(folder: Path) -> None:
    double = KubeletDouble(folder)
    double.refusal = "not yet"
    async with double.running(), registering(folder) as told:
        assert await soon(double.refused) == "not yet"
        assert await soon(double.refused) == "not yet"
        assert "registering x.com/mem with the kubelet" in told
        double.refusal = ""
        assert await soon(double.registered) is not None


async def test_the_socket_is_gone_at_the_end(folder: Path) -> None:
    async with KubeletDouble(folder).running() as double:
        async with registering(folder):
            await soon(double.registered)
            assert (folder / SOCKET_NAME).exists()
        assert not (folder / SOCKET_NAME).exists()


async def test_it_can_be_cancelled_while_it_registers_with_a_new_kubelet(folder: Path) -> None:
    double = KubeletDouble(folder)
    async with double.running():
        task = asyncio.create_task(Registration(Plugin(), folder, RESOURCE, quiet(), lambda _: 0.01, say_nothing).run())
        await soon(double.registered)
        await soon(double.listed)
        # Whoever still follows the devices gives the server a second to end, in the midst of which all is to end.
        (folder / "new.sock").touch()
        (folder / "new.sock").rename(folder / "kubelet.sock")
        await asyncio.sleep(0.1)
        task.cancel()
        done, _ = await asyncio.wait({task}, timeout=5)
        assert done
        assert not (folder / SOCKET_NAME).exists()


async def test_a_kubelet_that_drops_the_device_stream_is_registered_with_again(folder: Path) -> None:
    plugin = Plugin()
    registration = Registration(plugin, folder, RESOURCE, quiet(), lambda _: 0.01, say_nothing)
    async with KubeletDouble(folder).running() as double:
        task = asyncio.create_task(registration.run())
        for _ in range(3):
            await soon(double.registered)
            assert await soon(double.listed) == {"u0": "Healthy"}
            await double.stop_following()
            registration.dropped()
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def test_a_socket_that_cannot_be_created_ends_the_registration(folder: Path) -> None:
    (folder / SOCKET_NAME).mkdir()
    plugin = Registration(Plugin(), folder, RESOURCE, quiet(), lambda _: 0.01, say_nothing)
    async with KubeletDouble(folder).running():
        with pytest.raises(ExceptionGroup):
            await asyncio.wait_for(plugin.run(), 5)


def say_nothing(level: str, event: str, fields: Mapping[str, object]) -> None:
    assert level
    assert event
    assert fields


def quiet() -> Listeners:
    async def nothing() -> None:
        pass

    return Listeners(nothing, lambda: None, lambda: None, lambda _: None)
