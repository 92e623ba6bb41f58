"""Asking a driver forever, whatever it does; what a storm of errors leaves in the log."""

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from typing import TypeVar

import pytest

from config.protocol.inventory import Health
from deviceplugin.driver.calls import Call, Worker
from deviceplugin.driver.cards import CardReading, DriverCard, DriverCards, NotOpened, SourceFailed, Xid
from deviceplugin.driver.process import DriverThreads
from deviceplugin.driver.processes import DriverLimits
from deviceplugin.driver.simulated import (
    BackFault,
    DriverFault,
    Fault,
    FaultError,
    HangFault,
    LostFault,
    ReadingFault,
    ResetFault,
    SimulatedDriver,
    XidFault,
)
from deviceplugin.driver.supervisor import SupervisedDriver
from deviceplugin.health.monitor import CardKeeper, NeedsNewContainer, Pace
from deviceplugin.health.rules import XidLog, classes
from deviceplugin.health.states import CardStates
from scheduler.process.clock import Clock

T = TypeVar("T")
CARDS = (
    DriverCard(index=0, uuid="GPU-a", model="M", memory_mib=1024),
    DriverCard(index=1, uuid="GPU-b", model="M", memory_mib=1024),
)
HEALTHY = (Health.HEALTHY, "")
LIMITS = DriverLimits(answer_s=0.1, patience_s=0.01, stuck_s=0.2, hung_s=0.5, again_s=0.1, start_s=0.01, slowest_s=0.05)
PACE = Pace(reading_s=0.02, cards_s=60, again_s=0.01, slow_s=0.01)


@dataclass
class Rig:
    """A keeper at work on simulated cards. seconds go by in it a thousand times as fast as outside."""

    simulated: SimulatedDriver
    keeper: CardKeeper
    news: asyncio.Event = field(default_factory=asyncio.Event)
    xids: list[Xid] = field(default_factory=list)

    def happen(self, *faults: Fault) -> None:
        for fault in faults:
            self.simulated.happen(fault)

    async def until(self, holds: Callable[[], bool]) -> None:
        async with asyncio.timeout(10):
            while not holds():
                await self.news.wait()
                self.news.clear()

    def announced(self, uuid: str = "GPU-a") -> tuple[Health, str]:
        return self.keeper.states.announced().get(uuid, (Health.CORDONED, "not there"))


def wall_ns() -> int:
    return time.time_ns() * 1000


CLOCK = Clock(wall_ns=wall_ns)


def keeper_of(
    simulated: SimulatedDriver, states: CardStates, news: asyncio.Event, xids: list[Xid], *, forget: bool = True
) -> CardKeeper:
    async def start() -> Worker:
        return DriverThreads(simulated.opened())

    return CardKeeper(
        driver=SupervisedDriver(start, LIMITS),
        states=states,
        forget=forget,
        pace=PACE,
        clock=CLOCK,
        on_change=news.set,
        on_xid=xids.append,
        on_cuda=news.set,
    )


@asynccontextmanager
async def keeping(*before: Fault) -> AsyncIterator[Rig]:
    simulated = SimulatedDriver(CARDS, ())
    for fault in before:
        simulated.happen(fault)
    xids: list[Xid] = []
    news = asyncio.Event()
    rig = Rig(simulated, keeper_of(simulated, CardStates(classes((), ())), news, xids), news, xids)
    task = asyncio.create_task(rig.keeper.run())
    try:
        yield rig
        assert not task.done()
    finally:
        task.cancel()
        await asyncio.wait({task})


async def test_a_card_that_goes_is_kept_and_one_that_comes_back_is_watched() -> None:
    async with keeping() as rig:
        await rig.until(lambda: rig.announced() == HEALTHY)
        rig.happen(LostFault("0"))
        await rig.until(lambda: rig.announced() == (Health.UNHEALTHY, "lost"))
        # The other one answers all the while.
        await rig.until(lambda: "GPU-a does not answer" in rig.keeper.problem)
        assert len(rig.keeper.states.cards) == 2
        rig.happen(BackFault("0"))
        await rig.until(lambda: rig.announced() == HEALTHY and rig.keeper.problem == "")


async def test_a_driver_that_is_late_is_waited_for() -> None:
    async with keeping(DriverFault(fail=True)) as rig:
        await rig.until(lambda: rig.keeper.problem == "the simulated driver is failing")
        assert rig.keeper.states.cards == ()
        rig.happen(DriverFault())
        await rig.until(lambda: rig.announced() == HEALTHY)


async def test_a_failing_driver_makes_cards_suspect_and_nothing_worse() -> None:
    async with keeping() as rig:
        await rig.until(lambda: rig.announced() == HEALTHY)
        rig.happen(DriverFault(fail=True))
        await rig.until(lambda: rig.announced() == (Health.SUSPECT, "silent"))
        assert rig.keeper.problem == "the simulated driver is failing"
        rig.happen(DriverFault())
        await rig.until(lambda: rig.announced() == HEALTHY)
        await rig.until(lambda: rig.keeper.problem == "")


async def test_a_card_that_hangs_is_suspect_and_no_other_ever_is() -> None:
    async with keeping() as rig:
        await rig.until(lambda: rig.announced() == HEALTHY)
        rig.happen(HangFault("0", hang=True))
        seen = set[tuple[Health, str]]()

        def silent() -> bool:
            seen.add(rig.announced("GPU-b"))
            return rig.announced() == (Health.SUSPECT, "silent")

        await rig.until(silent)
        assert seen == {HEALTHY}
        rig.happen(XidFault("1", 79))
        await rig.until(lambda: rig.announced("GPU-b") == (Health.UNHEALTHY, "xid-79"))
        rig.happen(HangFault("0", hang=False))
        await rig.until(lambda: rig.announced() == HEALTHY)


async def test_a_card_that_is_slow_at_the_start_is_found_soon_and_not_at_the_next_look_in_a_minute() -> None:
    """Without persistence mode, the driver initializes each card for seconds when it is asked first."""
    async with keeping(HangFault("0", hang=True)) as rig:
        await rig.until(lambda: rig.announced("GPU-b") == HEALTHY)
        assert rig.announced() == (Health.CORDONED, "not there")
        rig.happen(HangFault("0", hang=False))
        await rig.until(lambda: rig.announced() == HEALTHY)


async def test_a_reset_of_a_card_with_a_hardware_error_is_seen() -> None:
    async with keeping() as rig:
        # What it counts has to be known from before.
        await rig.until(_uses(rig, 0))
        rig.happen(XidFault("0", 48))
        await rig.until(lambda: rig.announced() == (Health.UNHEALTHY, "xid-48"))
        with pytest.raises(FaultError, match="cannot be reset"):
            rig.happen(ResetFault("0"))
        assert await rig.keeper.release(["GPU-a"], CLOCK.wall_s() + 1e9) == ""
        rig.happen(ResetFault("0"))
        await rig.keeper.release(["GPU-a"], None)
        await rig.until(lambda: rig.announced() == HEALTHY)


class LateDriver(SupervisedDriver):
    """What it names is told when `goes_on` is set. looks: how often it was asked for its cards."""

    def __init__(self, start: Callable[[], Awaitable[Worker]]) -> None:
        super().__init__(start, LIMITS)
        self.looks: asyncio.Queue[None] = asyncio.Queue()
        self.goes_on = asyncio.Event()

    async def cards(self) -> DriverCards:
        found = await super().cards()
        self.looks.put_nowait(None)
        await self.goes_on.wait()
        return found


async def test_a_card_that_is_taken_back_while_the_cards_are_looked_at_is_looked_at_again() -> None:
    """It may have been split into instances meanwhile, and the next look is minutes away."""
    simulated = SimulatedDriver(CARDS, ())

    async def start() -> Worker:
        return DriverThreads(simulated.opened())

    driver = LateDriver(start)
    keeper = replace(keeper_of(simulated, CardStates(classes((), ())), asyncio.Event(), []), driver=driver)
    task = asyncio.create_task(keeper.run())
    async with asyncio.timeout(5):
        await driver.looks.get()
        assert await keeper.release(["GPU-a"], CLOCK.wall_s() + 1e9) == ""
        assert await keeper.release(["GPU-a"], None) == ""
        driver.goes_on.set()
        await driver.looks.get()
    task.cancel()
    await asyncio.wait({task})


async def test_a_released_card_is_taken_back_when_its_time_is_over() -> None:
    async with keeping() as rig:
        await rig.until(lambda: rig.announced() == HEALTHY)
        for released in (["GPU-a"], ["GPU-a", "GPU-b"]):
            await rig.keeper.release(released, CLOCK.wall_s() + 200)
            assert rig.announced() == (Health.SUSPECT, "released")
            await rig.until(lambda: rig.announced() == rig.announced("GPU-b") == HEALTHY)


async def test_a_compute_mode_that_keeps_programs_from_sharing_is_a_problem() -> None:
    async with keeping(ReadingFault("1", {"compute_mode": "EXCLUSIVE_PROCESS"})) as rig:
        await rig.until(lambda: bool(rig.keeper.problems("")))
        (problem,) = rig.keeper.problems("")
        assert problem.startswith("card GPU-b: compute mode is EXCLUSIVE_PROCESS, which keeps programs from sharing it")


async def test_the_compute_mode_in_which_programs_share_a_card_is_none() -> None:
    async with keeping(ReadingFault("1", {"compute_mode": "EXCLUSIVE_PROCESS"})) as rig:
        await rig.until(lambda: len(rig.keeper.states.readings) == len(CARDS))
        assert rig.keeper.problems("EXCLUSIVE_PROCESS") == ()


class Shut:
    """A driver that cannot be opened."""

    def __getattr__(self, name: str) -> object:
        async def nothing(*_: object) -> None:
            if name == "cards":
                message = "the library is of another driver"
                raise NotOpened(message)
            if name == "events":
                await asyncio.Event().wait()

        return (lambda *_: None) if name in {"remember", "grown"} else nothing


async def test_a_driver_that_cannot_be_opened_for_minutes_ends_the_process_and_that_is_said_before() -> None:
    said: list[str] = []
    keeper = CardKeeper(
        driver=Shut(),  # type: ignore[arg-type] # it has them all, by name
        states=CardStates(None),
        forget=True,
        pace=Pace(again_s=0.01, end_s=0.2),
        clock=CLOCK,
        on_change=lambda: said.append(keeper.problem),
        on_xid=lambda _: None,
        on_cuda=lambda: None,
    )
    with pytest.raises(ExceptionGroup) as caught:
        await asyncio.wait_for(keeper.run(), 10)
    assert isinstance(caught.value.exceptions[0], NeedsNewContainer)
    assert "this has lasted 0.2 s: exiting so that the kubelet recreates the container" in str(
        caught.value.exceptions[0]
    )
    assert "the library is of another driver; if this lasts 0 more min, the plugin exits" in said[0]


def _uses(rig: Rig, mib: int) -> Callable[[], bool]:
    readings = rig.keeper.states.readings
    return lambda: "GPU-a" in readings and readings["GPU-a"].used_mib == mib


async def test_a_card_remembered_from_this_boot_that_the_driver_does_not_name_is_lost() -> None:
    simulated = SimulatedDriver(CARDS[:1], ())
    for forget, expected in ((True, 1), (False, 2)):
        states = CardStates(classes((), ()))
        states.remember(CARDS)
        news = asyncio.Event()
        keeper = keeper_of(simulated, states, news, [], forget=forget)
        task = asyncio.create_task(keeper.run())
        await asyncio.wait_for(news.wait(), 5)
        assert len(states.cards) == expected
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task


def test_a_storm_is_a_line_a_minute_with_the_number_of_errors() -> None:
    log = XidLog()
    lines = [log.times(Xid("GPU-a", 94, times=10), now_s / 10) for now_s in range(1210)]
    assert [times for times in lines if times] == [10, 6000, 6000]


def test_each_kind_of_error_of_each_card_is_logged_at_once() -> None:
    log = XidLog()
    for xid in (Xid("GPU-a", 94), Xid("GPU-a", 79), Xid("GPU-b", 94)):
        assert log.times(xid, 5.0) == 1


class AskedDriver(SupervisedDriver):
    """Keeps the UUIDs that it was asked to read."""

    asked: frozenset[str] = frozenset()

    async def readings(self, uuids: Iterable[str]) -> dict[str, CardReading | SourceFailed]:
        wanted = list(uuids)
        self.asked |= set(wanted)
        return await super().readings(wanted)


async def test_a_split_card_is_read_and_its_errors_are_waited_for() -> None:
    """Errors of a split card concern its instances, too."""
    simulated = SimulatedDriver((CARDS[0], replace(CARDS[1], mig=True)), ())
    waited: set[str] = set()

    class Watched(DriverThreads):
        async def ask(self, call: Call[T]) -> T:
            if call.name == "wait":
                waited.add(call.arguments[0])
            return await super().ask(call)

    async def start() -> Worker:
        return Watched(simulated.opened())

    news = asyncio.Event()
    driver = AskedDriver(start, LIMITS)
    keeper = replace(keeper_of(simulated, CardStates(classes((), ())), news, []), driver=driver)
    running = asyncio.create_task(keeper.run())
    async with asyncio.timeout(10):
        while keeper.states.readings.keys() != {"GPU-a", "GPU-b"} or len(waited) < 2:
            await news.wait()
            news.clear()
    running.cancel()
    await asyncio.wait({running})
    assert (set(driver.asked), waited) == ({"GPU-a", "GPU-b"}, {"GPU-a", "GPU-b"})
    assert keeper.states.announced() == {"GPU-a": HEALTHY, "GPU-b": HEALTHY}
