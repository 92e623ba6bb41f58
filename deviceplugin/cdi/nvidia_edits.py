"""CDI edits: those of real cards come only from NVIDIA's own CDI specs; a simulated card is a small read-only file."""

import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from threading import Lock
from typing import Final, Protocol

import msgspec

from config.protocol.inventory import Card
from deviceplugin.cdi import nvidia_spec, spec
from deviceplugin.cdi.edits import Edits, combined
from deviceplugin.cdi.host_nodes import HostNodes
from deviceplugin.cdi.mode import Coverage
from deviceplugin.cdi.spec import CdiError
from deviceplugin.cdi.spec_files import NvidiaSpecs, NvidiaSpecTree, generate_nvidia
from deviceplugin.driver.cards import DriverCard, DriverCards
from deviceplugin.files import replace_file
from scheduler.process.clock import Clock

_AGAIN_S: Final = 600.0
_MOST_PROBLEMS: Final = 3
_TAKES_AT_MOST_S: Final = 60.0


class NvidiaEdits:
    """`allocation.allocators.EditsSource`. Every method blocks on the disk: call it in a thread.

    coverage: how the shared cards were covered at the last `prepare`. hookless: UUIDs of the cards that were covered
    then, but without the hook that limits their memory. prepared: both are known. known: the driver has named its
    cards. problems: CDI specs that cannot be read. limits_by_hook: a container's memory limits need that hook.
    """

    limits_by_hook = True

    def __init__(
        self,
        cards: Callable[[], DriverCards],
        spec_dirs: Sequence[Path],
        generated: Path,
        ctk: str,
        nodes: HostNodes,
        *,
        clock: Clock,
    ) -> None:
        """cards: as the driver names them now, without lost cards: a lost card's minor may now be another card's.

        generated: where `ctk` writes a spec if none exists.
        """
        self._cards, self._nodes = cards, nodes
        self._tree, self._spec_dirs = NvidiaSpecTree((generated.parent, *spec_dirs)), spec_dirs
        self._generated, self._ctk = generated, ctk
        self._clock = clock
        self._tried_s = float("-inf")
        self._not_generated = self._looked_in = ""
        self._reading = threading.Lock()
        self.coverage = Coverage("the driver has not reported its cards yet", some=False)
        self.hookless: frozenset[str] = frozenset()
        self.prepared = False
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
        uncovered = self._uncovered(cards, found.driver)
        if uncovered and self._clock.monotonic_s() >= self._tried_s + _AGAIN_S:
            self._tried_s = self._clock.monotonic_s()
            self._not_generated = self._generate()
            uncovered = self._uncovered(cards, found.driver)
        self.coverage = Coverage.of(len(cards), uncovered, self._lacking(tuple(uncovered.values())))
        limitable = [card for card in cards if card.limits]
        specs = self._specs().specs if limitable else ()
        self.hookless = nvidia_spec.hookless(limitable, specs, driver=found.driver, lacks=self._nodes.lacks)
        self.prepared = True

    def edits(self, uuids: Sequence[str]) -> Edits:
        """Return the edits for exactly these cards. Raises CdiError."""
        found = self._cards()
        by_uuid = {card.uuid: card for card in found.cards}
        unknown = [uuid for uuid in uuids if uuid not in by_uuid]
        if unknown:
            raise CdiError(f"the driver does not list card {', '.join(unknown)}")
        wanted, specs = [by_uuid[uuid] for uuid in uuids], self._specs().specs
        nodes = self._nodes
        return nvidia_spec.real_cards(wanted, specs, driver=found.driver, lacks=nodes.lacks, caps=nodes.caps)

    def device_nodes(self, uuids: Sequence[str]) -> dict[str, str]:
        """Return the device nodes of these cards, see `HostNodes.of_cards`; empty if one of them has none."""
        by_uuid = {card.uuid: card for card in self._cards().cards}
        known = [by_uuid[uuid] for uuid in uuids if uuid in by_uuid]
        return self._nodes.of_cards(known) if len(known) == len(uuids) else {}

    def _uncovered(self, cards: Sequence[DriverCard], driver: str) -> dict[str, str]:
        specs = self._specs().specs
        self._looked_in = "" if specs else f"looked in {', '.join(map(str, self._spec_dirs))} (cdiSpecDirs)"
        nodes = self._nodes
        return nvidia_spec.uncovered(cards, specs, driver=driver, lacks=nodes.lacks, caps=nodes.caps)

    def _lacking(self, reasons: Sequence[str]) -> str:
        """Return the first of the reasons, the number of others and other known problems; "" if there is no reason."""
        if not reasons:
            return ""
        others = f"{len(reasons) - 1} more cannot be injected either" if len(reasons) > 1 else ""
        also = (others, self._looked_in, *self.problems[:_MOST_PROBLEMS], self._not_generated)
        return "; ".join(filter(None, (reasons[0], *also)))

    def _generate(self) -> str:
        """Generate a spec. Return why that failed; "" if it succeeded."""
        try:
            self._generated.parent.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            return f"cannot write a CDI spec: {error}"
        return generate_nvidia(self._generated, timeout_s=_TAKES_AT_MOST_S, ctk=self._ctk)

    def _specs(self) -> NvidiaSpecs:
        # `prepare` and `edits` run in separate threads.
        with self._reading:
            found = self._tree.read()
        self.problems = found.problems
        return found


class Announced(Protocol):
    """Port: the node's cards, as announced now."""

    @property
    def cards(self) -> Sequence[Card]: ...


class SimulatedEdits:
    """`allocation.allocators.EditsSource` without NVIDIA components."""

    coverage = Coverage()
    hookless: frozenset[str] = frozenset()
    limits_by_hook = False
    known = prepared = True
    problems: tuple[str, ...] = ()

    def __init__(self, directory: Path, announced: Announced) -> None:
        """directory: holds one file per card."""
        self._directory = directory
        self._announced = announced
        self._writing = Lock()

    def prepare(self) -> None:
        """Do nothing, because simulated cards need no specs."""

    def edits(self, uuids: Sequence[str]) -> Edits:
        """Return the edits for exactly these cards. Raises CdiError; OSError if a file cannot be written."""
        by_uuid = {card.uuid: card for card in self._announced.cards}
        return combined(spec.simulated_card(uuid, str(self._described(uuid, by_uuid.get(uuid)))) for uuid in uuids)

    def device_nodes(self, _: Sequence[str]) -> dict[str, str]:
        """Return nothing: simulated cards have no device nodes."""
        return {}

    def _described(self, uuid: str, card: Card | None) -> Path:
        if card is None:
            raise CdiError(f"there is no simulated card {uuid}")
        # A UUID of a cluster file is arbitrary text.
        if "/" in uuid or "\0" in uuid or uuid.startswith("."):
            raise CdiError(
                f"simulated card {uuid!r}: its UUID cannot be a file name; expected no slash, no leading dot"
            )
        path = self._directory / uuid
        about = {"uuid": card.uuid, "index": card.index, "model": card.model, "memoryMiB": card.memory_mib}
        text = msgspec.json.encode(about) + b"\n"
        # Two containers of the same card may start at once.
        with self._writing:
            if not path.is_file() or path.read_bytes() != text:
                self._directory.mkdir(parents=True, exist_ok=True)
                replace_file(path, text)
        return path
