"""One real cuInit for each card, in processes that load the stand-in of libcuda."""

import asyncio
from collections.abc import AsyncIterator
from functools import partial
from pathlib import Path
from typing import Final, TypeVar, cast

import pytest

from deviceplugin.driver import driver_root
from deviceplugin.driver.calls import Call, Worker, WorkerDied
from deviceplugin.driver.cards import NoAnswer
from deviceplugin.driver.cuda import NO_MEMORY, CudaAnswer, cause_of, sentence
from deviceplugin.driver.cuda_trials import CudaTrials
from deviceplugin.driver.process import DriverProcess, start_cuda
from tests.support.nvidia import libraries
from tests.support.nvidia.world import DEVICES, VARIABLE, World, card, uuid_of

FIRST, SECOND = uuid_of(0), uuid_of(1)
LIBRARIES: Final = "LD_LIBRARY_PATH"
T = TypeVar("T")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """With the stand-in of libcuda, compiled."""
    return libraries.compile_cuda(tmp_path_factory.mktemp("nvidia")).parent


@pytest.fixture
def world(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> World:
    """Two cards on which CUDA starts."""
    made = World(tmp_path / "world", [card(0), card(1)], ["fault cuInit 0 0", "fault cuInit 1 0"])
    made.write()
    monkeypatch.setenv(VARIABLE, str(made.path))
    monkeypatch.setenv(DEVICES, str(tmp_path / "dev"))
    monkeypatch.setenv(LIBRARIES, str(folder))
    return made


def replaced(world: World, *lines: str) -> None:
    world.lines = list(lines)
    world.write()


class Started:
    """Processes that try CUDA; those that were started."""

    def __init__(self) -> None:
        self.workers: list[Worker] = []
        self.one = asyncio.Event()

    async def __call__(self, uuid: str) -> Worker:
        self.workers.append(await start_cuda("", uuid))
        self.one.set()
        return self.workers[-1]


@pytest.fixture
async def started() -> AsyncIterator[Started]:
    made = Started()
    yield made
    assert not any(worker.alive for worker in made.workers)


async def test_each_card_is_tried_alone(world: World, started: Started) -> None:
    replaced(world, "fault cuInit 0 0", "fault cuInit 1 999")
    trials = CudaTrials(started)
    assert [await trials.answer(uuid) for uuid in (FIRST, SECOND)] == [CudaAnswer(0), CudaAnswer(999)]


@pytest.mark.usefixtures("world")
async def test_no_process_holds_the_card_once_it_has_answered(started: Started) -> None:
    assert (await CudaTrials(started).answer(FIRST)).starts
    assert not started.workers[0].alive


async def test_without_device_nodes_cuda_finds_no_card(world: World, started: Started) -> None:
    replaced(world)
    assert await CudaTrials(started).answer(FIRST) == CudaAnswer(100)


async def test_a_cuinit_that_hangs_is_ended(world: World, started: Started) -> None:
    replaced(world, "hang cuInit 0", "fault cuInit 1 0")
    trials = CudaTrials(started, within_s=1.5)
    answer = await trials.answer(FIRST)
    assert (answer.code, answer.detail, answer.reason) == (None, "cuInit did not return within 1.5 s", "cuda-silent")
    assert not started.workers[0].alive
    assert (await trials.answer(SECOND)).starts


@pytest.mark.usefixtures("world")
async def test_without_libcuda_the_card_is_no_worse(started: Started, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(LIBRARIES)
    answer = await CudaTrials(started).answer(FIRST)
    assert answer.lacking.startswith("libcuda.so.1: cannot open shared object file")
    assert (answer.reason, answer.starts) == ("", False)


async def test_a_trial_that_is_stopped_says_nothing_of_the_card(world: World, started: Started) -> None:
    replaced(world, "hang cuInit 0")
    trials = CudaTrials(started)
    asked = asyncio.create_task(trials.answer(FIRST))
    await started.one.wait()
    await trials.stop()
    assert not started.workers[0].alive
    with pytest.raises(NoAnswer, match="stopped"):
        await asked


class Process:
    """A process that answers at once, or never; mortal: the kernel lets it go when it is killed."""

    pid = 4242

    def __init__(self, answer: CudaAnswer | None = None, *, mortal: bool = True) -> None:
        self.alive, self._answer, self._mortal = True, answer, mortal
        self._killed = asyncio.Event()

    async def ask(self, _: Call[T]) -> T:
        if self._answer is None:
            await self._killed.wait()
            raise WorkerDied("killed")
        return cast("T", self._answer)

    def kill(self) -> None:
        self.alive = not self._mortal
        self._killed.set()

    async def ended(self, _: float) -> bool:
        return not self.alive


async def test_a_process_that_the_kernel_does_not_let_go_costs_its_own_card_alone() -> None:
    async def start(uuid: str) -> Worker:
        return Process(mortal=False) if uuid == FIRST else Process(CudaAnswer(0))

    trials = CudaTrials(start, within_s=0.01)
    assert (await trials.answer(FIRST)).detail == "cuInit did not return within 0.01 s"
    assert (await trials.answer(SECOND)).starts
    assert "process 4242 hangs in the kernel" in (await trials.answer(FIRST)).detail
    assert trials.problem() == "processes that test CUDA hang in the kernel and cannot be killed: PID 4242"


async def test_other_cards_do_not_wait_for_one_whose_cuinit_hangs() -> None:
    begun = asyncio.Event()

    async def start(uuid: str) -> Worker:
        begun.set()
        return Process(None if uuid == FIRST else CudaAnswer(0))

    trials = CudaTrials(start)
    hanging = asyncio.create_task(trials.answer(FIRST))
    await begun.wait()
    async with asyncio.timeout(10):
        assert (await trials.answer(SECOND)).starts
    assert not hanging.done()
    await trials.stop()
    with pytest.raises(NoAnswer, match="stopped"):
        await hanging


async def test_a_process_that_dies_says_how() -> None:
    async def start(_: str) -> Worker:
        return await DriverProcess.start(("/bin/sh", "-c", "kill -SEGV $$"))

    answer = await CudaTrials(start).answer(FIRST)
    assert answer.reason == "cuda-silent"
    assert "has ended" in answer.detail


@pytest.mark.parametrize(
    "script", ["kill -KILL $$", "exec <&- >&-; sleep 0.2; kill -KILL $$"], ids=["at once", "after its files are closed"]
)
async def test_a_process_that_the_memory_limit_of_the_container_ends_says_nothing_of_the_card(script: str) -> None:
    async def start(_: str) -> Worker:
        return await DriverProcess.start(("/bin/sh", "-c", script))

    answer = await CudaTrials(start).answer(FIRST)
    assert (answer.reason, answer.starts) == ("", False)
    assert answer.lacking.startswith("the plugin's container has too little memory for CUDA")


async def test_a_process_that_closes_its_output_and_goes_on_is_killed_and_that_is_no_memory_limit() -> None:
    async def start(_: str) -> Worker:
        return await DriverProcess.start(("/bin/sh", "-c", "exec <&- >&-; exec sleep 60"))

    answer = await CudaTrials(start).answer(FIRST)
    assert (answer.reason, answer.starts, answer.lacking) == ("cuda-silent", False, "")


async def test_too_little_memory_for_cuinit_says_nothing_of_the_card(world: World, started: Started) -> None:
    replaced(world, "fault cuInit 0 2")
    assert await CudaTrials(started).answer(FIRST) == CudaAnswer(lacking=NO_MEMORY)


@pytest.mark.parametrize(
    ("reason", "what", "remedy"),
    [
        ("cuda-100", "/dev/nvidiactl", "ls -l /dev/nvidia*"),
        ("cuda-802", "the fabric manager is not running", "systemctl status nvidia-fabricmanager"),
        ("cuda-999", "/dev/nvidia-uvm is missing or has the major number", "nvidia-modprobe -u -c=0"),
        ("cuda-silent", "did not return", "dmesg"),
        ("cuda-47", "cuInit returned 47", "dmesg"),
    ],
)
def test_each_answer_has_a_cause_and_a_next_command(reason: str, what: str, remedy: str) -> None:
    cause = cause_of(reason)
    assert cause is not None
    assert what in cause.what
    assert remedy in cause.remedy


def test_a_card_that_its_compute_mode_keeps_for_others_is_no_worse() -> None:
    """Programs of an MPS server have it, and a process without that server does not."""
    assert (CudaAnswer(46).starts, CudaAnswer(46).reason) == (True, "")


def test_other_reasons_are_not_of_cuda() -> None:
    assert (cause_of("xid-79"), sentence("lost")) == (None, "")


@pytest.mark.usefixtures("world")
async def test_cuda_is_loaded_from_the_root_of_a_driver(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(LIBRARIES)
    root = tmp_path / "root"
    (root / driver_root.DIRECTORIES[0]).mkdir(parents=True)
    (root / driver_root.DIRECTORIES[0] / libraries.CUDA).symlink_to(folder / libraries.CUDA)
    for of_root, expected in ((root, CudaAnswer(0)), (tmp_path, None)):
        trials = CudaTrials(partial(start_cuda, str(of_root)))
        found = await trials.answer(FIRST)
        assert found == expected if expected else "no libcuda.so.1 under driverRoot" in found.lacking
