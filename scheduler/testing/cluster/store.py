"""Objects of one resource, their resource versions, and the history that watches read.

    absent --create--> present --remove--> absent
                        |   ^
                        +---+ replace (an equal replacement is not a change, as on a real server)

Every change takes the next version of a counter that all collections share, as etcd's revision is shared.
The history is a log with absolute positions; a watch keeps its position, so that reading costs only the events
returned. It is bounded: at least the last `history_limit` changes are kept, older ones have expired.
Pure: no clock, no waiting.
"""

from bisect import bisect_right
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Generic

from msgspec.structs import replace

from scheduler.kube.port import ApiConflict, ApiNotFound, T, WatchExpired


@dataclass(frozen=True, slots=True)
class StoredChange(Generic[T]):
    """One write. before: None when the object was created; after: None when it was removed."""

    version: int
    before: T | None
    after: T | None


class Versions:
    """The counter of resource versions: strictly rising, shared by every collection of a cluster."""

    def __init__(self) -> None:
        self.last = 1

    def take(self) -> int:
        """The next version."""
        self.last += 1
        return self.last


class Collection(Generic[T]):
    """All objects of one resource. resource: its plural name, as in the server's messages.

    listeners are called after each change; they must not write.
    """

    def __init__(self, resource: str, versions: Versions, history_limit: int) -> None:
        self.resource = resource
        self.listeners: list[Callable[[], None]] = []
        self._versions = versions
        self._history_limit = history_limit
        self._objects: dict[tuple[str, str], T] = {}
        self._log: list[StoredChange[T]] = []
        self._dropped = 0
        self._horizon = 0

    def __len__(self) -> int:
        return len(self._objects)

    def __iter__(self) -> Iterator[T]:
        """Objects in order of creation."""
        return iter(self._objects.values())

    @property
    def version(self) -> int:
        """The version of the cluster now, which may belong to a change of another collection."""
        return self._versions.last

    def find(self, namespace: str, name: str) -> T | None:
        """The object, or None. namespace: "" for cluster-scoped objects."""
        return self._objects.get((namespace, name))

    def existing(self, namespace: str, name: str) -> T:
        """The object; raises ApiNotFound."""
        found = self._objects.get((namespace, name))
        if found is None:
            raise ApiNotFound(f'{self.resource} "{name}" not found', 404)
        return found

    def create(self, wanted: T) -> T:
        """The object as stored, with its version; raises ApiConflict when the name is taken."""
        key = (wanted.metadata.namespace, wanted.metadata.name)
        if key in self._objects:
            raise ApiConflict(f'{self.resource} "{wanted.metadata.name}" already exists', 409)
        return self._write(None, wanted)

    def replace(self, wanted: T) -> T:
        """The object as stored; raises ApiNotFound. An object equal to the stored one, version included, is left."""
        before = self.existing(wanted.metadata.namespace, wanted.metadata.name)
        return before if wanted == before else self._write(before, wanted)

    def remove(self, namespace: str, name: str) -> T:
        """The object as it was last; raises ApiNotFound."""
        before = self.existing(namespace, name)
        del self._objects[namespace, name]
        self._append(StoredChange(self._versions.take(), before, None))
        return before

    @property
    def end(self) -> int:
        """Position behind the last change."""
        return self._dropped + len(self._log)

    def position_after(self, version: int) -> int:
        """Position of the first change later than `version`; raises WatchExpired when some of those are gone."""
        if version < self._horizon:
            raise WatchExpired(f"too old resource version: {version} ({self._horizon})", 410)
        return self._dropped + bisect_right(self._log, version, key=_version_of)

    def changes(self, position: int, at_most: int) -> list[StoredChange[T]] | None:
        """Changes from a position on, empty at the end; None when they are no longer kept."""
        start = position - self._dropped
        return self._log[start : start + at_most] if start >= 0 else None

    def compact(self) -> None:
        """Let every version before now expire; a reader with a position continues."""
        self._horizon = self.version

    def _write(self, before: T | None, wanted: T) -> T:
        version = self._versions.take()
        after = with_version(wanted, version)
        self._objects[after.metadata.namespace, after.metadata.name] = after
        self._append(StoredChange(version, before, after))
        return after

    def _append(self, change: StoredChange[T]) -> None:
        self._log.append(change)
        if len(self._log) >= 2 * self._history_limit:  # in one go, so that each change pays O(1)
            surplus = len(self._log) - self._history_limit
            self._horizon = max(self._horizon, self._log[surplus - 1].version)
            self._dropped += surplus
            del self._log[:surplus]
        for listener in self.listeners:
            listener()


class Cursor(Generic[T]):
    """Reads the changes of a collection since its creation, each once and in order.

    A reader that is later than the history reaches back gets nothing.
    """

    def __init__(self, collection: Collection[T]) -> None:
        self._collection: Collection[T] = collection
        self._position = collection.end

    @property
    def is_behind(self) -> bool:
        """Whether `take` has something."""
        return self._position != self._collection.end

    def take(self) -> list[StoredChange[T]]:
        """Changes since the last call."""
        changes = self._collection.changes(self._position, self._collection.end - self._position) or []
        self._position += len(changes)
        return changes


def with_version(wanted: T, version: int) -> T:
    """The object at another resource version."""
    return replace(wanted, metadata=replace(wanted.metadata, resource_version=str(version)))


def _version_of(change: StoredChange[T]) -> int:
    return change.version
