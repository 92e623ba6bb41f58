"""Loops and measurements that other programs on the machine do not disturb."""

import asyncio
import time

import pytest

from tests.support.clocks.quickest import quickest
from tests.support.clocks.working_time import WorkingTimeLoop, aside, run, working_loop


class Processor:
    """Counts only the work done."""

    def __init__(self) -> None:
        self.worked_s = 0.0

    def __call__(self) -> float:
        return self.worked_s

    def works(self, seconds: float) -> None:
        self.worked_s += seconds


@pytest.fixture
def processor() -> Processor:
    return Processor()


@pytest.fixture
def runner(processor: Processor):  # type: ignore[no-untyped-def] # noqa: ANN201
    with asyncio.Runner(loop_factory=lambda: WorkingTimeLoop(processor)) as made:
        yield made


def now_s() -> float:
    return asyncio.get_running_loop().time()


def test_work_on_a_slow_processor_takes_the_time_of_a_fast_one(runner: asyncio.Runner, processor: Processor) -> None:
    async def works() -> float:
        before_s = now_s()
        processor.works(1)
        working_loop().slowed(4)
        processor.works(2)
        with working_loop().paused():
            processor.works(8)
            working_loop().slowed(2)
        processor.works(1)
        return now_s() - before_s

    assert runner.run(works()) == pytest.approx(1 + 2 / 4 + 1 / 2)


def test_what_runs_aside_waits_and_works_for_nothing(runner: asyncio.Runner, processor: Processor) -> None:
    async def lives() -> str:
        for _ in range(10):
            processor.works(1)
            await asyncio.sleep(0.5)
        return "done"

    async def both() -> tuple[str, float]:
        before_s = now_s()
        return await aside(lives()), now_s() - before_s

    said, took_s = runner.run(both())
    assert said == "done"
    assert took_s == pytest.approx(5)


def test_what_runs_aside_can_be_cancelled_and_may_fail(runner: asyncio.Runner, processor: Processor) -> None:
    ended = []

    async def never_ends() -> None:
        try:
            await asyncio.sleep(1e9)
        finally:
            processor.works(1)
            ended.append(now_s())

    async def fails() -> None:
        await asyncio.sleep(1)
        raise KeyError

    async def both() -> None:
        task = asyncio.create_task(aside(never_ends()))
        await asyncio.sleep(2)
        task.cancel()
        await asyncio.wait({task})
        assert task.cancelled()
        with pytest.raises(KeyError):
            await aside(fails())

    runner.run(both())
    assert ended == [pytest.approx(2)]


def test_the_processor_of_this_machine_counts_work_and_not_sleep() -> None:
    async def measured() -> tuple[float, float]:
        before_s = now_s()
        time.sleep(0.05)  # noqa: ASYNC251 - the loop is to be held
        slept_s = now_s() - before_s
        until_s = time.thread_time() + 0.05
        while time.thread_time() < until_s:
            pass
        return slept_s, now_s() - before_s

    slept_s, worked_s = run(measured())
    assert slept_s < 0.02
    assert 0.05 <= worked_s < 0.08


@pytest.mark.parametrize(
    ("turns_s", "least_s", "taken"),
    [
        pytest.param([0.5], 0.5, 1, id="in time at once"),
        pytest.param([3.0, 0.5], 0.5, 2, id="one turn stalled"),
        pytest.param([3.0, 2.5, 2.8], 2.5, 3, id="too slow in each"),
    ],
)
async def test_the_first_turn_in_time_is_the_last_of_three(turns_s: list[float], least_s: float, taken: int) -> None:
    asked: list[int] = []

    async def took_s(turn: int) -> float:
        asked.append(turn)
        return turns_s[turn]

    assert await quickest(took_s, 1.0) == least_s
    assert asked == list(range(taken))
