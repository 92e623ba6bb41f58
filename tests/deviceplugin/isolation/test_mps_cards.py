"""The daemons of MPS, with a double of NVIDIA's program: a process for each card, that starts, answers and quits."""

import asyncio
import os
import signal
import tempfile
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

import pytest
from prometheus_client import CollectorRegistry

from config.settings.deviceplugin import Mps
from deviceplugin.driver.cards import EXCLUSIVE_PROCESS, CardReading, NoAnswer
from deviceplugin.isolation.compute_modes import ComputeModes
from deviceplugin.isolation.mps_cards import MpsCards, MpsMetrics
from deviceplugin.isolation.mps_daemon import MpsPace
from scheduler.kube.port import PodKey
from tests.support.node import mps_double
from tests.support.node.ports import Recorded

CARD, OTHER = "GPU-aaaa", "GPU-bbbb"
POD = PodKey("ns", "p", "uid-p")
PACE = MpsPace(answer_s=1.0, start_s=10.0, again_s=0.02, look_s=0.05, quit_s=2.0, drain_s=1.0)
SOON_S = 40.0


@dataclass
class Node:
    """What is around the daemons. modes: of the cards, as the driver has them."""

    folder: Path
    wanted: set[str] = field(default_factory=lambda: {CARD})
    modes: dict[str, str] = field(default_factory=lambda: {CARD: "", OTHER: ""})
    events: Recorded = field(default_factory=Recorded)
    registry: CollectorRegistry = field(default_factory=CollectorRegistry)
    refuses: bool = False
    daemons: Literal["plugin", "external"] = "plugin"
    driver: str = "580.65.06"
    live: set[str] = field(default_factory=lambda: {POD.uid})
    attempts: list[int] = field(default_factory=list)

    def backoff_s(self, attempt: int) -> float:
        self.attempts.append(attempt)
        return 0.01

    async def set_compute_mode(self, uuid: str, mode: str) -> None:
        if self.refuses:
            message = "no permission"
            raise NoAnswer(message)
        self.modes[uuid] = mode

    def clients(self, uuid: str) -> list[PodKey]:
        return [POD] if uuid == CARD else []

    @property
    def readings(self) -> dict[str, CardReading]:
        return {uuid: CardReading(used_mib=0, compute_mode=mode) for uuid, mode in self.modes.items()}

    @property
    def settings(self) -> Mps:
        control = str(mps_double.installed(self.folder))
        return Mps(control=control, directory=str(self.folder / "mps"), daemons=self.daemons)

    def pid(self, uuid: str = CARD) -> int:
        return int((self.folder / "mps" / uuid / mps_double.PID_FILE).read_text())

    def starts(self, uuid: str = CARD) -> int:
        log = self.folder / "mps" / "log" / uuid / mps_double.LOG
        return len(log.read_text().splitlines()) if log.exists() else 0

    def pipes(self, uuid: str = CARD) -> Path:
        return self.folder / "mps" / uuid

    def commands(self, uuid: str = CARD) -> list[str]:
        """Commands that the daemon has carried out, without its first one."""
        log = self.folder / "mps" / "log" / uuid / mps_double.COMMANDS
        return log.read_text().splitlines() if log.exists() else []

    def metric(self, name: str, uuid: str = CARD) -> float | None:
        return self.registry.get_sample_value(f"gpushare_device_plugin_mps_daemon_{name}", {"UUID": uuid})


@pytest.fixture
def node() -> Iterator[Node]:
    # A socket's path has at most 107 characters, and what is configured is held to that.
    with tempfile.TemporaryDirectory(prefix="mps-", dir="/tmp") as folder:
        made = Node(Path(folder))
        yield made
        for found in made.folder.glob(f"mps/*/{mps_double.PID_FILE}"):
            with suppress(ProcessLookupError):
                os.kill(int(found.read_text()), signal.SIGKILL)


@asynccontextmanager
async def daemons(node: Node) -> AsyncIterator[MpsCards]:
    (node.folder / "state").mkdir(exist_ok=True)
    node.registry = CollectorRegistry()
    cards = MpsCards(
        settings=node.settings,
        modes=ComputeModes(node.folder / "state", node, node),
        node=node,
        recorder=node.events,
        backoff_s=node.backoff_s,
        metrics=MpsMetrics(node.registry),
        pace=PACE,
    )
    running = asyncio.create_task(cards.run())
    try:
        yield cards
        await cards.stop()
    finally:
        running.cancel()
        await asyncio.wait({running})


async def eventually(wanted: Callable[[], bool]) -> None:
    """Wait until it holds."""
    async with asyncio.timeout(SOON_S):
        while not wanted():  # noqa: ASYNC110 - other processes tell nobody
            await asyncio.sleep(0.01)


async def up(cards: MpsCards, uuid: str = CARD) -> str:
    """Why no client may start, after some time."""
    await asyncio.sleep(0)
    await eventually(lambda: bool(cards.problems()) or cards.has(uuid))
    return await cards.ready(uuid, SOON_S)


async def test_a_daemon_has_its_card_alone_and_nobody_else_has_it(node: Node) -> None:
    async with daemons(node) as cards:
        assert await up(cards) == ""
        assert node.modes == {CARD: EXCLUSIVE_PROCESS, OTHER: ""}
        assert (node.folder / "mps" / "log" / CARD / mps_double.LOG).read_text() == f"{CARD}\n"
        assert (node.folder / "mps" / CARD).stat().st_mode & 0o7777 == 0o755
        assert (node.metric("ready"), cards.problems(), node.events) == (1.0, (), [])
        pid = node.pid()
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)
    assert node.modes == {CARD: "", OTHER: ""}


async def test_each_card_has_its_own(node: Node) -> None:
    node.wanted = {CARD, OTHER}
    async with daemons(node) as cards:
        assert [await up(cards, uuid) for uuid in (CARD, OTHER)] == ["", ""]
        assert node.pid(CARD) != node.pid(OTHER)


async def test_one_that_ends_is_started_again_and_its_clients_are_told(node: Node) -> None:
    async with daemons(node) as cards:
        await up(cards)
        os.kill(node.pid(), signal.SIGKILL)
        await eventually(lambda: bool(node.events))
        await eventually(lambda: node.metric("ready") == 1.0)
        assert [(one.reason, one.pod) for one in node.events] == [("GPUIsolationLost", POD)]
        assert "its MPS daemon has ended with signal 9" in node.events[0].note
        assert (node.metric("ends_total"), node.starts()) == (1.0, 1)


async def test_one_that_ends_again_and_again_is_started_at_growing_intervals(node: Node) -> None:
    async with daemons(node) as cards:
        for ended in range(1, 4):
            assert await up(cards) == ""
            os.kill(node.pid(), signal.SIGKILL)
            await eventually(lambda times=ended: node.metric("ends_total") == times)  # type: ignore[misc]
        assert node.attempts == [1, 2, 3]


async def test_one_that_is_silent_three_times_is_replaced(node: Node) -> None:
    async with daemons(node) as cards:
        await up(cards)
        before = node.pid()
        (node.folder / "mps" / CARD / mps_double.SILENT).touch()
        await eventually(lambda: bool(node.events))
        await eventually(lambda: node.metric("ready") == 1.0)
        assert "did not answer within 1 s" in node.events[0].note
        assert node.pid() != before


async def test_while_none_starts_no_client_does_and_the_reason_is_said(node: Node) -> None:
    (node.folder / "mps").mkdir()
    (node.folder / "mps" / mps_double.REFUSE).touch()
    async with daemons(node) as cards:
        await eventually(lambda: any("exit code 1" in problem for problem in cards.problems()))
        assert "its MPS daemon has ended with exit code 1" in await cards.ready(CARD, 0.0)
        (node.folder / "mps" / mps_double.REFUSE).unlink()
        assert await cards.ready(CARD, SOON_S) == ""
        assert node.events == []


async def test_told_to_stop_between_two_tries_it_gives_the_card_back_all_the_same(node: Node) -> None:
    (node.folder / "mps").mkdir()
    (node.folder / "mps" / mps_double.REFUSE).touch()
    async with daemons(node) as cards:
        await eventually(lambda: any("exit code 1" in problem for problem in cards.problems()))
        assert node.modes[CARD] == EXCLUSIVE_PROCESS
    assert node.modes[CARD] == ""


async def test_a_card_whose_mode_cannot_be_set_has_no_daemon(node: Node) -> None:
    node.refuses = True
    async with daemons(node) as cards:
        await eventually(lambda: any("no permission" in problem for problem in cards.problems()))
        assert node.starts() == 0


async def test_a_program_that_is_not_there_is_said(node: Node) -> None:
    async with daemons(node) as cards:
        cards.settings = Mps(control="/nowhere/mps", directory=str(node.folder / "mps"))
        await eventually(lambda: any("No such file" in problem for problem in cards.problems()))


async def test_a_card_that_is_taken_out_of_use_loses_its_daemon(node: Node) -> None:
    async with daemons(node) as cards:
        await up(cards)
        pid, node.wanted = node.pid(), set()
        cards.cards_changed()
        await eventually(lambda: node.modes[CARD] == "")
        with pytest.raises(ProcessLookupError):
            os.kill(pid, 0)
        assert "it has no MPS daemon" in await cards.ready(CARD, 0.0)
        assert ("taken out of use" in node.events[0].note, node.metric("ready")) == (True, None)


async def test_a_daemon_of_somebody_else_is_used_and_left_running(node: Node) -> None:
    async with daemons(node) as first:
        await up(first)
        async with daemons(node) as second:
            assert await up(second) == ""
            assert node.starts() == 1
        os.kill(node.pid(), 0)
        assert (node.modes[CARD], node.events) == (EXCLUSIVE_PROCESS, [])


async def test_where_others_run_the_daemons_none_is_started(node: Node) -> None:
    node.daemons = "external"
    async with daemons(node) as external:
        await eventually(lambda: any("no MPS daemon answers" in problem for problem in external.problems()))
        assert (node.starts(), node.modes[CARD]) == (0, EXCLUSIVE_PROCESS)
        node.daemons = "plugin"
        async with daemons(node) as of_others:
            assert await up(of_others) == ""
            assert await external.ready(CARD, SOON_S) == ""
            assert node.starts() == 1


async def test_the_mode_is_given_back_where_no_daemon_is_wanted_any_more(node: Node) -> None:
    async with daemons(node) as cards:
        await up(cards)
        left = (node.folder / "state" / "compute-modes.json").read_text()
    (node.folder / "state" / "compute-modes.json").write_text(left)
    node.modes[CARD], node.wanted = EXCLUSIVE_PROCESS, set()
    async with daemons(node):
        await eventually(lambda: node.modes[CARD] == "")
