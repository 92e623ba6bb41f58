"""Measures a time limit on a machine that may stall: a stall makes one run slower, and none faster."""

from collections.abc import Awaitable, Callable
from typing import Final

_TURNS: Final = 3


async def quickest(took_s: Callable[[int], Awaitable[float]], within_s: float) -> float:
    """Return the seconds of the fastest of up to three runs; stops at the first one within the limit.

    took_s: one run, by its number, for use in names.
    """
    least_s = await took_s(0)
    for turn in range(1, _TURNS):
        if least_s < within_s:
            break
        least_s = min(least_s, await took_s(turn))
    return least_s
