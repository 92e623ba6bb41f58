"""Asking a driver forever, whatever it does."""

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import pytest

from config.protocol.inventory import Health
from deviceplugin.driver.cards import DriverCard, Xid
from deviceplugin.driver.simulated import BackFault, DriverFault, Fault, LostFault, SimulatedSource, UseFault, XidFault
from deviceplugin.health.monitor import CardKeeper, Pace
from deviceplugin.health.rules import classes
from deviceplugin.health.states import CardStates

CARDS = (
    DriverCard(index=0, uuid="GPU-a", model="M", memory_mib=1024),
    DriverCard(index=1, uuid="GPU-b", model="M", memory_mib=1024),
)
HEALTHY = (Health.HEALTHY, "")


@dataclass
class Rig:
    """A keeper at work on simulated cards."""

    source: SimulatedSource
    keeper: CardKeeper
    news: asyncio.Event = field(default_factory=asyncio.Event)
    xids: list[Xid] = field(default_factory=list)

    def happen(self, *faults: Fault) -> None:
        for fault in faults:
            self.source.happen(fault)

    async def until(self, holds: Callable[[], bool]) -> None:
        async with asyncio.timeout(10):
            while not holds():
                await self.news.wait()
                self.news.clear()

    def announced(self, uuid: str = "GPU-a") -> tuple[Health, str]:
        return self.keeper.states.announced().get(uuid, (Health.CORDONED, "not there"))


@asynccontextmanager
async def keeping(*before: Fault) -> AsyncIterator[Rig]:
    source = SimulatedSource(CARDS, ())
    for fault in before:
        source.happen(fault)
    xids: list[Xid] = []
    news = asyncio.Event()
    pace = Pace(reading_s=0.02, cards_s=60, again_s=0.01)
    states = CardStates(classes((), ()))
    keeper = CardKeeper(
        source=source, states=states, forget=True, pace=pace, wall_s=time.time, on_news=news.set, on_xid=xids.append
    )
    rig = Rig(source, keeper, news, xids)
    task = asyncio.create_task(keeper.run())
    try:
        yield rig
        assert not task.done()
    finally:
        source.close()
        task.cancel()


async def test_the_cards_are_found_and_read_again_and_again() -> None:
    async with keeping() as rig:
        await rig.until(lambda: rig.announced() == HEALTHY and rig.keeper.problem == "")
        rig.happen(UseFault("0", 7, 300))
        await rig.until(lambda: "GPU-a" in rig.keeper.states.readings)
        await rig.until(lambda: rig.keeper.states.readings["GPU-a"].used_mib == 300)


async def test_an_error_is_reported_at_once() -> None:
    async with keeping() as rig:
        await rig.until(lambda: rig.announced() == HEALTHY)
        rig.happen(XidFault("0", 79))
        await rig.until(lambda: rig.announced() == (Health.UNHEALTHY, "xid-79"))
        assert rig.xids == [Xid("GPU-a", 79)]
        assert rig.announced("GPU-b") == HEALTHY


async def test_a_card_that_goes_is_kept_and_one_that_comes_back_is_watched() -> None:
    async with keeping() as rig:
        await rig.until(lambda: rig.announced() == HEALTHY)
        rig.happen(LostFault("0"))
        await rig.until(lambda: rig.announced() == (Health.UNHEALTHY, "lost"))
        # The other one answers all the while.
        await rig.until(lambda: "GPU-a does not answer" in rig.keeper.problem)
        assert len(rig.keeper.states.cards) == 2
        rig.happen(BackFault("0"))
        await rig.until(lambda: rig.announced() == (Health.UNHEALTHY, "recovering") and rig.keeper.problem == "")


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


async def test_a_card_remembered_from_this_boot_that_the_driver_does_not_name_is_lost() -> None:
    source = SimulatedSource(CARDS[:1], ())
    for forget, expected in ((True, 1), (False, 2)):
        states = CardStates(classes((), ()))
        states.remember(CARDS)
        news = asyncio.Event()
        keeper = CardKeeper(
            source=source,
            states=states,
            forget=forget,
            pace=Pace(),
            wall_s=time.time,
            on_news=news.set,
            on_xid=lambda _: None,
        )
        task = asyncio.create_task(keeper.run())
        await asyncio.wait_for(news.wait(), 5)
        assert len(states.cards) == expected
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
    source.close()
