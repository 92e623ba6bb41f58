"""MIG instances that come and go while the plugin looks at its cards."""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from config.protocol.inventory import Health
from deviceplugin.driver.supervisor import SupervisedDriver
from deviceplugin.health.monitor import CardKeeper, Pace
from deviceplugin.health.rules import classes
from deviceplugin.health.states import CardStates
from scheduler.process.clock import Clock
from tests.support.nvidia import libraries
from tests.support.nvidia.sessions import threads
from tests.support.nvidia.world import VARIABLE, World, card, instance, uuid_of

FIRST, SECOND, THIRD = (str(instance(0, gpu_instance)["uuid"]) for gpu_instance in (1, 2, 3))
NEVER_S = 300.0


@dataclass
class Kept:
    """Cards that are being looked at. The cards are listed once, unless a reading calls for more."""

    keeper: CardKeeper
    news: asyncio.Event = field(default_factory=asyncio.Event)

    def instances(self) -> set[str]:
        return {one.uuid for one in self.keeper.states.cards if one.parent}

    async def until(self, holds: Callable[[], bool]) -> None:
        async with asyncio.timeout(10):
            while not holds():
                await self.news.wait()
                self.news.clear()


@asynccontextmanager
async def keeping() -> AsyncIterator[Kept]:
    news = asyncio.Event()
    keeper = CardKeeper(
        driver=SupervisedDriver(threads),
        states=CardStates(classes((), ())),
        forget=True,
        pace=Pace(reading_s=0.02, cards_s=NEVER_S),
        clock=Clock(wall_ns=int),
        on_change=news.set,
        on_xid=lambda _: None,
        on_cuda=lambda: None,
    )
    kept = Kept(keeper, news)
    running = asyncio.create_task(keeper.run())
    await kept.until(lambda: bool(keeper.states.readings))
    yield kept
    assert not running.done()
    running.cancel()
    await asyncio.wait({running})


@pytest.fixture
def world(library: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[World]:
    """A card with two instances, and a whole card."""
    made = World(tmp_path / "world", [card(0, mig=1, instances=[instance(0, 1), instance(0, 2)]), card(1)])
    made.write()
    monkeypatch.setenv(VARIABLE, str(made.path))
    with libraries.pynvml_with(library):
        yield made


async def test_instances_that_come_and_go_are_seen_by_the_next_reading(world: World) -> None:
    async with keeping() as kept:
        assert kept.instances() == {FIRST, SECOND}
        world.cards[0]["instances"] = [None, instance(0, 2), instance(0, 3)]
        world.write()
        await kept.until(lambda: kept.instances() == {SECOND, THIRD})
        await kept.until(lambda: kept.keeper.states.readings.keys() == {uuid_of(0), uuid_of(1), SECOND, THIRD})


async def test_a_card_that_leaves_mig_mode_is_whole_again(world: World) -> None:
    async with keeping() as kept:
        world.cards[0]["mig"] = 0
        world.write()
        await kept.until(lambda: not kept.instances())
        assert [(one.uuid, one.mig, one.memory_mib) for one in kept.keeper.states.cards] == [
            (uuid_of(0), False, 81280),
            (uuid_of(1), False, 81280),
        ]


async def test_an_error_of_the_card_reaches_its_instances(world: World) -> None:
    async with keeping() as kept:
        world.say("card 0 xid 79 1")
        sick = (Health.UNHEALTHY, "xid-79")
        await kept.until(lambda: kept.keeper.states.announced()[FIRST] == sick)
        assert kept.keeper.states.announced()[SECOND] == sick
        assert kept.keeper.states.announced()[uuid_of(1)] == (Health.HEALTHY, "")


async def test_a_released_card_is_touched_no_more_and_shows_its_new_instances_when_it_is_reclaimed(
    world: World,
) -> None:
    async with keeping() as kept:
        assert await kept.keeper.release([uuid_of(0), FIRST, SECOND], NEVER_S) == ""
        world.cards[0]["instances"] = [instance(0, 3)]
        world.cards[1]["used_mib"] = 5
        world.write()
        readings = kept.keeper.states.readings
        await kept.until(lambda: uuid_of(1) in readings and readings[uuid_of(1)].used_mib == 5)
        assert kept.instances() == {FIRST, SECOND}
        await kept.keeper.release([uuid_of(0), FIRST, SECOND], None)
        await kept.until(lambda: kept.instances() == {THIRD})
        assert kept.keeper.states.announced()[THIRD] == (Health.HEALTHY, "")
