"""Short pauses of the garbage collector, however many objects the process keeps.

    new ──more than 10,000, looked at every 0.1 s──▶ collected, and what is left is frozen

A full collection looks at everything that lives: half a second with 100,000 pods, and nothing of them is garbage. The
collector's own count is no help: it is of objects made less objects freed, so while as many pods come as go it does not
start, and then looks at all the new ones at once. Here the new objects themselves are counted, each is looked at once,
and what is left is frozen, which takes it out of every later collection. Reference counting frees frozen objects as it
frees all others; only a cycle that is frozen while it is in use is never collected. What makes cycles is the start of
the process and of its connections; pods, decisions and bindings make none (`tests/system/test_collector.py`).
Why: docs/decisions/0011-freeze-long-lived-objects.md.
"""

import asyncio
import gc
from typing import Final

EVERY_S: Final = 0.1
_MOST_NEW: Final = 10_000
# The collector's own starts, for whoever makes so many objects between two of ours.
_YOUNG, _MIDDLE, _NEVER = 20_000, 2, 1_000_000


async def keep_pauses_short() -> None:
    """Collect what is new, as long as it runs. To be started when everything is imported."""
    begin()
    while True:
        await asyncio.sleep(EVERY_S)
        tidy()


def begin() -> None:
    """Freeze what there is, and leave the old generation to `tidy`.

    Not collected: of 100,000 objects that importing has made, 2,400 are garbage, and to find them takes 0.08 s of CPU.
    Why: docs/decisions/0064-skip-garbage-collection-at-the-start.md.
    """
    gc.set_threshold(_YOUNG, _MIDDLE, _NEVER)
    gc.freeze()


def tidy() -> None:
    """When there are many new objects, collect them and freeze what is left."""
    if len(gc.get_objects()) > _MOST_NEW:  # frozen ones do not count
        gc.collect()
        gc.freeze()
