"""Files that outlive the plugin: the cards' health, and the cards as last announced, used until the driver answers."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

import msgspec

from config.protocol import inventory
from deviceplugin.driver.cards import DriverCard, card_of
from deviceplugin.files import replace_file
from deviceplugin.health.rules import CardHealth, HealthState

FILE: Final = "health.json"
_VERSION: Final = 1
_RECOVERING: Final = "the cards in inventory.json count as recovering"
_UNKNOWN: Final = CardHealth(state=HealthState.RECOVERING, reason="record-unreadable")


class _Document(msgspec.Struct, rename="camel"):
    version: int
    boot_id: str
    cards: dict[str, msgspec.Raw]


class HealthFile:
    """Health file in the state directory; owned by one thread. problem: why the file was not used; "" if it was."""

    def __init__(self, directory: Path, boot_id: str) -> None:
        """boot_id: changes with each boot of the machine, which resets every card."""
        self._path = directory / FILE
        self._boot_id = boot_id
        self._saved: Mapping[str, CardHealth] | None = None
        self.problem = ""

    def load(self, announced: Iterable[str] = ()) -> dict[str, CardHealth]:
        """Return UUID -> health of the cards that were not healthy; after a reboot they recover.

        announced: cards that existed when the file was written. If it cannot be read, any of them may have been
        unhealthy, so each has to prove that it is healthy.
        """
        try:
            document = msgspec.json.decode(self._path.read_bytes(), type=_Document)
        except FileNotFoundError:
            return {}
        except (OSError, msgspec.DecodeError, UnicodeError, RecursionError) as error:
            self.problem = f"{FILE} cannot be read: {error}; {_RECOVERING}"
            return dict.fromkeys(announced, _UNKNOWN)
        if document.version != _VERSION:
            self.problem = f"{FILE} has version {document.version}; expected {_VERSION}; {_RECOVERING}"
            return dict.fromkeys(announced, _UNKNOWN)
        known = {uuid: self._health(uuid, record) for uuid, record in document.cards.items()}
        if document.boot_id == self._boot_id:
            return known
        return {
            uuid: CardHealth(state=HealthState.RECOVERING, reason=health.reason)
            for uuid, health in known.items()
            if health.state not in {HealthState.HEALTHY, HealthState.SUSPECT}
        }

    def save(self, by_uuid: Mapping[str, CardHealth]) -> None:
        """Save the cards' health. Raises OSError.

        Changes of good-answer counts or growing values alone cause no write.
        """
        kept = {
            uuid: replace(health, good=0, good_s=0.0, silent=0, failed=0, failed_s=0.0)
            for uuid, health in by_uuid.items()
            if health.state is not HealthState.HEALTHY or health.released_s is not None or health.annotated
        }
        worth = {uuid: replace(health, energy_mj=None) for uuid, health in kept.items()}
        if worth == self._saved:
            return
        records = {uuid: msgspec.Raw(msgspec.json.encode(health)) for uuid, health in kept.items()}
        replace_file(self._path, msgspec.json.encode(_Document(_VERSION, self._boot_id, records)))
        self._saved = worth

    def _health(self, uuid: str, record: msgspec.Raw) -> CardHealth:
        """Read one record. An unreadable one belongs to a card that was not healthy: the card must prove its health."""
        try:
            return msgspec.json.decode(record, type=CardHealth)
        except (msgspec.DecodeError, UnicodeError, RecursionError) as error:
            self.problem = f"{FILE}: the record of card {uuid[:80]} cannot be read: {error}; it counts as recovering"
            return _UNKNOWN


INVENTORY_FILE: Final = "inventory.json"


class _SavedInventory(msgspec.Struct, rename="camel"):
    boot_id: str
    inventory: str


@dataclass(frozen=True, slots=True)
class LastKnown:
    """Saved cards. cards: with only the facts of an inventory, so without minors.

    same_boot: the machine has not rebooted.
    """

    cards: tuple[DriverCard, ...] = ()
    same_boot: bool = False
    problem: str = ""


class LastKnownFile:
    """Inventory file in the state directory; owned by one thread."""

    def __init__(self, directory: Path, boot_id: str) -> None:
        """boot_id: changes with each boot of the machine."""
        self._path = directory / INVENTORY_FILE
        self._boot_id = boot_id
        self._saved = ""

    def load(self) -> LastKnown:
        """Return the saved cards; no cards and a problem if they cannot be read."""
        try:
            document = msgspec.json.decode(self._path.read_bytes(), type=_SavedInventory)
            known = inventory.decode(document.inventory)
        except FileNotFoundError:
            return LastKnown()
        except (OSError, msgspec.DecodeError, UnicodeError, RecursionError, inventory.InventoryError) as error:
            return LastKnown(problem=f"{INVENTORY_FILE} cannot be read: {error}; starting with an empty inventory")
        return LastKnown(tuple(card_of(card) for card in known.cards), document.boot_id == self._boot_id)

    def save(self, text: str) -> None:
        """Save this inventory as announced. Raises OSError."""
        if text == self._saved:
            return
        replace_file(self._path, msgspec.json.encode(_SavedInventory(self._boot_id, text)))
        self._saved = text
