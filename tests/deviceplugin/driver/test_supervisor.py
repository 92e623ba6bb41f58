"""Cards that hang, fail and kill whoever asks them, in real processes: what each costs the others."""

import asyncio
import os
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

import pynvml  # type: ignore[import-untyped] # nvidia-ml-py has no annotations
import pytest

from deviceplugin.driver.cards import CardFailed, CardReading, NotOpened, SourceFailed, Xid
from deviceplugin.driver.process import DriverProcess
from deviceplugin.driver.processes import DriverLimits
from deviceplugin.driver.supervisor import SupervisedDriver
from tests.support.repository import ROOT

SOON_S: Final = 20.0
# Where nothing hangs the real ones: a process that gets no CPU for a while makes no card silent.
LIMITS: Final = DriverLimits(start_s=0.05, slowest_s=0.2)
# Where a card hangs: soon enough for a test, and later than a healthy card answers on a busy machine.
HANGING: Final = replace(LIMITS, answer_s=2.0, patience_s=0.02, stuck_s=3.0, hung_s=2.5, again_s=0.4, longest_s=2.0)


@dataclass
class Rig:
    """Eight cards in a process of its own; what happens to them: `tests.support.node.nvml_child`."""

    folder: Path
    driver: SupervisedDriver
    uuids: list[str]
    pids: list[int]

    def happens(self, name: str, text: str = "") -> None:
        # Whole at once: the other side looks all the time.
        (self.folder / "new").write_text(text)
        (self.folder / "new").rename(self.folder / name)

    def heals(self, name: str) -> None:
        (self.folder / name).unlink()

    async def silent(self, uuids: Iterable[str] = ()) -> set[str]:
        """The cards that did not answer when all of these were asked."""
        answers = await self.driver.readings(list(uuids) or self.uuids)
        return {uuid for uuid, answer in answers.items() if not isinstance(answer, CardReading)}

    async def rounds(self, until: Callable[[set[str]], bool]) -> list[set[str]]:
        """Ask all, again and again, until that holds of those that did not answer; those of each round."""
        rounds: list[set[str]] = []
        async with asyncio.timeout(SOON_S):
            while not rounds or not until(rounds[-1]):
                rounds.append(await self.silent())
        return rounds


@asynccontextmanager
async def driving(folder: Path, cards: int = 8, limits: DriverLimits = LIMITS) -> AsyncIterator[Rig]:
    pids: list[int] = []

    async def start() -> DriverProcess:
        command = (sys.executable, "-m", "tests.support.node.nvml_child", str(folder), str(cards))
        process = await DriverProcess.start(command)
        pids.append(process.pid)
        return process

    driver = SupervisedDriver(start, limits)
    try:
        yield Rig(folder, driver, [f"GPU-{number}" for number in range(cards)], pids)
    finally:
        await driver.close()
        assert not any(alive(pid) for pid in pids)


@pytest.fixture(autouse=True)
def _in_the_repository(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


async def test_a_card_that_hangs_costs_only_itself_and_the_driver_is_not_closed(tmp_path: Path) -> None:
    async with driving(tmp_path, limits=HANGING) as rig:
        await rig.driver.cards()
        rig.happens("hang-3")
        for silent in await rig.rounds(lambda _: len(rig.pids) > 1):
            assert silent <= {"GPU-3"}
        # The process of the others is the one that it was.
        assert alive(rig.pids[0])
        rig.happens("xids-5", "31")
        assert await asyncio.wait_for(rig.driver.events(), SOON_S) == [Xid("GPU-5", 31)]
        found = await rig.driver.cards()
        assert len(found.cards) == 7
        assert found.unasked == {"GPU-3"}
        rig.heals("hang-3")
        assert (await rig.rounds(lambda silent: not silent))[-1] == set()
        # It may be asked with the others again, and its own process is gone.
        assert (await rig.driver.cards()).unasked == frozenset()
        assert [alive(pid) for pid in rig.pids] == [True] + [False] * (len(rig.pids) - 1)


async def test_a_card_that_answers_late_is_asked_again_only_then(tmp_path: Path) -> None:
    async with driving(tmp_path, limits=replace(HANGING, hung_s=SOON_S)) as rig:
        await rig.driver.cards()
        rig.happens("hang-3")
        assert await rig.silent() == {"GPU-3"}
        answers = await rig.driver.readings(["GPU-3"])
        assert "has not answered an earlier call" in str(answers["GPU-3"])
        rig.heals("hang-3")
        assert (await rig.rounds(lambda silent: not silent))[-1] == set()
        assert rig.driver.processes.starts == 1


async def test_a_card_that_has_all_others_hang_is_found_and_left_out(tmp_path: Path) -> None:
    # One card is asked after the other, so that the one that hangs is the first to wait.
    async with driving(tmp_path, limits=replace(HANGING, patience_s=0.2)) as rig:
        await rig.driver.cards()
        rig.happens("stuck-3")
        rounds = await rig.rounds(lambda silent: silent == {"GPU-3"})
        # Three times without an answer would make them suspect.
        assert max(sum(uuid in silent for silent in rounds) for uuid in set(rig.uuids) - {"GPU-3"}) < 3
        assert not alive(rig.pids[0])
        for _ in range(5):
            assert await rig.silent() == {"GPU-3"}


async def test_a_process_that_dies_costs_no_card_an_answer(tmp_path: Path) -> None:
    async with driving(tmp_path) as rig:
        await rig.driver.cards()
        os.kill(rig.pids[0], signal.SIGKILL)
        assert await rig.silent() == set()
        rig.happens("die-2")
        assert await rig.silent() == set()
        assert len(rig.pids) == 3


async def test_a_card_that_kills_whoever_asks_it_is_asked_apart(tmp_path: Path) -> None:
    # One card is asked after the other, however busy the machine is.
    async with driving(tmp_path, limits=replace(LIMITS, answer_s=SOON_S, patience_s=SOON_S)) as rig:
        await rig.driver.cards()
        for _ in range(2):
            rig.happens("die-2")
            assert await rig.silent() == set()
        common = rig.pids[-1]
        rig.happens("die-2")
        assert await rig.silent() == {"GPU-2"}
        assert alive(common)


async def test_a_card_that_is_gone_fails_for_itself(tmp_path: Path) -> None:
    async with driving(tmp_path, cards=2) as rig:
        await rig.driver.cards()
        answers = await rig.driver.readings(["GPU-0", "GPU-9"])
        failed = answers["GPU-9"]
        assert isinstance(answers["GPU-0"], CardReading)
        assert isinstance(failed, CardFailed)
        assert failed.lost


async def test_a_released_card_is_touched_by_no_process(tmp_path: Path) -> None:
    async with driving(tmp_path, cards=3) as rig:
        await rig.driver.cards()
        before = rig.pids[0]
        await rig.driver.release(frozenset({"GPU-1"}))
        assert not alive(before)
        # If anything asked it now, that would hang.
        rig.happens("hang-1")
        assert await rig.silent(["GPU-0", "GPU-2"]) == set()
        found = await rig.driver.cards()
        assert ([card.uuid for card in found.cards], found.unasked) == (["GPU-0", "GPU-2"], frozenset({"GPU-1"}))
        rig.heals("hang-1")
        await rig.driver.release(frozenset())
        assert len((await rig.driver.cards()).cards) == 3
        assert await rig.silent() == set()


async def test_a_card_that_is_released_while_it_is_asked_is_not_asked_by_the_next_process(tmp_path: Path) -> None:
    async with driving(tmp_path, cards=2, limits=DriverLimits()) as rig:
        await rig.driver.cards()
        rig.happens("hang-1")
        asking = asyncio.create_task(rig.driver.readings(["GPU-1"]))
        await asyncio.sleep(0.1)
        await rig.driver.release(frozenset({"GPU-1"}))
        assert str((await asking)["GPU-1"]) == "card GPU-1 is released"


async def test_a_driver_that_cannot_be_opened_is_tried_by_a_new_process(tmp_path: Path) -> None:
    async with driving(tmp_path, cards=1) as rig:
        rig.happens("broken", str(pynvml.NVML_ERROR_LIB_RM_VERSION_MISMATCH))
        with pytest.raises(NotOpened, match="the driver was replaced after this container was made"):
            await rig.driver.cards()
        rig.heals("broken")
        assert await asyncio.wait_for(_until_found(rig), SOON_S) == 1
        assert len(rig.pids) > 1


async def test_a_driver_that_cannot_be_opened_is_not_tried_all_the_time(tmp_path: Path) -> None:
    async with driving(tmp_path, cards=1, limits=DriverLimits(start_s=SOON_S)) as rig:
        rig.happens("broken", str(pynvml.NVML_ERROR_DRIVER_NOT_LOADED))
        for _ in range(10):
            with pytest.raises(NotOpened, match="kernel module"):
                await rig.driver.cards()
        assert len(rig.pids) == 2


class Held:
    """A process that the kernel does not let go: killing it does nothing."""

    def __init__(self, process: DriverProcess) -> None:
        self._process = process
        self.pid, self.ask, self.let_go = process.pid, process.ask, process.kill

    @property
    def alive(self) -> bool:
        return self._process.alive

    def kill(self) -> None:
        pass

    async def ended(self, within_s: float) -> bool:
        del within_s
        return not self.alive


async def test_processes_that_cannot_be_ended_are_few_and_are_reported(tmp_path: Path) -> None:
    held: list[Held] = []

    async def start() -> Held:
        command = (sys.executable, "-m", "tests.support.node.nvml_child", str(tmp_path), "2")
        held.append(Held(await DriverProcess.start(command)))
        return held[-1]

    driver = SupervisedDriver(start, replace(HANGING, answer_s=0.3, stuck_s=0.4))
    (tmp_path / "stuck-0").touch()
    driver.remember([])
    try:
        ended_at_s = time.monotonic() + SOON_S
        while not (problems := driver.problems()) or len(driver.processes.abandoned()) < 3:
            assert time.monotonic() < ended_at_s
            try:
                await driver.cards()
                await driver.release(frozenset({f"GPU-{len(held)}"}))
            except SourceFailed:
                await asyncio.sleep(0.05)
        assert str(held[0].pid) in problems[0]
        assert len(held) <= 4
    finally:
        for one in held:
            one.let_go()
        for one in held:
            await one._process.ended(SOON_S)  # noqa: SLF001 - of this test


async def _until_found(rig: Rig) -> int:
    while True:
        try:
            return len((await rig.driver.cards()).cards)
        except SourceFailed:
            await asyncio.sleep(0.02)


ORPHAN: Final = """
import asyncio, os, sys
from deviceplugin.driver.process import DriverProcess
async def main():
    process = await DriverProcess.start((sys.executable, "-m", "tests.support.node.nvml_child", sys.argv[1], "1"))
    print(process.pid, flush=True)
    await asyncio.sleep(60)
asyncio.run(main())
"""


@pytest.mark.parametrize("ending", [signal.SIGTERM, signal.SIGKILL])
async def test_no_process_outlives_the_plugin_however_that_ends(tmp_path: Path, ending: signal.Signals) -> None:
    parent = await asyncio.create_subprocess_exec(
        sys.executable, "-c", ORPHAN, str(tmp_path), stdout=asyncio.subprocess.PIPE, cwd=ROOT
    )
    assert parent.stdout is not None
    child = int(await asyncio.wait_for(parent.stdout.readline(), SOON_S))
    parent.send_signal(ending)
    await parent.wait()
    async with asyncio.timeout(SOON_S):
        while alive(child):  # noqa: ASYNC110 - it is the kernel that ends it
            await asyncio.sleep(0.01)


async def test_a_storm_of_errors_is_counted_in_few_messages(tmp_path: Path) -> None:
    async with driving(tmp_path, cards=1) as rig:
        await rig.driver.cards()
        rig.happens("xids-0", "\n".join(["94"] * 200))
        heard: list[Xid] = []
        async with asyncio.timeout(SOON_S):
            while sum(xid.times for xid in heard) < 200:
                heard += await rig.driver.events()
        assert {(xid.uuid, xid.number) for xid in heard} == {("GPU-0", 94)}
        assert len(heard) <= 3


def test_the_plugin_itself_does_not_load_nvml() -> None:
    looked = "import sys, deviceplugin.backends; sys.exit('pynvml' in sys.modules)"
    subprocess.run([sys.executable, "-c", looked], check=True)
