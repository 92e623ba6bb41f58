"""The compute mode of cards: set to one process at a time, and restored later.

The earlier mode is kept in a file, so that a plugin that was killed or reconfigured restores it too.
Owned by the event loop.
"""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final, Protocol

import msgspec
import structlog

from deviceplugin.driver.cards import EXCLUSIVE_PROCESS, CardReading, SourceFailed
from deviceplugin.files import replace_file

FILE: Final = "compute-modes.json"
_VERSION: Final = 1
log = structlog.get_logger()


class _Document(msgspec.Struct, frozen=True):
    version: int
    before: dict[str, str]


class ModeSetter(Protocol):
    """The part of `driver.cards.Driver` that sets it."""

    async def set_compute_mode(self, uuid: str, mode: str) -> None:
        """mode: as in `CardReading`. Raises SourceFailed."""
        ...


class ComputeModes:
    """before: UUID -> the mode that the card had, of those whose mode is ours."""

    def __init__(self, state: Path, driver: ModeSetter, readings: Callable[[], Mapping[str, CardReading]]) -> None:
        """readings: UUID -> the last one, where there is one."""
        self._path = state / FILE
        self._driver = driver
        self._readings = readings
        self.before = load(self._path)

    async def exclusive(self, uuid: str) -> str:
        """Allow one process at a time on the card: the MPS server. Returns why that failed, or ""."""
        reading = self._readings().get(uuid)
        if reading is None:
            return "the driver has not read the card yet"
        if reading.compute_mode == EXCLUSIVE_PROCESS:
            return ""
        try:
            if uuid not in self.before:
                self._save({**self.before, uuid: reading.compute_mode})
            await self._driver.set_compute_mode(uuid, EXCLUSIVE_PROCESS)
        except (SourceFailed, OSError) as error:
            return f"its compute mode cannot be set: {error}"
        log.info("compute_mode.set", uuid=uuid, before=reading.compute_mode or "DEFAULT")
        return ""

    async def restore(self, uuid: str) -> str:
        """Restore the earlier mode, if we changed it. Returns why that failed, or ""."""
        if uuid not in self.before:
            return ""
        try:
            await self._driver.set_compute_mode(uuid, self.before[uuid])
            self._save({other: mode for other, mode in self.before.items() if other != uuid})
        except (SourceFailed, OSError) as error:
            return f"card {uuid}: its compute mode cannot be given back: {error}"
        log.info("compute_mode.given_back", uuid=uuid)
        return ""

    def _save(self, before: dict[str, str]) -> None:
        replace_file(self._path, msgspec.json.encode(_Document(_VERSION, before)))
        self.before = before


def load(path: Path) -> dict[str, str]:
    """UUID -> the mode that is to be given back; nothing where there is no file, or none that can be read."""
    try:
        document = msgspec.json.decode(path.read_bytes(), type=_Document)
    except FileNotFoundError:
        return {}
    except (OSError, msgspec.DecodeError, UnicodeError, RecursionError) as error:
        log.warning("state.unreadable", reason=f"{path.name} cannot be read: {error}; it starts empty")
        return {}
    return document.before
