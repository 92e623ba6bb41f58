"""Compute modes go back to their cards before the file goes; directories of daemons that answer are not ours."""

import contextlib
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import msgspec
import pytest

from config.settings.deviceplugin import DevicePluginConfiguration, Mps
from deviceplugin.driver.cards import DriverCards, NoAnswer
from deviceplugin.isolation.mps_control import ControlFailed, MpsControl
from deviceplugin.uninstall.hands import Hands
from deviceplugin.uninstall.mps_directories import left_by_daemons
from deviceplugin.uninstall.plan import Plan, Removal, RemovalKind
from tests.support.node import mps_double

CARD: Final = "GPU-0000"


class Cards:
    """A driver."""

    def __init__(self) -> None:
        self.modes: dict[str, str] = {}
        self.fails = self.closed = False

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
    cards, path, lock = Cards(), tmp_path / "compute-modes.json", tmp_path / "lock"
    cards.fails = fails
    path.write_bytes(msgspec.json.encode({"version": 1, "before": {CARD: "PROHIBITED"}}))
    lock.touch()
    wanted = Plan(remove=(Removal(RemovalKind.MODES, str(path)),), last=(Removal(RemovalKind.FILE, str(lock)),))

    done = await Hands(None, lambda: cards).remove(wanted)

    assert (path.exists(), lock.exists(), cards.closed) == (fails, fails, True)
    assert cards.modes == ({} if fails else {CARD: "PROHIBITED"})
    told = (
        f"card {CARD}: its compute mode cannot be given back: no permission; nvidia-smi -i CARD -c DEFAULT on the node"
    )
    assert done.failed == ({str(path): f"{told}, then remove the file"} if fails else {})


async def test_what_is_gone_already_is_no_mistake(tmp_path: Path) -> None:
    gone = [Removal(kind, str(tmp_path / "none")) for kind in (RemovalKind.FILE, RemovalKind.TREE, RemovalKind.FOLDER)]
    assert (await Hands(None, Cards).remove(Plan(remove=tuple(gone)))).failed == {}


async def test_what_is_deeper_in_a_directory_is_named_by_its_path(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    path = tmp_path / "file" / "below"
    done = await Hands(None, Cards).remove(Plan(remove=(Removal(RemovalKind.FILE, str(path)),)))
    assert done.failed == {str(path): "Not a directory"}


@pytest.fixture
def short_path() -> Iterator[Path]:
    """As the daemon's sockets need it."""
    with tempfile.TemporaryDirectory(prefix="mps-") as folder:
        yield Path(folder)


async def test_pipes_and_logs_of_a_daemon_are_ours_once_none_answers(short_path: Path) -> None:
    settings = Mps(control=str(mps_double.installed(short_path)), directory=str(short_path / "mps"))
    configuration = DevicePluginConfiguration(node_name="n", isolation="mps", mps=settings)
    (short_path / "mps" / "notes").mkdir(parents=True)
    control = MpsControl(settings, CARD)
    process = await control.start()
    try:
        while not (control.pipes / mps_double.PID_FILE).exists():
            assert process.returncode is None
            await control_asked(control)
        answering = await left_by_daemons(configuration)
    finally:
        await control.end(process, 5.0)

    assert answering == ()
    assert await left_by_daemons(configuration) == (str(control.pipes), str(control.logs))
    of_others = configuration.model_copy(update={"mps": settings.model_copy(update={"daemons": "external"})})
    assert await left_by_daemons(of_others) == ()
    assert await left_by_daemons(configuration.model_copy(update={"isolation": "none"})) == ()


async def control_asked(control: MpsControl) -> None:
    """Takes a moment, as a daemon's start does."""
    with contextlib.suppress(ControlFailed):
        await control.ask(5.0)
