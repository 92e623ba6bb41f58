"""CDI edits of simulated cards: each is a small read-only file, because it has no device node."""

from collections.abc import Callable, Sequence
from pathlib import Path
from threading import Lock

import msgspec

from config.protocol.inventory import Card
from deviceplugin.cdi import spec
from deviceplugin.cdi.edits import Edits, combined
from deviceplugin.cdi.spec import CdiError
from deviceplugin.files import replace_file


class SimulatedEdits:
    """`allocation.allocators.EditsSource` without NVIDIA components."""

    lacking = ""
    known = True
    problems: tuple[str, ...] = ()

    def __init__(self, directory: Path, cards: Callable[[], Sequence[Card]]) -> None:
        """directory: of the files, one for each card. cards: as announced now."""
        self._directory = directory
        self._cards = cards
        self._writing = Lock()

    def prepare(self) -> None:
        """Nothing to do."""

    def edits(self, uuids: Sequence[str]) -> Edits:
        """Edits for these cards alone. Raises CdiError; OSError when a file cannot be written."""
        by_uuid = {card.uuid: card for card in self._cards()}
        return combined(spec.simulated_card(uuid, str(self._described(uuid, by_uuid.get(uuid)))) for uuid in uuids)

    def _described(self, uuid: str, card: Card | None) -> Path:
        if card is None:
            raise CdiError(f"there is no simulated card {uuid}")
        # A UUID of a cluster file is whatever somebody wrote there.
        if "/" in uuid or "\0" in uuid or uuid.startswith("."):
            raise CdiError(f"simulated card {uuid!r} cannot be a file: expected a UUID with no slash, and no dot first")
        path = self._directory / uuid
        about = {"uuid": card.uuid, "index": card.index, "model": card.model, "memoryMiB": card.memory_mib}
        text = msgspec.json.encode(about) + b"\n"
        # Two containers of the same card may start at once.
        with self._writing:
            if not path.is_file() or path.read_bytes() != text:
                self._directory.mkdir(parents=True, exist_ok=True)
                replace_file(path, text)
        return path
