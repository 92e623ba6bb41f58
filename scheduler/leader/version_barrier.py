"""Resource-version barrier: which changes of pods the tables include; a leader hands this to the next one."""

import asyncio
from collections.abc import Sequence

from scheduler.kube import objects
from scheduler.kube.port import Bookmark, Changed, Deleted, ListBegins, ListEnds, WatchEvent
from scheduler.kube.resource_versions import version_number


class VersionBarrier:
    """Owned by the event loop."""

    def __init__(self) -> None:
        # The tables include everything up to this version; None before the first list has ended.
        self._version: int | None = None
        self._last_change = 0
        self._listing = False
        self._advanced = asyncio.Event()

    @property
    def version(self) -> str:
        """The tables include all changes up to this version; "0" before the first list has ended."""
        return str(self._version or 0)

    @property
    def last_change(self) -> str:
        """Latest change of a pod in the tables, "0" if none: other replicas reach it without a bookmark."""
        return str(self._last_change)

    def handled(self, batch: Sequence[WatchEvent[objects.PodObject]]) -> None:
        """The tables include these events now."""
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
        """Return once the tables include all changes up to this version."""
        while self._version is None or self._version < version_number(version):
            self._advanced.clear()
            await self._advanced.wait()
