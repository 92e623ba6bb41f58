"""An operator has the plugin let go of cards: by the socket, by the annotation; and they come back."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from deviceplugin import line_socket
from deviceplugin.driver.calls import Worker
from deviceplugin.driver.cards import DriverCard, SourceFailed
from deviceplugin.driver.process import DriverThreads
from deviceplugin.driver.simulated import SimulatedDriver
from deviceplugin.driver.supervisor import SupervisedDriver
from deviceplugin.health.monitor import CardKeeper, Pace
from deviceplugin.health.record import HealthFile
from deviceplugin.health.releases import Releases, socket_path
from deviceplugin.health.rules import classes
from deviceplugin.health.states import CardStates
from deviceplugin.line_socket import Refusal
from scheduler.process.clock import Clock

CARDS = (
    DriverCard(index=0, uuid="GPU-a", model="M", memory_mib=1024),
    DriverCard(index=1, uuid="GPU-b", model="M", memory_mib=1024),
)


@dataclass
class Rig:
    """Two simulated cards and who may let go of them. now_s: the wall clock."""

    folder: Path
    now_s: float = 1000.0
    allocated: dict[str, int] = field(default_factory=dict)
    releases: Releases = field(init=False)
    news: asyncio.Event = field(default_factory=asyncio.Event)

    async def until(self, holds: Callable[[], bool]) -> None:
        while not holds():
            await self.news.wait()
            self.news.clear()

    def released(self) -> dict[str, float]:
        return self.releases.keeper.states.released()

    def allocated_units(self) -> dict[str, int]:
        return self.allocated

    async def told(self, **order: object) -> str:
        return await line_socket.ask(socket_path(self.folder), order)


@asynccontextmanager
async def operating(folder: Path, *, now_s: float = 1000.0) -> AsyncIterator[Rig]:
    simulated, rig = SimulatedDriver(CARDS, ()), Rig(folder, now_s)
    healths = HealthFile(folder, "boot")

    async def start() -> Worker:
        return DriverThreads(simulated.opened())

    clock = Clock(wall_ns=lambda: int(rig.now_s * 1e9))
    keeper = CardKeeper(
        driver=SupervisedDriver(start),
        states=CardStates(classes((), ())),
        forget=False,
        pace=Pace(reading_s=0.02),
        clock=clock,
        on_change=rig.news.set,
        on_xid=lambda _: None,
        on_cuda=lambda: None,
    )
    rig.releases = Releases(keeper=keeper, allocations=rig, clock=clock)
    keeper.states.remember(CARDS, healths.load())
    task = asyncio.create_task(keeper.run())
    try:
        async with line_socket.serve(socket_path(folder), rig.releases.serve_line), asyncio.timeout(10):
            await rig.until(lambda: bool(keeper.states.cards))
            yield rig
            assert not task.done()
            healths.save(keeper.states.healths)
    finally:
        task.cancel()
        await asyncio.wait({task})


async def test_a_card_is_released_for_ten_minutes_and_said_so(tmp_path: Path) -> None:
    async with operating(tmp_path) as rig:
        said = await rig.told(cards=["1"])
        assert said == "card 1 (GPU-b) is released until 00:26:40 UTC and takes no new pods"
        assert rig.released() == {"GPU-b": 1600.0}
        rig.now_s = 1601.0
        await rig.until(lambda: not rig.released())


async def test_cards_are_taken_back_when_the_operator_is_done(tmp_path: Path) -> None:
    async with operating(tmp_path) as rig:
        await rig.told(cards=["all"], forS=60)
        assert rig.released() == {"GPU-a": 1060.0, "GPU-b": 1060.0}
        assert await rig.told(cards=["GPU-a"], done=True) == "card 0 (GPU-a) is reclaimed"
        assert list(rig.released()) == ["GPU-b"]


async def test_pods_that_may_keep_the_card_busy_are_told(tmp_path: Path) -> None:
    async with operating(tmp_path) as rig:
        rig.allocated = {"GPU-a": 7}
        assert (await rig.told(cards=["0"])).endswith("; pods hold 7 of its units and may keep it busy")


@pytest.mark.parametrize(
    ("order", "message"),
    [
        ({"cards": ["7"]}, r"there is no card 7; expected all, or any of: 0 \(GPU-a\), 1 \(GPU-b\)"),
        ({"cards": []}, "there is no card"),
        ({"cards": ["0"], "forS": 0}, "forS"),
        ({"cards": ["0"], "forS": 1e9}, "forS"),
        ({"cards": "0"}, "cards"),
        ({"card": ["0"]}, "card"),
    ],
)
async def test_an_order_that_makes_no_sense_is_refused(tmp_path: Path, order: dict[str, object], message: str) -> None:
    async with operating(tmp_path) as rig:
        with pytest.raises(Refusal, match=message):
            await rig.told(**order)
        assert rig.released() == {}


async def test_the_annotation_releases_cards_until_it_goes_or_their_time_is_over(tmp_path: Path) -> None:
    async with operating(tmp_path) as rig:
        follow = rig.releases.follow
        assert not await follow("0")
        assert not await follow("0,GPU-b")
        assert rig.released() == {"GPU-a": 1600.0, "GPU-b": 1600.0}
        assert not await follow("GPU-b")
        assert list(rig.released()) == ["GPU-b"]
        await rig.told(cards=["1"], done=True)
        # It has served its purpose, and is removed; it does not release the card a second time.
        assert await follow("GPU-b")
        assert not await follow("")
        assert rig.released() == {}


async def test_an_annotation_that_is_there_already_does_not_lengthen_the_time(tmp_path: Path) -> None:
    async with operating(tmp_path) as rig:
        await rig.releases.keeper.release(["GPU-a"], 1234.0)
        assert not await rig.releases.follow("0")
        assert rig.released() == {"GPU-a": 1234.0}


async def test_an_annotation_that_names_no_card_is_removed(tmp_path: Path) -> None:
    async with operating(tmp_path) as rig:
        assert await rig.releases.follow("7")
        assert rig.released() == {}


async def test_the_annotation_releases_a_card_once_over_restarts(tmp_path: Path) -> None:
    async with operating(tmp_path) as rig:
        assert not await rig.releases.follow("0")
    for _ in range(2):
        # Its time was over while the plugin was away, and the annotation is still there.
        async with operating(tmp_path, now_s=1700.0) as rig:
            await rig.until(lambda rig=rig: not rig.released())  # type: ignore[misc]
            assert await rig.releases.follow("0")
            assert rig.released() == {}
    async with operating(tmp_path, now_s=1700.0) as rig:
        assert not await rig.releases.follow("")
        assert not await rig.releases.follow("0")
        assert rig.released() == {"GPU-a": 2300.0}


async def test_a_card_of_the_annotation_is_taken_back_when_it_goes_also_over_a_restart(tmp_path: Path) -> None:
    async with operating(tmp_path) as rig:
        await rig.releases.follow("0")
        await rig.told(cards=["1"])
    async with operating(tmp_path) as rig:
        assert not await rig.releases.follow("")
        assert list(rig.released()) == ["GPU-b"]


async def test_a_driver_that_does_not_let_go_ends_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def held(_: SupervisedDriver, uuids: frozenset[str]) -> None:
        if uuids:
            message = "process 7 does not end"
            raise SourceFailed(message)

    async with operating(tmp_path) as rig:
        monkeypatch.setattr(SupervisedDriver, "release", held)
        with capture_logs() as logs:
            assert not await rig.releases.follow("0")
        (said,) = [line for line in logs if line["event"] == "card.release_failed"]
        assert (said["uuids"], said["reason"]) == (["GPU-a"], "process 7 does not end")
        with pytest.raises(Refusal, match="process 7 does not end"):
            await rig.told(cards=["1"])
        # No pod comes to them all the same.
        assert list(rig.released()) == ["GPU-a", "GPU-b"]
