"""Objects of one resource, their resource versions, the history for watches, and selectors.

    absent --create--> present --remove--> absent
                        |   ^
                        +---+ replace (an equal replacement is not a change, as on a real server)

Every change takes the next version of a counter that all collections share, like etcd's revision.
The history is a log with absolute positions; a watch keeps its position, so reading costs only the events returned. It
is bounded: at least the last `history_limit` changes are kept; older ones have expired.
Pure: no clock, no waiting.
"""

from bisect import bisect_right
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from operator import attrgetter
from typing import Final, Generic, TypeAlias

from msgspec.structs import replace

from scheduler.kube.port import ApiConflict, ApiNotFound, ApiRejected, Changed, Deleted, Kind, T, WatchExpired


@dataclass(frozen=True, slots=True)
class StoredChange(Generic[T]):
    """One write. before: None if the object was created; after: None if it was removed."""

    version: int
    before: T | None
    after: T | None


class Versions:
    """The counter of resource versions: strictly increasing, shared by every collection of a cluster."""

    def __init__(self) -> None:
        self.last = 1

    def take(self) -> int:
        """Return the next version."""
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
        """Yield the objects in order of creation."""
        return iter(self._objects.values())

    @property
    def version(self) -> int:
        """The current version of the cluster, which may belong to a change in another collection."""
        return self._versions.last

    def find(self, namespace: str, name: str) -> T | None:
        """Return the object, or None. namespace: "" for cluster-scoped objects."""
        return self._objects.get((namespace, name))

    def existing(self, namespace: str, name: str) -> T:
        """Return the object. Raises ApiNotFound."""
        found = self._objects.get((namespace, name))
        if found is None:
            raise ApiNotFound(f'{self.resource} "{name}" not found', 404)
        return found

    def create(self, wanted: T) -> T:
        """Create the object; return it as stored, with its version. Raises ApiConflict if the name is taken."""
        key = (wanted.metadata.namespace, wanted.metadata.name)
        if key in self._objects:
            raise ApiConflict(f'{self.resource} "{wanted.metadata.name}" already exists', 409)
        return self._write(None, wanted)

    def replace(self, wanted: T) -> T:
        """Replace the object; return it as stored. An equal object, version included, stays unchanged.

        Raises ApiNotFound.
        """
        before = self.existing(wanted.metadata.namespace, wanted.metadata.name)
        return before if wanted == before else self._write(before, wanted)

    def remove(self, namespace: str, name: str) -> T:
        """Remove the object; return its last state. Raises ApiNotFound."""
        before = self.existing(namespace, name)
        del self._objects[namespace, name]
        self._append(StoredChange(self._versions.take(), before, None))
        return before

    @property
    def end(self) -> int:
        """Position after the last change."""
        return self._dropped + len(self._log)

    def position_after(self, version: int) -> int:
        """Return the position of the first change later than `version`. Raises WatchExpired if some have expired."""
        if version < self._horizon:
            raise WatchExpired(f"too old resource version: {version} ({self._horizon})", 410)
        return self._dropped + bisect_right(self._log, version, key=_version_of)

    def changes(self, position: int, at_most: int) -> list[StoredChange[T]] | None:
        """Return the changes from a position on, empty at the end; None if they are no longer kept."""
        start = position - self._dropped
        return self._log[start : start + at_most] if start >= 0 else None

    def compact(self) -> None:
        """Expire every version before the current one; readers that already have a position continue."""
        self._horizon = self.version

    def _write(self, before: T | None, wanted: T) -> T:
        version = self._versions.take()
        after = with_version(wanted, version)
        self._objects[after.metadata.namespace, after.metadata.name] = after
        self._append(StoredChange(version, before, after))
        return after

    def _append(self, change: StoredChange[T]) -> None:
        self._log.append(change)
        if len(self._log) >= 2 * self._history_limit:  # in one go, so that each change costs O(1)
            surplus = len(self._log) - self._history_limit
            self._horizon = max(self._horizon, self._log[surplus - 1].version)
            self._dropped += surplus
            del self._log[:surplus]
        for listener in self.listeners:
            listener()


class Cursor(Generic[T]):
    """Reads the changes of a collection since its creation, each once and in order.

    A reader that falls behind the kept history gets nothing.
    """

    def __init__(self, collection: Collection[T]) -> None:
        self._collection: Collection[T] = collection
        self._position = collection.end

    @property
    def is_behind(self) -> bool:
        """Whether `take` would return changes."""
        return self._position != self._collection.end

    def take(self) -> list[StoredChange[T]]:
        """Return the changes since the last call."""
        changes = self._collection.changes(self._position, self._collection.end - self._position) or []
        self._position += len(changes)
        return changes


def with_version(wanted: T, version: int) -> T:
    """Return the object at another resource version."""
    return replace(wanted, metadata=replace(wanted.metadata, resource_version=str(version)))


def _version_of(change: StoredChange[T]) -> int:
    return change.version


class Feed(Generic[T]):
    """Delivers the changes of one kind as watch batches."""

    def __init__(
        self, collection: Collection[T], kind: Kind[T], handle: Callable[[list[Changed[T] | Deleted[T]]], None]
    ) -> None:
        self._cursor: Cursor[T] = Cursor(collection)
        self._shown: Callable[[T], bool] = shown_by(kind)
        self._handle: Callable[[list[Changed[T] | Deleted[T]]], None] = handle

    def deliver(self) -> None:
        """Deliver the changes since the last call."""
        if not self._cursor.is_behind:
            return
        events: list[Changed[T] | Deleted[T]] = []
        for change in self._cursor.take():
            if change.after is not None and self._shown(change.after):
                events.append(Changed(change.after))
            elif change.before is not None and self._shown(change.before):
                events.append(Deleted(change.before))
        if events:
            self._handle(events)


Field: TypeAlias = Callable[[object], str]

_OF_EVERY_RESOURCE: Final[dict[str, Field]] = {
    "metadata.name": attrgetter("metadata.name"),
    "metadata.namespace": attrgetter("metadata.namespace"),
}
# The fields of pkg/apis/core/v1/conversion.go that this project decodes.
_OF_PODS: Final[dict[str, Field]] = {
    "spec.nodeName": attrgetter("spec.node_name"),
    "spec.schedulerName": attrgetter("spec.scheduler_name"),
    "status.phase": attrgetter("status.phase"),
    "status.nominatedNodeName": attrgetter("status.nominated_node_name"),
}


def resource_of(kind: Kind[T]) -> str:
    """Return the plural name of the resource: `/api/v1/namespaces/kube-system/configmaps` is of `configmaps`.

    Of an optional kind, its name: several API groups may have a resource of one name.
    """
    return kind.name if kind.optional else kind.path.rsplit("/", 1)[-1]


def namespace_of(kind: Kind[T]) -> str:
    """Return the namespace in the path, "" for all."""
    match kind.path.split("/"):
        case [*_, "namespaces", namespace, _]:
            return namespace
    return ""


def shown_by(kind: Kind[T]) -> Callable[[T], bool]:
    """Return a test of whether the kind shows an object. Raises ApiRejected for an invalid selector."""
    fields = _OF_EVERY_RESOURCE | (_OF_PODS if resource_of(kind) == "pods" else {})
    terms = [_term(text, fields) for text in kind.field_selector.split(",") if text]
    if namespace := namespace_of(kind):
        terms.append((fields["metadata.namespace"], namespace, True))

    def shown(candidate: T) -> bool:
        return all((field(candidate) == value) is equal for field, value, equal in terms)

    return shown


def _term(text: str, fields: dict[str, Field]) -> tuple[Field, str, bool]:
    """Parse `a=b`, `a==b` or `a!=b` to (field, value, whether they must be equal)."""
    name, operator, value = text.partition("!=") if "!=" in text else text.replace("==", "=").partition("=")
    if not operator:
        raise ApiRejected(f"invalid field selector: {text!r}", 400)
    if name not in fields:
        raise ApiRejected(f"field label not supported: {name}", 400)
    return fields[name], value, operator == "="
