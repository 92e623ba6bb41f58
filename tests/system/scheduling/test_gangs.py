"""Gangs through the real service, on a cluster in memory and in virtual time."""

import random
from collections import Counter

import pytest

from scheduler.testing.cluster.world import World
from tests.support.clocks.virtual_time import VirtualLoop
from tests.support.service.process import EPOCH_S
from tests.system.scheduling.gang_histories import GangHistory

_HISTORIES = 10
_STEPS = 30


@pytest.mark.parametrize("portion", range(3))
def test_whatever_happens_no_gang_stays_in_part(portion: int) -> None:
    happened = Counter[str]()
    for number in range(_HISTORIES):
        loop = VirtualLoop()
        rng = random.Random(portion * _HISTORIES + number)  # noqa: S311 - repeatable
        history = GangHistory(World(lambda: EPOCH_S + loop.time()), rng, happened)  # noqa: B023 - used in this round
        try:
            loop.run_until_complete(history.run(_STEPS))
        finally:
            loop.run_until_complete(loop.shutdown_asyncgens())
            loop.close()
    assert all(happened[what] for what in ("bound", "waits", "kills", "Refuse", "Fail", "Silence", "Slow"))
