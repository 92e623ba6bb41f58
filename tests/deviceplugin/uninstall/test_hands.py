"""Compute modes go back to their cards before the file goes; directories of daemons that answer are not ours."""

import contextlib
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Final, cast

import msgspec
import pytest

from config.settings.deviceplugin import DevicePluginConfiguration, Mps
from deviceplugin.driver.cards import Driver, DriverCards, NoAnswer
from deviceplugin.isolation.mps_control import ControlFailed, MpsControl
from deviceplugin.uninstall.look import look
from deviceplugin.uninstall.plan import Item, ItemKind
from deviceplugin.uninstall.run import Hands
from tests.support.node import mps_double

CARD: Final = "GPU-0000"


class Cards:
    """The part of a driver that compute modes need."""

    def __init__(self, *, fails: bool) -> None:
        self.modes: dict[str, str] = {}
        self.fails, self.closed = fails, False

    async def cards(self) -> DriverCards:
        return DriverCards("580", ())

    async def set_compute_mode(self, uuid: str, mode: str) -> None:
        if self.fails:
            message = "no permission"
            raise NoAnswer(message)
        self.modes[uuid] = mode

    async def close(self) -> None:
        self.closed = True


@pytest.mark.parametrize("fails", [False, True])
async def test_compute_modes_are_given_back_and_then_their_file_goes(tmp_path: Path, *, fails: bool) -> None:
    cards, path = Cards(fails=fails), tmp_path / "compute-modes.json"
    path.write_bytes(msgspec.json.encode({"version": 1, "before": {CARD: "PROHIBITED"}}))

    said = await Hands(None, lambda: cast("Driver", cards)).remove(Item(ItemKind.MODES, str(path)))

    assert (path.exists(), cards.closed) == (fails, True)
    assert cards.modes == ({} if fails else {CARD: "PROHIBITED"})
    why = (
        f"{path}: card {CARD}: its compute mode cannot be restored: no permission; "
        "on the node, run nvidia-smi -i CARD -c DEFAULT, then remove the file"
    )
    assert said == (why if fails else "")


async def test_no_driver_is_asked_where_all_modes_are_given_back(tmp_path: Path) -> None:
    path = tmp_path / "compute-modes.json"
    path.write_bytes(msgspec.json.encode({"version": 1, "before": {}}))

    def no_driver() -> Driver:
        pytest.fail("a driver was made")

    assert await Hands(None, no_driver).remove(Item(ItemKind.MODES, str(path))) == ""
    assert not path.exists()


@pytest.mark.parametrize("kind", [ItemKind.FILE, ItemKind.TREE, ItemKind.FOLDER])
async def test_what_is_gone_already_is_no_mistake(tmp_path: Path, kind: ItemKind) -> None:
    gone = Item(kind, str(tmp_path / "none"))
    assert await Hands(None, lambda: cast("Driver", Cards(fails=False))).remove(gone) == ""


@pytest.fixture
def short_path() -> Iterator[Path]:
    """As the daemon's sockets need it."""
    with tempfile.TemporaryDirectory(prefix="mps-") as folder:
        yield Path(folder)


async def left(configuration: DevicePluginConfiguration) -> list[str]:
    """Trees that may go."""
    return [one.name for one in (await look(configuration, "away", force=True)).items if one.kind is ItemKind.TREE]


async def test_pipes_and_logs_of_a_daemon_are_ours_once_none_answers(short_path: Path) -> None:
    settings = Mps(control=str(mps_double.installed(short_path)), directory=str(short_path / "mps"))
    configuration = DevicePluginConfiguration(
        node_name="n", isolation="mps", mps=settings, state_dir=str(short_path / "none"), cdi_dir=str(short_path / "no")
    )
    for name in ("notes", "GPU-\n", "GPU-"):
        (short_path / "mps" / name).mkdir(parents=True)
    control = MpsControl(settings, CARD)
    process = await control.start()
    try:
        while not (control.pipes / mps_double.PID_FILE).exists():
            assert process.returncode is None
            with contextlib.suppress(ControlFailed):  # takes a moment, as a daemon's start does
                await control.ask(5.0)
        assert await left(configuration) == []
    finally:
        await control.end(process, 5.0)

    assert await left(configuration) == [str(control.pipes), str(control.logs)]
    of_others = configuration.model_copy(update={"mps": settings.model_copy(update={"daemons": "external"})})
    assert await left(of_others) == []
    assert await left(configuration.model_copy(update={"isolation": "none"})) == []
