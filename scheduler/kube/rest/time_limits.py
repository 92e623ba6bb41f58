"""Time limits of many requests, with one timer of the event loop for all of them.

    runs ──done──▶ gone
      └───time is up──▶ cancelled: the task sees TimeoutError, as with asyncio.timeout

asyncio.timeout starts a timer for each and stops it again, a tenth of what a request over a bare connection costs, and
almost none ever fires. Here one timer stands for the earliest limit; only when it fires is the next one looked for.
Why: docs/decisions/0046-use-one-timer-for-request-time-limits.md. Owned by the event loop.
"""

import asyncio
from math import inf
from types import TracebackType
from typing import Self


class TimeLimits:
    """Those that run at this moment; make it inside the event loop that uses it."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._running: set[TimeLimit] = set()
        self._fires_s = inf
        self._timer: asyncio.TimerHandle | None = None

    def within(self, seconds: float) -> "TimeLimit":
        """A limit for the block inside it, from now on; TimeoutError when the block takes longer."""
        return TimeLimit(self, self._loop.time() + seconds)

    def begin(self, limit: "TimeLimit") -> None:
        """It runs."""
        self._running.add(limit)
        if limit.due_s < self._fires_s:
            self._set_timer(limit.due_s)

    def end(self, limit: "TimeLimit") -> None:
        """It runs no longer. The timer stays as it is: the next request will want one."""
        self._running.discard(limit)

    def _set_timer(self, fires_s: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._fires_s = fires_s
        self._timer = self._loop.call_at(fires_s, self._fire) if fires_s < inf else None

    def _fire(self) -> None:
        now_s = self._loop.time()
        for limit in [limit for limit in self._running if limit.due_s <= now_s]:
            self._running.discard(limit)
            limit.expire()
        self._set_timer(min((limit.due_s for limit in self._running), default=inf))


class TimeLimit:
    """One block's; entered once. due_s: of the event loop's clock."""

    __slots__ = ("_before", "_expired", "_limits", "_task", "due_s")

    def __init__(self, limits: TimeLimits, due_s: float) -> None:
        """Not running yet."""
        self.due_s = due_s
        self._limits = limits
        self._expired = False
        self._task: asyncio.Task[object] | None = None
        self._before = 0

    def __enter__(self) -> Self:
        """Begin, in the task that is to be cancelled."""
        self._task = asyncio.current_task()
        assert self._task is not None  # noqa: S101 - requests are made by tasks
        self._before = self._task.cancelling()
        self._limits.begin(self)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        """End. Source: asyncio.Timeout: a cancellation by somebody else stays one."""
        self._limits.end(self)
        if self._expired and self._task is not None:
            others = self._task.uncancel() - self._before
            if others <= 0 and kind is asyncio.CancelledError:
                raise TimeoutError from error

    def expire(self) -> None:
        """Time is up."""
        self._expired = True
        if self._task is not None:
            self._task.cancel()
