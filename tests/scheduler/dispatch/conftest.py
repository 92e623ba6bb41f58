import asyncio
from collections.abc import Callable

import pytest

from tests.support.clocks.virtual_time import VirtualLoop

_IN_VIRTUAL_TIME = ("test_binding_cycle", "test_sender", "test_background_work", "test_status")


def pytest_asyncio_loop_factories(item: pytest.Item) -> dict[str, Callable[[], asyncio.AbstractEventLoop]]:
    """Tests whose only I/O is waiting take no time for it."""
    virtual = item.path.stem in _IN_VIRTUAL_TIME
    return {"virtual time": VirtualLoop} if virtual else {"asyncio": asyncio.new_event_loop}
