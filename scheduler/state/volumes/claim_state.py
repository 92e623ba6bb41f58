"""States of a pod's claims, which the volume rules read. `alike` is a key to find pods that these rules treat alike."""

from typing import NamedTuple, TypeAlias

from scheduler.pods.pod_volumes import ClaimKey
from scheduler.state.volumes.claim import Claim
from scheduler.state.volumes.reach import Reach
from scheduler.state.volumes.volume import Zone


class Missing(NamedTuple):
    """Claim that does not exist or that the pod must not use. reason: for users, in kube-scheduler's words."""

    reason: str

    @property
    def alike(self) -> tuple[object, ...]:
        """Key that is equal for claims that every rule treats alike. The other classes have the same property."""
        return ("missing", self.reason)


class Immediate(NamedTuple):
    """Unbound claim whose binding does not wait for a pod. volume: the volume that the claim names, or "".

    class_name: its StorageClass, which may change to WaitForFirstConsumer.
    """

    volume: str
    class_name: str

    @property
    def alike(self) -> tuple[object, ...]:
        """Key that is equal for claims that every rule treats alike."""
        return ("immediate", "" if self.volume else self.class_name)


class Bound(NamedTuple):
    """Claim that is bound to its volume. reach: nodes that can use the volume, None for all.

    there: whether the volume exists.
    """

    volume: str
    there: bool
    reach: Reach | None
    zones: tuple[Zone, ...]

    @property
    def alike(self) -> tuple[object, ...]:
        """Key that is equal for claims that every rule treats alike."""
        return ("bound", self.reach, self.zones) if self.there else ("bound", self.volume)


class Delayed(NamedTuple):
    """Unbound claim whose volume is chosen together with the node of its first pod (WaitForFirstConsumer).

    selected: the only possible node, because a volume is being created there; "" for any. kept: the volume reserved for
    the claim, "" for none. version: version of the class's available volumes; not a part of `alike`.
    """

    key: ClaimKey
    claim: Claim
    selected: str
    kept: str
    version: int

    @property
    def alike(self) -> tuple[object, ...]:
        """Key that is equal for claims that every rule treats alike."""
        return ("delayed", self.claim.wants, self.claim.has_size, self.selected, self.kept)


ClaimState: TypeAlias = Missing | Immediate | Bound | Delayed
