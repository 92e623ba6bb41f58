"""How real cards come into a container: by NVIDIA's own CDI specs where there are any, else as device nodes."""

import contextlib
import os
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final, TypeAlias

from deviceplugin.cdi import spec
from deviceplugin.cdi.edits import Edits
from deviceplugin.cdi.spec import CdiError
from deviceplugin.cdi.spec_files import NvidiaSpecs, generate_nvidia, read_nvidia
from deviceplugin.driver.cards import DriverCard

_AGAIN_S: Final = 600.0
_TAKES_AT_MOST_S: Final = 60.0
_NODE: Final = "nvidia"
_OURS: Final = ("gpushare-", ".gpushare-")  # the second: while one is replaced

_Seen: TypeAlias = tuple[tuple[str, int, int], ...]


class NvidiaEdits:
    """`allocation.allocators.EditsSource`.

    toolkit_missing: why containers get device nodes alone; "" while they get everything.

    It is of the cards that were looked at last: by `prepare` all of them, by `edits` those of one container.
    problems: CDI specs that cannot be read.
    """

    def __init__(
        self,
        cards: Callable[[], Sequence[DriverCard]],
        spec_dirs: Sequence[Path],
        generated: Path,
        ctk: str,
        *,
        device_dir: Path = Path("/dev"),
        now_s: Callable[[], float] = time.monotonic,
    ) -> None:
        """cards: as the driver names them now. generated: where `ctk` writes a spec, if there is none."""
        self._cards = cards
        self._directories = (generated.parent, *spec_dirs)
        self._generated, self._ctk = generated, ctk
        self._device_dir = device_dir
        self._now_s = now_s
        self._tried_s = float("-inf")
        self._not_generated = ""
        self._read: tuple[_Seen | None, NvidiaSpecs] = (None, NvidiaSpecs(()))
        self.toolkit_missing = ""

    @property
    def problems(self) -> tuple[str, ...]:
        """Of the specs as they were read last."""
        return self._read[1].problems

    def prepare(self) -> None:
        """Generate a spec where none has every card. Blocks for as long as that takes: for a thread."""
        cards = [card for card in self._cards() if not card.mig]
        if not cards:
            return
        missing = self._missing(cards)
        if missing and self._now_s() >= self._tried_s + _AGAIN_S:
            self._tried_s = self._now_s()
            self._not_generated = self._generate()
            missing = self._missing(cards)
        self._report(missing)

    def edits(self, uuids: Sequence[str]) -> Edits:
        """As the port."""
        by_uuid = {card.uuid: card for card in self._cards()}
        unknown = [uuid for uuid in uuids if uuid not in by_uuid]
        if unknown:
            message = f"the driver has no card {', '.join(unknown)}"
            raise CdiError(message)
        found = spec.real_cards([by_uuid[uuid] for uuid in uuids], self._specs().specs, self._nodes())
        self._report(found.toolkit_missing)
        return found.edits

    def _missing(self, cards: Sequence[DriverCard]) -> str:
        try:
            return spec.real_cards(cards, self._specs().specs, self._nodes()).toolkit_missing
        except CdiError as error:
            return str(error)

    def _report(self, missing: str) -> None:
        self.toolkit_missing = "; ".join(filter(None, (missing, missing and self._not_generated)))

    def _generate(self) -> str:
        """Why no spec could be generated; "" when one was."""
        try:
            self._generated.parent.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            return f"cannot write a CDI spec: {error}"
        return generate_nvidia(self._generated, timeout_s=_TAKES_AT_MOST_S, ctk=self._ctk)

    def _nodes(self) -> set[str]:
        return {f"/dev/{entry.name}" for entry in self._device_dir.glob(f"{_NODE}*")}

    def _specs(self) -> NvidiaSpecs:
        """The specs, read again when any file of the directories has changed."""
        seen = _files(self._directories)
        if seen != self._read[0]:
            # One assignment: `prepare` is in another thread, and what was seen belongs to what was read then.
            self._read = (seen, read_nvidia(self._directories))
        return self._read[1]


def _files(directories: Sequence[Path]) -> _Seen:
    found = []
    for directory in directories:
        if directory.is_dir():
            with os.scandir(directory) as entries:
                # Ours come and go with every container, and are none of NVIDIA's.
                others = [entry for entry in entries if not entry.name.startswith(_OURS)]
            for entry in others:
                # Others' files come and go as well, also between two steps of this. One that tells nothing of itself
                # is no spec: reading it says why.
                with contextlib.suppress(OSError):
                    now = entry.stat()
                    found.append((entry.path, now.st_mtime_ns, now.st_size))
    return tuple(sorted(found))
