"""Starting and ending programs beside the event loop.

Programs end with the thread that started them: these threads outlive every test.
"""

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Final, TypeVar

# Replicas and servers start at the same time.
_PROGRAMS: Final = ThreadPoolExecutor(4)
T = TypeVar("T")


async def beside(call: Callable[[], T]) -> T:
    """Run what starts or ends programs, without holding the event loop."""
    return await asyncio.get_running_loop().run_in_executor(_PROGRAMS, call)
