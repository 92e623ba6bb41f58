"""Eight cards that take three seconds each to initialise, as without persistence mode: when all of them are known."""

import asyncio
import time
from pathlib import Path
from typing import Final

import pytest

from deviceplugin.driver.process import DriverProcess
from deviceplugin.driver.supervisor import SupervisedDriver
from deviceplugin.health.monitor import CardKeeper, Pace
from deviceplugin.health.rules import classes
from deviceplugin.health.states import CardStates
from scheduler.process.clock import Clock
from tests.support.nvidia import libraries
from tests.support.nvidia.world import VARIABLE, World, card

CARDS: Final = 8
MUST_REACH_S: Final = 30.0


async def seconds_until_all_are_known() -> float:
    news, states = asyncio.Event(), CardStates(classes((), ()))
    keeper = CardKeeper(
        driver=SupervisedDriver(DriverProcess.start),
        states=states,
        forget=True,
        pace=Pace(),
        clock=Clock(),
        on_change=news.set,
        on_xid=lambda _: None,
        on_cuda=lambda: None,
    )
    began_s = time.monotonic()
    running = asyncio.create_task(keeper.run())
    async with asyncio.timeout(2 * MUST_REACH_S):
        while len(states.cards) < CARDS:
            await news.wait()
            news.clear()
    took_s = time.monotonic() - began_s
    running.cancel()
    await asyncio.wait({running})
    return took_s


@pytest.mark.nightly  # half a minute of waiting
@pytest.mark.parametrize("in_turn", [0, 1], ids=["all at once", "one at a time"])
async def test_all_cards_are_known_within_half_a_minute(
    in_turn: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    libraries.compile_nvml(tmp_path)
    slow = [f"initialise {number} 3" for number in range(CARDS)]
    world = World(tmp_path / "world", [card(number) for number in range(CARDS)], slow)
    world.say(f"initialise_in_turn {in_turn}")
    monkeypatch.setenv(VARIABLE, str(world.path))
    monkeypatch.setenv("LD_LIBRARY_PATH", str(tmp_path))
    took_s = await seconds_until_all_are_known()

    assert took_s < MUST_REACH_S
