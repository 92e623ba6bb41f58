"""CDI edits: of real cards from NVIDIA's own CDI specs alone, of simulated cards a small read-only file each."""

import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from threading import Lock
from typing import Final

import msgspec

from config.protocol.inventory import Card
from deviceplugin.cdi import nvidia_spec, spec
from deviceplugin.cdi.edits import Edits, combined
from deviceplugin.cdi.spec import CdiError
from deviceplugin.cdi.spec_files import NvidiaSpecs, NvidiaSpecTree, generate_nvidia
from deviceplugin.driver.cards import DriverCard, DriverCards
from deviceplugin.files import replace_file

_AGAIN_S: Final = 600.0
_TAKES_AT_MOST_S: Final = 60.0


class NvidiaEdits:
    """`allocation.allocators.EditsSource`. Every method blocks for as long as the disk takes: for a thread.

    lacking: why a card cannot be injected into containers, "" while all can; of the cards of the last call, which are
    all cards for `prepare`, those of one container for `edits`. known: the driver has named its cards.
    problems: CDI specs that cannot be read.
    """

    def __init__(
        self,
        cards: Callable[[], DriverCards],
        spec_dirs: Sequence[Path],
        generated: Path,
        ctk: str,
        *,
        now_s: Callable[[], float] = time.monotonic,
    ) -> None:
        """cards: as the driver names them now, without those that are lost: a lost card's minor is another's by now.

        generated: where `ctk` writes a spec, if there is none.
        """
        self._cards = cards
        self._tree = NvidiaSpecTree((generated.parent, *spec_dirs))
        self._generated, self._ctk = generated, ctk
        self._now_s = now_s
        self._tried_s = float("-inf")
        self._not_generated = ""
        self._reading = threading.Lock()
        self.lacking = "the driver has not named its cards yet"
        self.problems: tuple[str, ...] = ()

    @property
    def known(self) -> bool:
        """Whether the driver has named its cards."""
        return bool(self._cards().driver)

    def prepare(self) -> None:
        """Check that every card can be injected into containers; generate a spec if one cannot."""
        if not self.known:
            return
        found = self._cards()
        cards = [card for card in found.cards if not card.mig]
        reason = self._missing(cards, found.driver)
        if reason and self._now_s() >= self._tried_s + _AGAIN_S:
            self._tried_s = self._now_s()
            self._not_generated = self._generate()
            reason = self._missing(cards, found.driver)
        self._report(reason)

    def edits(self, uuids: Sequence[str]) -> Edits:
        """Edits for these cards alone. Raises CdiError."""
        found = self._cards()
        by_uuid = {card.uuid: card for card in found.cards}
        unknown = [uuid for uuid in uuids if uuid not in by_uuid]
        if unknown:
            raise CdiError(f"the driver has no card {', '.join(unknown)}")
        try:
            edits = self._real_cards([by_uuid[uuid] for uuid in uuids], found.driver)
        except CdiError as error:
            self._report(str(error))
            raise
        self._report("")
        return edits

    def _missing(self, cards: Sequence[DriverCard], driver: str) -> str:
        try:
            self._real_cards(cards, driver)
        except CdiError as error:
            return str(error)
        return ""

    def _real_cards(self, cards: Sequence[DriverCard], driver: str) -> Edits:
        return nvidia_spec.real_cards(cards, self._specs().specs, driver=driver)

    def _report(self, reason: str) -> None:
        self.lacking = "; ".join(filter(None, (reason, reason and self._not_generated)))

    def _generate(self) -> str:
        """Why no spec could be generated; "" when one was."""
        try:
            self._generated.parent.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            return f"cannot write a CDI spec: {error}"
        return generate_nvidia(self._generated, timeout_s=_TAKES_AT_MOST_S, ctk=self._ctk)

    def _specs(self) -> NvidiaSpecs:
        # `prepare` and `edits` are in threads of their own.
        with self._reading:
            found = self._tree.read()
        self.problems = found.problems
        return found


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
