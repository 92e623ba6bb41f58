"""Which classes of waiting pods use a claim. Pods that use the same claims share what is kept of them.

Owned by the pods that wait. No method awaits, so each one is atomic.
"""

from collections import Counter
from collections.abc import Hashable, Iterable
from dataclasses import dataclass, field

from scheduler.pods.pod import Pod
from scheduler.pods.pod_volumes import ClaimKey


@dataclass(slots=True, eq=False)
class SharedClaims:
    """What some pods use, all of one namespace. slots: of their classes, and how many of each class's pods."""

    key: Hashable
    claims: tuple[ClaimKey, ...]
    slots: Counter[int] = field(default_factory=Counter)


class ClaimUsers:
    """Holds nothing of pods without claims."""

    def __init__(self) -> None:
        """No pod waits."""
        self._shared: dict[Hashable, SharedClaims] = {}
        self._using: dict[ClaimKey, dict[SharedClaims, None]] = {}

    def add(self, pod: Pod, slot: int) -> SharedClaims | None:
        """One pod more of the class in the slot uses its claims; None when it has none."""
        used = pod.volumes.claims
        if not used:
            return None
        key = (pod.key.namespace, used)
        shared = self._shared.get(key)
        if shared is None:
            shared = self._shared[key] = SharedClaims(key, tuple(dict.fromkeys(pod.claim_keys)))
            for claim in shared.claims:
                self._using.setdefault(claim, {})[shared] = None
        shared.slots[slot] += 1
        return shared

    def remove(self, shared: SharedClaims, slot: int) -> None:
        """One less."""
        shared.slots[slot] -= 1
        if not shared.slots[slot]:
            del shared.slots[slot]
        if shared.slots:
            return
        del self._shared[shared.key]
        for claim in shared.claims:
            users = self._using[claim]
            del users[shared]
            if not users:
                del self._using[claim]

    def slots(self, claims: Iterable[ClaimKey]) -> list[int]:
        """Of the classes that use one of these."""
        return list({slot for claim in claims for shared in self._using.get(claim, ()) for slot in shared.slots})

    def counted(self) -> dict[tuple[ClaimKey, int], int]:
        """(claim, slot) -> how many pods, for comparisons."""
        found: Counter[tuple[ClaimKey, int]] = Counter()
        for claim, users in self._using.items():
            for shared in users:
                for slot, count in shared.slots.items():
                    found[claim, slot] += count
        return dict(found)
