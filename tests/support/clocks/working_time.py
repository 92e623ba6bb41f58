"""An event loop whose clock shows the processor time spent on it, and jumps to the next timer instead of waiting.

It measures latencies that other programs on the machine do not change: waiting takes no time; work takes processor
time, optionally scaled to a faster processor with `slowed`. The test's own work, for the environment of the program, is
excluded with `paused` or `aside`.
"""

import asyncio
import time
import types
from collections.abc import Callable, Coroutine, Generator, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any, TypeVar

from tests.support.clocks.virtual_time import VirtualLoop

T = TypeVar("T")


class WorkingTimeLoop(VirtualLoop):
    """Event loop on working time. cpu_s: processor seconds, by default of the running thread."""

    def __init__(self, cpu_s: Callable[[], float] = time.thread_time) -> None:
        self._cpu_s = cpu_s
        self._left_out_s = cpu_s()
        self._stopped_at_s: float | None = None
        self._slowness = 1.0
        # State at its last change.
        self._worked_s = 0.0
        super().__init__()

    def time(self) -> float:
        return super().time() + self._worked_s + self._worked_since_s() / self._slowness

    def slowed(self, slowness: float) -> None:
        """Divide the measured time of work by `slowness` from now on, > 0."""
        since_s = self._worked_since_s()
        self._worked_s += since_s / self._slowness
        self._left_out_s += since_s
        self._slowness = slowness

    def _worked_since_s(self) -> float:
        """Return seconds of this processor."""
        now_s = self._cpu_s() if self._stopped_at_s is None else self._stopped_at_s
        return now_s - self._left_out_s

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Exclude the work inside from the time; may be nested."""
        if self._stopped_at_s is not None:
            yield
            return
        self._stopped_at_s = self._cpu_s()
        try:
            yield
        finally:
            self._left_out_s += self._cpu_s() - self._stopped_at_s
            self._stopped_at_s = None


def working_loop() -> WorkingTimeLoop:
    """Return the running loop, which must be a WorkingTimeLoop."""
    loop = asyncio.get_running_loop()
    assert isinstance(loop, WorkingTimeLoop), f"{loop} is not a loop of working time"
    return loop


async def aside(coroutine: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine whose work takes no time; its waits take their full time."""
    return await _aside(working_loop(), coroutine)


@types.coroutine
def _aside(loop: WorkingTimeLoop, coroutine: Coroutine[Any, Any, T]) -> Generator[Any, None, T]:
    step: Callable[[], Any] = partial(coroutine.send, None)
    while True:
        with loop.paused():
            try:
                waits_for = step()
            except StopIteration as end:
                result: T = end.value
                return result
        try:
            yield waits_for
            step = partial(coroutine.send, None)
        except BaseException as thrown:  # noqa: BLE001 - a cancellation, too, is the coroutine's business
            step = partial(coroutine.throw, thrown)


def run(main: Coroutine[Any, Any, T]) -> T:
    """Like asyncio.run, in working time."""
    with asyncio.Runner(loop_factory=WorkingTimeLoop) as runner:
        return runner.run(main)
