"""What nobody uses any more: CDI specs of ours, and what is known of pods that are gone."""

import asyncio
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

import structlog

from deviceplugin.allocation.allocated import GivenCards
from deviceplugin.allocation.journal import Journal
from deviceplugin.cdi import spec
from deviceplugin.cdi.spec_files import SpecFiles
from deviceplugin.kubelet.checkpoint import CheckpointEntry

log = structlog.get_logger()


class LeftoversError(Exception):
    """They could not be looked at, or removed; the message says which."""


@dataclass(frozen=True, slots=True)
class Leftovers:
    """files: our CDI specs. given, journal: by pod UID."""

    files: SpecFiles
    given: GivenCards
    journal: Journal

    async def present(self) -> dict[str, int]:
        """Our spec files; to be listed before the checkpoint, as `SpecFiles.remove` wants it. Raises LeftoversError."""
        try:
            return await asyncio.to_thread(self.files.present)
        except OSError as error:
            message = f"cannot read the CDI directory: {error}"
            raise LeftoversError(message) from error

    def forget(self, live: Collection[str]) -> None:
        """Forget every pod but these. Raises LeftoversError."""
        self.given.keep(live)
        try:
            self.journal.keep(live)
        except OSError as error:
            message = f"cannot write the journal: {error}"
            raise LeftoversError(message) from error

    async def remove(self, present: Mapping[str, int], entries: Sequence[CheckpointEntry], resource: str) -> None:
        """Remove the specs that no entry of the checkpoint uses. Raises LeftoversError."""
        used = {spec.device_name(entry.ids) for entry in entries if entry.resource == resource}
        unused = {name: inode for name, inode in present.items() if name not in used}
        try:
            removed = await asyncio.to_thread(self.files.remove, unused)
        except OSError as error:
            message = f"cannot remove CDI specs: {error}"
            raise LeftoversError(message) from error
        if removed:
            log.info("cdi.removed", devices=removed)
