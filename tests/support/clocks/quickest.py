"""What has to be done in time, measured on a machine that may stall: that makes one turn slower, and none quicker."""

from collections.abc import Awaitable, Callable
from typing import Final

_TURNS: Final = 3


async def quickest(took_s: Callable[[int], Awaitable[float]], within_s: float) -> float:
    """Seconds of the quickest turn of up to three; the first one in time is the last.

    took_s: one turn, by its number, which its names may have.
    """
    least_s = await took_s(0)
    for turn in range(1, _TURNS):
        if least_s < within_s:
            break
        least_s = min(least_s, await took_s(turn))
    return least_s
