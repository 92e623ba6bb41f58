"""Unused CDI specs of ours, directories of isolation, and records of deleted pods."""

import asyncio
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

import structlog

from deviceplugin.allocation.allocated import AssignedCards
from deviceplugin.allocation.journal import Journal
from deviceplugin.cdi import spec
from deviceplugin.cdi.spec_files import SpecFiles
from deviceplugin.isolation.directories import ContainerDirectories
from deviceplugin.kubelet.checkpoint import CheckpointEntry

log = structlog.get_logger()


class LeftoversError(Exception):
    """Leftovers could not be listed or removed; the message says which."""


@dataclass(frozen=True, slots=True)
class Present:
    """Files that exist. specs: as `SpecFiles.present`. pods: UIDs of the pods that have directories of isolation."""

    specs: Mapping[str, int] = field(default_factory=dict)
    pods: Collection[str] = ()


@dataclass(frozen=True, slots=True)
class Leftovers:
    """files: our CDI specs. assigned, journal, directories: by pod UID."""

    files: SpecFiles
    assigned: AssignedCards
    journal: Journal
    directories: ContainerDirectories

    async def present(self) -> Present:
        """To be listed before pods and checkpoint: what is made meanwhile is not among it. Raises LeftoversError."""
        try:
            specs = await asyncio.to_thread(self.files.present)
            return Present(specs, await asyncio.to_thread(self.directories.present))
        except OSError as error:
            raise LeftoversError(f"cannot read the CDI directory, or those of isolation: {error}") from error

    def forget(self, live: Collection[str]) -> None:
        """Forget every pod but these. Raises LeftoversError."""
        self.assigned.keep(live)
        try:
            self.journal.keep(live)
        except OSError as error:
            raise LeftoversError(f"cannot write the journal: {error}") from error

    async def remove_directories(self, present: Present, live: Collection[str]) -> None:
        """Remove what isolation keeps for every pod but these. Raises LeftoversError."""
        try:
            removed = await asyncio.to_thread(self.directories.remove, set(present.pods) - set(live))
        except OSError as error:
            raise LeftoversError(f"cannot remove directories of isolation: {error}") from error
        if removed:
            log.info("isolation.removed", pods=removed)

    async def remove(self, present: Present, entries: Sequence[CheckpointEntry], resource: str) -> None:
        """Remove the specs that no entry of the checkpoint uses. Raises LeftoversError."""
        used = {spec.device_name(entry.ids) for entry in entries if entry.resource == resource}
        unused = {name: inode for name, inode in present.specs.items() if name not in used}
        try:
            removed = await asyncio.to_thread(self.files.remove, unused)
        except OSError as error:
            raise LeftoversError(f"cannot remove CDI specs: {error}") from error
        if removed:
            log.info("cdi.removed", devices=removed)
