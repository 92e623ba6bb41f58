"""How far in the history of the pods the tables are: what a leader hands over, and what the next one has to reach."""

import asyncio
from collections.abc import Sequence

from scheduler.kube import objects
from scheduler.kube.port import Bookmark, Changed, Deleted, ListBegins, ListEnds, WatchEvent


class PodsSeen:
    """Owned by the event loop. Resource versions, compared as numbers.

    Source: KEP-5504, of Kubernetes 1.35: those of one resource can be compared, and always could in fact.
    """

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

    def handled(self, batch: Sequence[WatchEvent[objects.Pod]]) -> None:
        """These are in the tables now."""
        for event in batch:
            match event:
                case Changed() | Deleted() if event.object.metadata.resource_version:
                    self._last_change = max(self._last_change, int(event.object.metadata.resource_version))
                    if not self._listing:
                        self._version = self._last_change
                case ListBegins():
                    self._listing = True
                case ListEnds():
                    self._listing, self._version = False, int(event.resource_version)
                case Bookmark():
                    self._version = int(event.resource_version)
        self._advanced.set()

    async def reach(self, version: str) -> None:
        """Return when all changes up to it are in the tables."""
        while self._version is None or self._version < int(version):
            self._advanced.clear()
            await self._advanced.wait()
