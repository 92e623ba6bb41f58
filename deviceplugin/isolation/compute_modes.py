"""The compute modes that the plugin sets for MPS, and the earlier ones, which it restores.

The earlier modes are kept in a file, so that a killed or reconfigured plugin restores them too.
Owned by the event loop.
"""

from collections.abc import Mapping
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
    """Port: the part of `driver.cards.Driver` that sets the compute mode."""

    async def set_compute_mode(self, uuid: str, mode: str) -> None:
        """Set the mode. mode: as in `CardReading`. Raises SourceFailed."""
        ...


class _CardReadings(Protocol):
    """Port: the part of `health.states.CardStates` that keeps readings."""

    @property
    def readings(self) -> Mapping[str, CardReading]:
        """UUID -> the last reading, if any."""
        ...


class ComputeModes:
    """Compute modes set by the plugin. before: UUID -> the card's earlier mode."""

    def __init__(self, state: Path, driver: ModeSetter, cards: _CardReadings) -> None:
        """state: the state directory."""
        self._path = state / FILE
        self._driver = driver
        self._cards = cards
        self.before = load(self._path)

    async def exclusive(self, uuid: str) -> str:
        """Let only one process, the MPS server, use the card. Return why that failed, or ""."""
        reading = self._cards.readings.get(uuid)
        if reading is None:
            return "the driver has not reported this card's state yet"
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
        """Restore the earlier mode, if the plugin changed it. Return why that failed, or ""."""
        if uuid not in self.before:
            return ""
        try:
            await self._driver.set_compute_mode(uuid, self.before[uuid])
            self._save({other: mode for other, mode in self.before.items() if other != uuid})
        except (SourceFailed, OSError) as error:
            return f"card {uuid}: its compute mode cannot be restored: {error}"
        log.info("compute_mode.given_back", uuid=uuid)
        return ""

    def _save(self, before: dict[str, str]) -> None:
        replace_file(self._path, msgspec.json.encode(_Document(_VERSION, before)))
        self.before = before


def load(path: Path) -> dict[str, str]:
    """Return UUID -> the mode to restore; empty if the file is missing or unreadable."""
    try:
        document = msgspec.json.decode(path.read_bytes(), type=_Document)
    except FileNotFoundError:
        return {}
    except (OSError, msgspec.DecodeError, UnicodeError, RecursionError) as error:
        log.warning("state.unreadable", reason=f"{path.name} cannot be read: {error}; starting with an empty record")
        return {}
    return document.before
