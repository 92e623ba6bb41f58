"""Processes that ask the driver, when every card is released, as for a new driver."""

import asyncio
from typing import Final

import pytest

from deviceplugin.driver.calls import Worker
from deviceplugin.driver.cards import DriverCard, NoAnswer
from deviceplugin.driver.process import DriverThreads
from deviceplugin.driver.processes import DriverLimits
from deviceplugin.driver.simulated import HangFault, SimulatedDriver
from deviceplugin.driver.supervisor import SupervisedDriver

CARDS: Final = tuple(
    DriverCard(index=index, uuid=uuid, model="M", memory_mib=1024) for index, uuid in enumerate(["GPU-a", "GPU-b"])
)
UUIDS: Final = frozenset(card.uuid for card in CARDS)
LIMITS: Final = DriverLimits(answer_s=30.0, patience_s=0.01, start_s=0.0)
ASKING_S: Final = 0.05


class Starts:
    """A driver, and the processes that it has had."""

    def __init__(self) -> None:
        self.simulated, self.workers = SimulatedDriver(CARDS, ()), list[Worker]()
        self.driver = SupervisedDriver(self.start, LIMITS)

    async def start(self) -> Worker:
        self.workers.append(DriverThreads(self.simulated.opened()))
        return self.workers[-1]

    def alive(self) -> int:
        return sum(worker.alive for worker in self.workers)


async def test_what_was_being_asked_leaves_no_process_with_the_driver_open() -> None:
    """Even without a card, such a process keeps the driver's module from being replaced."""
    starts = Starts()
    await starts.driver.cards()
    starts.simulated.happen(HangFault("0", hang=True))
    asked = [asyncio.create_task(each) for each in (starts.driver.readings(UUIDS), starts.driver.cards())]
    assert not (await asyncio.wait(asked, timeout=ASKING_S))[0]
    async with asyncio.timeout(10):
        await starts.driver.release(UUIDS)
        await asyncio.wait(asked)
    assert starts.alive() == 0
    for each in asked:
        each.exception()
    await starts.driver.close()


async def test_cards_that_are_taken_back_are_asked_again() -> None:
    starts = Starts()
    await starts.driver.cards()
    await starts.driver.release(UUIDS)
    with pytest.raises(NoAnswer, match="all cards are released"):
        await starts.driver.cards()
    await starts.driver.release(frozenset())
    assert {card.uuid for card in (await starts.driver.cards()).cards} == UUIDS
    await starts.driver.close()
