"""Index of waiting pods by the objects that they refer to. Pods with the same references share one record.

Owned by the unschedulable pods. No method awaits, so each one is atomic.
"""

from collections.abc import Hashable, Iterable, Iterator
from typing import Generic

from scheduler.pods.pod import Pod
from scheduler.pods.pod_volumes import ClaimKey
from scheduler.queue.entry import Entry, ObjectT, Referrers


class _Users(Generic[ObjectT]):
    def __init__(self) -> None:
        self._alike: dict[Hashable, Referrers[ObjectT]] = {}
        self._using: dict[ObjectT, dict[Referrers[ObjectT], None]] = {}

    def remove(self, alike: Referrers[ObjectT], entry: Entry, slot: int) -> Entry | None:
        """Remove the pod. Returns another pod of its class with the same references; None if none exists."""
        pods = alike.pods[slot]
        del pods[entry]
        if pods:
            return next(iter(pods))
        del alike.pods[slot]
        if not alike.pods:
            self._forget(alike)
        return None

    def users(self, objects: Iterable[ObjectT]) -> Iterator[Entry]:
        """One pod of each class for each set of references that includes one of `objects`."""
        for one in objects:
            for alike in self._using.get(one, ()):
                for pods in alike.pods.values():
                    yield next(iter(pods))

    def by_object(self) -> set[tuple[ObjectT, int, Entry]]:
        """(object, slot, pod), for comparisons."""
        return {
            (one, slot, entry)
            for one, users in self._using.items()
            for alike in users
            for slot, pods in alike.pods.items()
            for entry in pods
        }

    def _add(self, entry: Entry, slot: int, key: Hashable, objects: Iterable[ObjectT]) -> Referrers[ObjectT]:
        alike = self._alike.get(key)
        if alike is None:
            alike = self._alike[key] = Referrers(key, tuple(dict.fromkeys(objects)))
            for one in alike.objects:
                self._using.setdefault(one, {})[alike] = None
        alike.pods.setdefault(slot, {})[entry] = None
        return alike

    def _forget(self, alike: Referrers[ObjectT]) -> None:
        del self._alike[alike.key]
        for one in alike.objects:
            users = self._using[one]
            del users[alike]
            if not users:
                del self._using[one]


class ClaimUsers(_Users[ClaimKey]):
    """Pods by the claims that they use. Holds no pods without claims."""

    def add(self, entry: Entry, slot: int) -> Referrers[ClaimKey] | None:
        """Add a pod of the class in the slot; returns None if it uses no claims."""
        pod = entry.pod
        used = pod.volumes.claims
        return self._add(entry, slot, (pod.key.namespace, used), pod.claim_keys) if used else None


class NamespaceUsers(_Users[str]):
    """Pods by namespace. Equal labels, annotations and controller mean that selectors treat them alike."""

    def add(self, entry: Entry, slot: int) -> Referrers[str]:
        """Add a pod of the class in the slot."""
        namespace = entry.pod.key.namespace
        return self._add(entry, slot, selected_by(entry.pod), (namespace,))


def selected_by(pod: Pod) -> int:
    """Hash of the fields that rules may read of a pod together with objects of its namespace.

    The fields themselves would cost half a kilobyte for each pod. If two pods ever collide, the background
    re-evaluation finds the pod that was skipped.
    """
    return hash((pod.key.namespace, pod.owner_uid, frozenset(pod.labels.items()), frozenset(pod.annotations.items())))
