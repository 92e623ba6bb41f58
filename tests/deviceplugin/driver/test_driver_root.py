"""NVML of a driver below another root directory: loaded by the process that asks it, without the rest of that root."""

from pathlib import Path
from typing import Final

import pytest

from config.settings.deviceplugin import DevicePluginConfiguration
from deviceplugin.backends import backend_for
from deviceplugin.driver.cards import NotOpened, SourceFailed
from deviceplugin.driver.nvml import NVML
from deviceplugin.driver.rooted_nvml import RootedNvml
from tests.support.nvidia import driver_root
from tests.support.nvidia.world import VARIABLE, World, card, uuid_of
from tests.support.repository import ROOT

NOT_A_LIBRARY: Final = "of another container's system"


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A root with a driver's libraries, and with a C library that no process could run with."""
    root = tmp_path_factory.mktemp("driver")
    driver_root.make_libraries(root)
    (root / driver_root.LIBRARIES / "libc.so.6").write_text(NOT_A_LIBRARY)
    return root


async def test_the_plugin_asks_the_nvml_of_the_configured_root(
    installed: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = World(tmp_path / "world", [card(0), card(1)])
    world.write()
    monkeypatch.setenv(VARIABLE, str(world.path))
    monkeypatch.chdir(ROOT)
    driver = backend_for(DevicePluginConfiguration(node_name="n", driver_root=str(installed))).driver
    try:
        assert [one.uuid for one in (await driver.cards()).cards] == [uuid_of(0), uuid_of(1)]
    finally:
        await driver.close()


async def test_a_root_without_a_driver_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    driver = backend_for(DevicePluginConfiguration(node_name="n", driver_root=str(tmp_path))).driver
    try:
        with pytest.raises(SourceFailed, match=rf"no libnvidia-ml.so.1 under driverRoot {tmp_path}: looked in usr/lib"):
            await driver.cards()
    finally:
        await driver.close()


def test_a_library_that_cannot_be_loaded_is_reported_in_the_loaders_words(tmp_path: Path) -> None:
    library = tmp_path / "usr" / "lib64" / NVML
    library.parent.mkdir(parents=True)
    library.write_text(NOT_A_LIBRARY)

    with pytest.raises(NotOpened, match=r"the driver: .*(file too short|invalid ELF header)"):
        RootedNvml(tmp_path).open()


def test_a_relative_root_is_refused() -> None:
    with pytest.raises(ValueError, match="expected an absolute path"):
        DevicePluginConfiguration(node_name="n", driver_root="driver")
