"""The cards as they were last announced, in a file: what is announced while the driver is late or absent."""

from dataclasses import dataclass
from pathlib import Path
from typing import Final

import msgspec

from config.protocol import inventory
from deviceplugin.driver.cards import DriverCard, card_of
from deviceplugin.files import replace_file

FILE: Final = "inventory.json"


class _Document(msgspec.Struct, rename="camel"):
    boot_id: str
    inventory: str


@dataclass(frozen=True, slots=True)
class LastKnown:
    """cards: with what an inventory says of them, so without their minors. same_boot: the machine has not rebooted."""

    cards: tuple[DriverCard, ...] = ()
    same_boot: bool = False
    problem: str = ""


class LastKnownFile:
    """In the state directory; owned by one thread."""

    def __init__(self, directory: Path, boot_id: str) -> None:
        """boot_id: changes with each boot of the machine."""
        self._path = directory / FILE
        self._boot_id = boot_id
        self._saved = ""

    def load(self) -> LastKnown:
        """The saved cards; none, with a problem, if they cannot be read."""
        try:
            document = msgspec.json.decode(self._path.read_bytes(), type=_Document)
            known = inventory.decode(document.inventory)
        except FileNotFoundError:
            return LastKnown()
        except (OSError, msgspec.DecodeError, UnicodeError, RecursionError, inventory.InventoryError) as error:
            return LastKnown(problem=f"{FILE} cannot be read: {error}; it starts empty")
        return LastKnown(tuple(card_of(card) for card in known.cards), document.boot_id == self._boot_id)

    def save(self, text: str) -> None:
        """Keep this inventory, as it is announced. Raises OSError."""
        if text == self._saved:
            return
        replace_file(self._path, msgspec.json.encode(_Document(self._boot_id, text)))
        self._saved = text
