"""Async tests take no time, however long they wait."""

from tests.system.conftest import pytest_asyncio_loop_factories

__all__ = ["pytest_asyncio_loop_factories"]
