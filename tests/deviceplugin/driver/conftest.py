"""NVML's stand-in; a file's own fixture `world` says which cards it has."""

from pathlib import Path

import pytest

from deviceplugin.driver.nvml import NvmlSource
from tests.support.nvidia import libraries
from tests.support.nvidia.world import World


@pytest.fixture(scope="session")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The stand-in, compiled."""
    return libraries.compile_nvml(tmp_path_factory.mktemp("nvidia"))


@pytest.fixture
def source(world: World) -> NvmlSource:
    """Opened."""
    opened = NvmlSource()
    assert opened.open().count == len(world.cards)
    return opened
