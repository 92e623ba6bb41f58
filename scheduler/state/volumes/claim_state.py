"""States of a pod's claims: the input of the volume rules, and the key by which two pods are alike."""

from typing import NamedTuple, TypeAlias

from scheduler.pods.pod_volumes import ClaimKey
from scheduler.state.volumes.claim import Claim
from scheduler.state.volumes.reach import Reach
from scheduler.state.volumes.volume import Zone


class Missing(NamedTuple):
    """The claim does not exist, or the pod must not use it. reason: for users, in kube-scheduler's words."""

    reason: str

    @property
    def alike(self) -> tuple[object, ...]:
        """Equal for claims that every rule answers alike; so of the others."""
        return ("missing", self.reason)


class Immediate(NamedTuple):
    """Not bound, and to be bound independently of any pod. volume: the volume that it names, or "".

    class_name: of its StorageClass, which may change to wait for the claim's first pod.
    """

    volume: str
    class_name: str

    @property
    def alike(self) -> tuple[object, ...]:
        """Equal for claims that get the same answers."""
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
        """Equal for claims that get the same answers."""
        if self.there and not self.excess:
            return ("bound", self.reach, self.zones)
        return ("bound", self.volume, self.there, self.excess)


class Delayed(NamedTuple):
    """Gets its volume together with the node of its first pod.

    selected: the only possible node, because a volume is being created there, "" for any. kept: the volume reserved for
    it, "" for none. version: of the available volumes of its class, which does not make two claims differ.
    """

    key: ClaimKey
    claim: Claim
    selected: str
    kept: str
    version: int

    @property
    def alike(self) -> tuple[object, ...]:
        """Equal for claims that get the same answers."""
        return ("delayed", self.claim.wants, self.claim.has_size, self.selected, self.kept)


ClaimState: TypeAlias = Missing | Immediate | Bound | Delayed
