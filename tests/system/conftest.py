"""Async tests take no time, however long they wait; log lines go nowhere, unless a test captures them."""

import asyncio
from collections.abc import Callable, Iterator, Mapping
from typing import NoReturn

import pytest
import structlog

from tests.support.clocks.virtual_time import VirtualLoop


def pytest_asyncio_loop_factories() -> Mapping[str, Callable[[], asyncio.AbstractEventLoop]]:
    """One loop for each test of this folder, whose clock begins at 0 and jumps to the next timer."""
    return {"virtual time": VirtualLoop}


def _drop(_logger: object, _method: str, _event: Mapping[str, object]) -> NoReturn:
    raise structlog.DropEvent


@pytest.fixture(autouse=True)
def _quiet() -> Iterator[None]:
    structlog.configure(processors=[_drop])
    yield
    structlog.reset_defaults()
