"""What the C library keeps among what is in use goes back to the system (docs/decisions/0072)."""

import asyncio
import os

from e2e.bench.process import resident_mib
from scheduler.process.free_memory import give_back_forever, trimmer

EACH_BYTES = 16_000
MANY = 6_000


async def test_memory_that_is_free_between_what_is_kept_is_given_back() -> None:
    assert trimmer() is not None
    made = [bytearray(EACH_BYTES) for _ in range(MANY)]
    kept = made[:: MANY // 100]
    made.clear()
    before = resident_mib(os.getpid())
    giving = asyncio.create_task(give_back_forever(every_s=0.01))
    async with asyncio.timeout(10.0):
        while resident_mib(os.getpid()) > before - MANY * EACH_BYTES / 2**20 / 2:  # noqa: ASYNC110 - the system's number
            await asyncio.sleep(0.01)
    giving.cancel()
    assert len(kept) == 100
