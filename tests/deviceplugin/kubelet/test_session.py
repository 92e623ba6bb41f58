"""Whatever the kubelet does, the plugin is registered with the one that runs; it is told of devices at once.

Nothing is answered on what may not hold any more.
"""

import asyncio
import json
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import TypeVar

import grpc
import pytest

from deviceplugin.kubelet import session as sessions
from deviceplugin.kubelet.server import SOCKET_NAME, ContainerResponse, Devices, Registration, serving
from deviceplugin.kubelet.session import CHECKPOINT, FakeDevices, KubeletSession, SessionFile, SessionRecord
from tests.support.node.kubelet_double import KubeletDouble
from tests.support.node.ports import FixedInjection

RESOURCE = "x.com/mem"
T = TypeVar("T")
TOLD = SessionRecord(RESOURCE, "cdi", unasked=False, devices=(("u0", True), ("u1", False)))
BY_ENVIRONMENT = SessionRecord(RESOURCE, "environment", unasked=False, devices=TOLD.devices)


class Answers:
    """asked: how often it was said that the plugin registers."""

    def __init__(self) -> None:
        self.asked = 0

    async def registering(self) -> None:
        self.asked += 1

    async def allocate(self, ids: frozenset[str]) -> ContainerResponse:
        return ContainerResponse({"IDS": ",".join(sorted(ids))})

    async def pre_start(self, ids: frozenset[str]) -> None:
        assert ids


def say_nothing(level: str, event: str, fields: Mapping[str, object]) -> None:
    assert level
    assert event
    assert fields


def made(
    folder: Path, told: SessionRecord | None = TOLD, held: Mapping[str, list[str]] | None = None
) -> KubeletSession:
    """held: pod UID -> ids that the kubelet has recorded of our resource; None: it has never been told of any."""
    if told:
        SessionFile(folder).save(told)
    entries = [
        {"PodUID": uid, "ContainerName": "c", "ResourceName": RESOURCE, "DeviceIDs": {"-1": ids}, "AllocResp": None}
        for uid, ids in (held or {}).items()
    ]
    known = {} if held is None else {RESOURCE: ["u0"]}
    document = {"Data": {"PodDeviceEntries": entries, "RegisteredDevices": known}, "Checksum": 1}
    (folder / CHECKPOINT).write_text(json.dumps(document))
    return KubeletSession(folder, RESOURCE, SessionFile(folder), lambda _: 0.01, say_nothing)


@asynccontextmanager
async def running(served: KubeletSession | Registration) -> AsyncIterator[None]:
    task = asyncio.create_task(served.run())
    try:
        yield
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def next_of(queue: "asyncio.Queue[T]") -> T:
    return await asyncio.wait_for(queue.get(), 5)


async def test_the_kubelet_is_told_again_what_it_was_told_and_of_what_is_held(folder: Path) -> None:
    session = made(folder, held={"uid-a": ["u1", "u7"], "uid-b": ["u0"]})
    async with KubeletDouble(folder).running() as double, running(session):
        assert session.resume()
        assert await session.registered_within(5)
        assert await next_of(double.listed) == {"u0": "Healthy", "u1": "Unhealthy", "u7": "Healthy"}


async def test_calls_wait_until_cards_and_pods_are_known(folder: Path) -> None:
    session, answers = made(folder), Answers()
    async with KubeletDouble(folder).running() as double, running(session):
        assert session.resume()
        await next_of(double.listed)
        call, start = asyncio.create_task(double.allocate(["u0"])), asyncio.create_task(double.pre_start(["u0"]))
        done, _ = await asyncio.wait({call, start}, timeout=0.05)
        assert done == set()
        await session.take_over(answers, "cdi")
        assert (await call).envs["IDS"] == "u0"
        await start
        # The kubelet that was told on the records alone is not asked about again, the next one is.
        assert answers.asked == 0


async def test_calls_that_wait_too_long_are_refused_with_the_reason(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sessions, "_ALLOCATE_WAIT_S", 0.05)
    monkeypatch.setattr(sessions, "_START_WAIT_S", 0.05)
    session = made(folder)
    assert session.last_mode == ""
    async with KubeletDouble(folder).running() as double, running(session):
        assert session.resume()
        assert session.last_mode == "cdi"
        await next_of(double.listed)
        for call in (double.allocate(["u0"]), double.pre_start(["u0"])):
            with pytest.raises(grpc.aio.AioRpcError, match="it does not know its cards and pods yet"):
                await call
        session.injection = FixedInjection(withheld="no injection mode is available")
        with pytest.raises(grpc.aio.AioRpcError, match="no injection mode is available"):
            await double.pre_start(["u0"])


@pytest.mark.parametrize(
    ("told", "held", "enough"),
    [
        pytest.param(TOLD, None, True, id="by CDI nothing else has to be known"),
        pytest.param(None, {}, False, id="nothing was kept"),
        pytest.param(replace(TOLD, resource="x.com/other"), {}, False, id="of another resource"),
        pytest.param(BY_ENVIRONMENT, {}, True, id="environment"),
        pytest.param(replace(BY_ENVIRONMENT, unasked=True), {}, False, id="pods were admitted without asking"),
        pytest.param(BY_ENVIRONMENT, None, False, id="environment, and a kubelet that admits without asking"),
    ],
)
async def test_what_was_kept_is_enough_or_not(
    folder: Path,
    told: SessionRecord | None,
    held: Mapping[str, list[str]] | None,
    enough: bool,  # noqa: FBT001
) -> None:
    session = made(folder, told, held)
    assert session.resume() is enough
    assert bool(session.devices_now.now) is enough


async def test_records_that_cannot_be_read_are_not_used(folder: Path) -> None:
    session = made(folder)
    (folder / CHECKPOINT).write_text("{")
    assert not session.resume()
    (folder / "session.json").write_text('{"version": 9}')
    assert SessionFile(folder).load() is None


async def test_without_records_it_registers_once_everything_is_known(folder: Path) -> None:
    session, answers = made(folder, told=None), Answers()
    async with KubeletDouble(folder).running() as double, running(session):
        assert not session.resume()
        assert not await session.registered_within(0.05)
        session.devices_now.show((("u0", True),))
        await session.take_over(answers, "environment")
        assert await session.registered_within(5)
        assert await next_of(double.listed) == {"u0": "Healthy"}
        assert answers.asked == 1


async def test_in_another_mode_than_recorded_it_is_asked_what_the_records_left_out(folder: Path) -> None:
    session, answers = made(folder), Answers()
    assert session.resume()
    await session.take_over(answers, "environment")
    assert answers.asked == 1


async def test_each_kubelet_is_told_of_the_devices_and_the_loss_of_one_is_told(folder: Path) -> None:
    session, lost = made(folder), asyncio.Event()
    session.changed = lambda: None if session.registered else lost.set()
    async with running(session):
        assert session.resume()
        for _ in range(2):
            async with KubeletDouble(folder).running() as double:
                await next_of(double.listed)
                lost.clear()
            await asyncio.wait_for(lost.wait(), 5)


async def test_what_is_kept_is_what_is_loaded(folder: Path) -> None:
    session = made(folder, BY_ENVIRONMENT, held={})
    assert session.resume()
    session.remember("environment", (("u2", True),), unasked=False)
    assert SessionFile(folder).load() == replace(BY_ENVIRONMENT, devices=(("u2", True),))


async def test_whom_the_kubelet_has_admitted_without_asking_is_not_known_before_it_is_asked(folder: Path) -> None:
    """One that is killed meanwhile has not said that there is nobody: the next one would register on its word."""

    def enough() -> bool:
        session.remember("environment", TOLD.devices, unasked=False)
        return made(folder, told=None, held={}).resume()

    session = made(folder, told=None, held={})
    session.devices_now.show(TOLD.devices)
    await session.take_over(Answers(), "environment")
    assert not enough()
    async with KubeletDouble(folder).running(), running(session):
        assert await session.registered_within(5)
        assert enough()


async def test_in_another_mode_than_recorded_it_is_known_once_the_kubelet_was_asked(folder: Path) -> None:
    session = made(folder)
    assert session.resume()
    session.remember("environment", TOLD.devices, unasked=False)
    before = SessionFile(folder).load()
    await session.take_over(Answers(), "environment")
    session.remember("environment", TOLD.devices, unasked=False)
    after = SessionFile(folder).load()
    assert [one and one.unasked for one in (before, after)] == [True, False]


class Plugin(Answers):
    """told: how its registration went, in order."""

    def __init__(self) -> None:
        super().__init__()
        self.told: list[str] = []

    def devices(self) -> AsyncIterator[Devices]:
        fakes = FakeDevices()
        fakes.show((("u0", True),))
        return fakes.follow()

    async def registering(self) -> None:
        self.told.append("registering")

    def on_registered(self) -> None:
        self.told.append("registered")

    def on_unregistered(self) -> None:
        self.told.append("unregistered")

    def on_problem(self, message: str) -> None:
        self.told.append(message.partition(":")[0])


def registration(folder: Path, plugin: Plugin | None = None) -> Registration:
    return Registration(plugin or Plugin(), folder, RESOURCE, lambda _: 0.01, say_nothing)


@asynccontextmanager
async def registering(folder: Path) -> AsyncIterator[list[str]]:
    """What the plugin was told, in order."""
    plugin = Plugin()
    async with running(registration(folder, plugin)):
        yield plugin.told


async def test_a_kubelet_that_runs_already_is_registered_with(folder: Path) -> None:
    async with KubeletDouble(folder).running() as double, registering(folder) as told:
        assert await next_of(double.registered) is not None
        assert await next_of(double.listed) == {"u0": "Healthy"}
        assert (await double.allocate(["u0"])).envs["IDS"] == "u0"
        assert told == ["unregistered", "registering", "", "registered"]


async def test_a_kubelet_that_starts_later_and_again_is_registered_with_each_time(folder: Path) -> None:
    async with registering(folder):
        for _ in range(3):
            async with KubeletDouble(folder).running() as double:
                assert await next_of(double.registered) is not None
                assert await next_of(double.listed) == {"u0": "Healthy"}
                assert (await double.allocate(["u0"])).envs["IDS"] == "u0"
            # As a kubelet does when it starts.
            (folder / SOCKET_NAME).unlink(missing_ok=True)


async def test_a_kubelet_that_refuses_is_asked_again(folder: Path) -> None:
    double = KubeletDouble(folder)
    double.refusal = "not yet"
    async with double.running(), registering(folder) as told:
        assert await next_of(double.refused) == "not yet"
        assert await next_of(double.refused) == "not yet"
        assert "registering x.com/mem with the kubelet" in told
        double.refusal = ""
        assert await next_of(double.registered) is not None


async def test_it_can_be_cancelled_while_it_registers_with_a_new_kubelet(folder: Path) -> None:
    double = KubeletDouble(folder)
    async with double.running():
        task = asyncio.create_task(registration(folder).run())
        await next_of(double.registered)
        await next_of(double.listed)
        assert (folder / SOCKET_NAME).exists()
        # Whoever still follows the devices gives the server a second to end, in the midst of which all is to end.
        (folder / "new.sock").touch()
        (folder / "new.sock").rename(folder / "kubelet.sock")
        await asyncio.sleep(0.1)
        task.cancel()
        done, _ = await asyncio.wait({task}, timeout=5)
        assert done
        assert not (folder / SOCKET_NAME).exists()


@pytest.mark.parametrize("again", [False, True], ids=["once", "twice"])
@pytest.mark.parametrize("steps", range(12))
async def test_whenever_serving_is_cancelled_no_socket_stays(folder: Path, steps: int, *, again: bool) -> None:
    """steps: of the event loop, until it is cancelled, and once more as long after that."""

    async def served() -> None:
        async with serving(Plugin(), folder / SOCKET_NAME):
            await asyncio.Event().wait()

    task = asyncio.create_task(served())
    for _ in range(1 + again):
        for _ in range(steps):
            await asyncio.sleep(0)
        task.cancel()
    await asyncio.wait({task})
    assert not (folder / SOCKET_NAME).exists()


async def test_a_kubelet_that_drops_the_device_stream_is_registered_with_again(folder: Path) -> None:
    served = registration(folder)
    async with KubeletDouble(folder).running() as double, running(served):
        for _ in range(3):
            await next_of(double.registered)
            assert await next_of(double.listed) == {"u0": "Healthy"}
            await double.stop_following()
            served.dropped()


async def test_a_socket_that_cannot_be_created_ends_the_registration(folder: Path) -> None:
    (folder / SOCKET_NAME).mkdir()
    async with KubeletDouble(folder).running():
        with pytest.raises(ExceptionGroup):
            await asyncio.wait_for(registration(folder).run(), 5)
