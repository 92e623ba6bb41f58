"""Which waiting pods use a claim, by class. Pods that use the same claims share one record.

Owned by the pods that wait. No method awaits, so each one is atomic.
"""

from collections.abc import Hashable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from scheduler.pods.pod_volumes import ClaimKey

if TYPE_CHECKING:
    from scheduler.queue.entry import Entry


@dataclass(slots=True, eq=False)
class SharedClaims:
    """The claims that some pods of one namespace use. pods: by the slot of their class.

    Whatever becomes of these claims, it changes the signatures of all pods in one slot alike.
    """

    key: Hashable
    claims: tuple[ClaimKey, ...]
    pods: "dict[int, dict[Entry, None]]" = field(default_factory=dict)


class ClaimUsers:
    """Holds nothing of pods without claims."""

    def __init__(self) -> None:
        """No pod waits."""
        self._shared: dict[Hashable, SharedClaims] = {}
        self._using: dict[ClaimKey, dict[SharedClaims, None]] = {}

    def add(self, entry: "Entry", slot: int) -> SharedClaims | None:
        """The claims that a pod of the class in the slot uses; None if it uses none."""
        pod = entry.pod
        used = pod.volumes.claims
        if not used:
            return None
        key = (pod.key.namespace, used)
        shared = self._shared.get(key)
        if shared is None:
            shared = self._shared[key] = SharedClaims(key, tuple(dict.fromkeys(pod.claim_keys)))
            for claim in shared.claims:
                self._using.setdefault(claim, {})[shared] = None
        shared.pods.setdefault(slot, {})[entry] = None
        return shared

    def remove(self, shared: SharedClaims, entry: "Entry", slot: int) -> "Entry | None":
        """Take the pod out. Returns another pod of its class that uses the same claims; None if there is none."""
        alike = shared.pods[slot]
        del alike[entry]
        if alike:
            return next(iter(alike))
        del shared.pods[slot]
        if not shared.pods:
            self._forget(shared)
        return None

    def _forget(self, shared: SharedClaims) -> None:
        del self._shared[shared.key]
        for claim in shared.claims:
            users = self._using[claim]
            del users[shared]
            if not users:
                del self._using[claim]

    def users(self, claims: Iterable[ClaimKey]) -> "Iterator[Entry]":
        """One pod of each class for each set of claims that has one of these in it."""
        for claim in claims:
            for shared in self._using.get(claim, ()):
                for alike in shared.pods.values():
                    yield next(iter(alike))

    def by_claim(self) -> "set[tuple[ClaimKey, int, Entry]]":
        """(claim, slot, pod), for comparisons."""
        return {
            (claim, slot, entry)
            for claim, users in self._using.items()
            for shared in users
            for slot, alike in shared.pods.items()
            for entry in alike
        }
