"""Memory that the C library keeps for later is given back to the system now and then.

What is kept for long lies among what was freed, so the library's heap shrinks from its end alone: with 20 pods coming
in a second 5 MB of 112 were free in it after twelve minutes. To give it back took 0.8 ms with 50,000 pods that wait.
Why: docs/decisions/0072-return-free-memory-to-the-system.md.
"""

import asyncio
import ctypes
from collections.abc import Callable
from typing import Final

_EVERY_S: Final = 60.0


async def give_back_forever(every_s: float = _EVERY_S) -> None:
    """Give back what is free, as long as it runs; returns where the C library cannot."""
    trim = trimmer()
    while trim is not None:
        await asyncio.sleep(every_s)
        trim(0)


def trimmer() -> Callable[[int], int] | None:
    """Glibc's malloc_trim; None with another C library."""
    found = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if found is not None:
        found.argtypes, found.restype = (ctypes.c_size_t,), ctypes.c_int
    return found
