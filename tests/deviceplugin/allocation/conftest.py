"""Nodes in either injection mode."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from deviceplugin.allocation.allocators import CdiAllocator
from tests.deviceplugin.allocation.allocator_rig import Rig, rig, without_cdi


@pytest.fixture
async def by_cdi(folder: Path) -> AsyncIterator[Rig]:
    async with rig(folder, CdiAllocator) as node:
        yield node


@pytest.fixture
async def by_environment(folder: Path) -> AsyncIterator[Rig]:
    async with rig(folder, without_cdi) as node:
        yield node
