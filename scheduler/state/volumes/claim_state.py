"""How the claims of a pod stand: what the rules about volumes read of them, and what makes two pods alike."""

from typing import NamedTuple, TypeAlias

from scheduler.pods.pod_volumes import ClaimKey
from scheduler.state.volumes.claim import Claim
from scheduler.state.volumes.reach import Reach
from scheduler.state.volumes.volume import Zone


class Missing(NamedTuple):
    """There is no such claim, or the pod must not use it. reason: for people, as kube-scheduler words it."""

    reason: str

    @property
    def alike(self) -> tuple[object, ...]:
        """Equal for claims that every rule answers alike; so of the others."""
        return ("missing", self.reason)


class Immediate(NamedTuple):
    """It is not bound, and will be without regard to any pod. volume: the one that it names, or "".

    class_name: of its StorageClass, which may come to wait for the claim's first pod.
    """

    volume: str
    class_name: str

    @property
    def alike(self) -> tuple[object, ...]:
        """As Missing."""
        return ("immediate", "" if self.volume else self.class_name)


class Bound(NamedTuple):
    """Its volume is bound to it. reach: from where it can be used, None from everywhere.

    there: whether the volume exists. excess: what of the volume is more than is read, for people.
    """

    volume: str
    there: bool
    reach: Reach | None
    zones: tuple[Zone, ...]
    excess: str

    @property
    def alike(self) -> tuple[object, ...]:
        """As Missing."""
        if self.there and not self.excess:
            return ("bound", self.reach, self.zones)
        return ("bound", self.volume, self.there, self.excess)


class Delayed(NamedTuple):
    """It gets its volume together with the node of its first pod.

    selected: the only node that it may have it on, "" for any: a volume is being made there. kept: the volume that is
    kept for it, "" for none. version: of what can be had of its class, which does not make two claims differ.
    """

    key: ClaimKey
    claim: Claim
    selected: str
    kept: str
    version: int

    @property
    def alike(self) -> tuple[object, ...]:
        """As Missing."""
        return ("delayed", self.claim.wants, self.claim.has_size, self.selected, self.kept)


ClaimState: TypeAlias = Missing | Immediate | Bound | Delayed
