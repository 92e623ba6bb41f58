"""Which waiting pods refer to an object, by class. Pods that refer to it alike share one record.

Owned by the pods that wait. No method awaits, so each one is atomic.
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
        """Take the pod out. Returns another pod of its class that refers to the same; None if there is none."""
        pods = alike.pods[slot]
        del pods[entry]
        if pods:
            return next(iter(pods))
        del alike.pods[slot]
        if not alike.pods:
            self._forget(alike)
        return None

    def users(self, objects: Iterable[ObjectT]) -> Iterator[Entry]:
        """One pod of each class for each way to refer to one of these."""
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
    """By the claims that they use. Holds nothing of pods without claims."""

    def add(self, entry: Entry, slot: int) -> Referrers[ClaimKey] | None:
        """A pod of the class in the slot; None if it uses no claims."""
        pod = entry.pod
        used = pod.volumes.claims
        return self._add(entry, slot, (pod.key.namespace, used), pod.claim_keys) if used else None


class NamespaceUsers(_Users[str]):
    """By their namespace. Pods there with equal labels and annotations and one controller are selected alike."""

    def add(self, entry: Entry, slot: int) -> Referrers[str]:
        """A pod of the class in the slot."""
        namespace = entry.pod.key.namespace
        return self._add(entry, slot, selected_by(entry.pod), (namespace,))


def selected_by(pod: Pod) -> int:
    """A number for what rules may read of a pod together with objects of its namespace.

    To keep all of it would cost half a kilobyte for each pod. Should two pods ever have one number by chance, the
    background check finds the one that is not asked.
    """
    return hash((pod.key.namespace, pod.owner_uid, frozenset(pod.labels.items()), frozenset(pod.annotations.items())))
