"""Many time limits and one timer: whatever happens, a task sees what asyncio.timeout would have shown it."""

import asyncio
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any, Final, NamedTuple, TypeAlias

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scheduler.kube.rest.time_limits import TimeLimits
from tests.support.clocks import virtual_time
from tests.support.clocks.virtual_time import VirtualLoop


class Request(NamedTuple):
    """Seconds. cancelled_s: when somebody else cancels it, since its start; None: nobody does."""

    starts_s: int
    limit_s: int
    takes_s: int
    cancelled_s: int | None


Within: TypeAlias = Callable[[float], AbstractAsyncContextManager[object]]
# A limit and a cancellation may come at the same moment, and nothing else: what comes first then is nobody's promise.
TENS: Final = st.integers(0, 12).map(lambda number: 10 * number)
REQUESTS: Final = st.lists(
    st.builds(
        Request,
        starts_s=TENS,
        limit_s=TENS.map(lambda s: s + 3),
        takes_s=TENS.map(lambda s: s + 7),
        cancelled_s=st.none() | TENS.map(lambda s: s + 1) | TENS.map(lambda s: s + 3),
    ),
    max_size=12,
)


def within_one_timer() -> Within:
    limits = TimeLimits()

    @asynccontextmanager
    async def within(seconds: float) -> Any:  # noqa: ANN401 - a generator
        with limits.within(seconds):
            yield

    return within


async def history(requests: list[Request], within: Within) -> list[tuple[str, float, int]]:
    """What each request came to, when, and what of its task's cancellations is left."""
    loop = asyncio.get_running_loop()
    found: dict[int, tuple[str, float, int]] = {}

    async def ask(number: int, request: Request) -> None:
        outcome = "answered"
        try:
            async with within(request.limit_s):
                await asyncio.sleep(request.takes_s)
        except (TimeoutError, asyncio.CancelledError) as error:
            outcome = type(error).__name__
        task = asyncio.current_task()
        assert task is not None
        found[number] = (outcome, loop.time(), task.cancelling())

    async with asyncio.TaskGroup() as tasks:

        def start(number: int, request: Request) -> None:
            task = tasks.create_task(ask(number, request))
            if request.cancelled_s is not None:
                loop.call_later(request.cancelled_s, task.cancel)

        for number, request in enumerate(requests):
            loop.call_at(request.starts_s, start, number, request)
        await asyncio.sleep(1000)
    return [found[number] for number in range(len(requests))]


@given(requests=REQUESTS)
def test_a_task_sees_what_asyncios_own_timeout_would_show_it(requests: list[Request]) -> None:
    async def ours() -> list[tuple[str, float, int]]:
        return await history(requests, within_one_timer())

    assert virtual_time.run(ours()) == virtual_time.run(history(requests, asyncio.timeout))


def test_requests_that_are_answered_in_time_share_a_timer(monkeypatch: pytest.MonkeyPatch) -> None:
    timers: list[float] = []
    call_at = VirtualLoop.call_at

    def counting(loop: VirtualLoop, when: float, *rest: Any, **more: Any) -> asyncio.TimerHandle:  # noqa: ANN401
        timers.append(when)
        return call_at(loop, when, *rest, **more)

    async def ask() -> None:
        limits = TimeLimits()
        for _ in range(1000):
            with limits.within(4.0):
                await asyncio.sleep(0)

    monkeypatch.setattr(VirtualLoop, "call_at", counting)
    virtual_time.run(ask())

    assert timers == [4.0]


def test_an_error_inside_stays_what_it_is() -> None:
    async def ask() -> None:
        with TimeLimits().within(4.0):
            raise KeyError

    with pytest.raises(KeyError):
        virtual_time.run(ask())
