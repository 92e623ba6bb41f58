"""How far in the history of the pods the tables are: what a leader hands over, and what the next one has to reach."""

import asyncio
from collections.abc import Sequence

from scheduler.kube import objects
from scheduler.kube.port import Bookmark, Changed, Deleted, ListBegins, ListEnds, WatchEvent
from scheduler.kube.resource_versions import version_number


class VersionBarrier:
    """Owned by the event loop."""

    def __init__(self) -> None:
        """Nothing seen."""
        # Everything up to this version; None before the first list has ended.
        self._version: int | None = None
        self._last_change = 0
        self._listing = False
        self._advanced = asyncio.Event()

    @property
    def version(self) -> str:
        """All changes up to it are in the tables; "0" before the first list has ended."""
        return str(self._version or 0)

    @property
    def last_change(self) -> str:
        """The latest change of a pod that is in the tables, "0" for none: others reach it without a bookmark."""
        return str(self._last_change)

    def handled(self, batch: Sequence[WatchEvent[objects.PodObject]]) -> None:
        """These are in the tables now."""
        for event in batch:
            match event:
                case Changed() | Deleted() if version := version_number(event.object.metadata.resource_version):
                    self._last_change = max(self._last_change, version)
                    if not self._listing:
                        self._version = self._last_change
                case ListBegins():
                    self._listing = True
                case ListEnds():
                    self._listing, self._version = False, version_number(event.resource_version)
                case Bookmark():
                    self._version = version_number(event.resource_version)
        self._advanced.set()

    async def wait_for(self, version: str) -> None:
        """Return when all changes up to it are in the tables."""
        while self._version is None or self._version < version_number(version):
            self._advanced.clear()
            await self._advanced.wait()
