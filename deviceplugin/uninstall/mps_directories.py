"""Directories of MPS daemons that the plugin has started, and that have ended."""

import asyncio
from pathlib import Path
from typing import Final

from config.settings.deviceplugin import DevicePluginConfiguration, Mps
from config.settings.mistakes import ConfigurationError
from deviceplugin.isolation.load import mechanism_of
from deviceplugin.isolation.make import MPS
from deviceplugin.isolation.mps_control import ControlFailed, ControlSilent, MpsControl

_ANSWERS_WITHIN_S: Final = 5.0
_CARD: Final = "GPU-"  # NVIDIA's UUIDs of cards begin so


async def left_by_daemons(c: DevicePluginConfiguration) -> tuple[str, ...]:
    """Of each card's pipes and logs, where no daemon answers: one that does is somebody else's."""
    if not _starts_daemons(c):
        return ()
    left: list[str] = []
    for control in await asyncio.to_thread(_controls, c.mps):
        try:
            await control.ask(_ANSWERS_WITHIN_S)
        except ControlSilent:
            continue  # It may be there.
        except ControlFailed:
            left += [str(path) for path in (control.pipes, control.logs) if path.is_dir()]
    return tuple(left)


def _starts_daemons(c: DevicePluginConfiguration) -> bool:
    try:
        return mechanism_of(c).preparation == MPS and c.mps.daemons == "plugin"
    except ConfigurationError:
        return False  # The description is gone: nobody knows whether there were any.


def _controls(settings: Mps) -> list[MpsControl]:
    found = []
    directory = Path(settings.directory)
    for path in sorted(directory.glob(f"{_CARD}*")):
        try:
            found.append(MpsControl(settings, path.name))
        except ControlFailed:
            continue
    return [control for control in found if control.pipes.is_dir()]
