"""States of a pod's claims, computed once for all rules.

Source: kube-scheduler, plugins/volumebinding: volume_binding.go (podHasPVCs), binder.go (GetPodVolumeClaims).
"""

from typing import Protocol

import msgspec

from scheduler.kube.size_limits import TOO_LARGE
from scheduler.pods.pod import Pod
from scheduler.pods.pod_volumes import Attachable, ClaimKey, PodClaim
from scheduler.state.volumes.claim import Claim
from scheduler.state.volumes.claim_state import Bound, ClaimState, Delayed, Immediate, Missing
from scheduler.state.volumes.reach import Reach
from scheduler.state.volumes.storage_class import OfClass
from scheduler.state.volumes.volume import Volume


class _KnownVolumes(Protocol):
    """Storage state that a pod's claims depend on, as provided by `Volumes`."""

    def claim(self, key: ClaimKey) -> Claim | None: ...
    def volume(self, name: str) -> Volume | None: ...
    def reach(self, volume: Volume) -> Reach | None: ...
    def of_class(self, name: str) -> OfClass | None: ...
    def selected(self, key: ClaimKey) -> str: ...
    def attached(self, key: ClaimKey) -> Attachable | None: ...


class Alike:
    """A tuple that caches its hash: a pod may have 64 claims, and look-ups by them are frequent."""

    __slots__ = ("_hash", "_parts")

    def __init__(self, parts: tuple[object, ...]) -> None:
        """parts: equal for pods that every volume rule treats alike."""
        self._parts = parts
        self._hash = hash(parts)

    def __hash__(self) -> int:
        return self._hash

    def __eq__(self, other: object) -> bool:
        if self is other:
            return True
        return isinstance(other, Alike) and self._hash == other._hash and self._parts == other._parts


class PodClaims(msgspec.Struct, frozen=True, kw_only=True):
    """State of each claim of a pod, each claim once, in the order of the pod.

    bound: volumes of claims that are not ephemeral. alike: equal for pods of one template whose claims every rule
    treats alike. cache_key: changes when the available volumes of a waiting claim's class change.
    missing: the first claim, other than an ephemeral one, that does not exist; "" for none. one_pod: claims that only
    one pod may use. attached: their attachments, see `Volumes.attached`.
    """

    claim_states: tuple[ClaimState, ...]
    bound: tuple[Bound, ...]
    alike: Alike
    cache_key: tuple[int, ...]
    missing: str
    one_pod: tuple[ClaimKey, ...]
    attached: tuple[Attachable | None, ...]


def pod_claims(pod: Pod, volumes: _KnownVolumes) -> PodClaims:
    """Current state of the pod's claims."""
    claim_states: list[ClaimState] = []
    bound: list[Bound] = []
    one_pod: list[ClaimKey] = []
    missing = ""
    keys = [(pod.key.namespace, used.name) for used in dict.fromkeys(pod.volumes.claims)]
    for used, key in zip(dict.fromkeys(pod.volumes.claims), keys, strict=True):
        claim = volumes.claim(key)
        claim_state = _claim_state(pod, used, claim, volumes)
        claim_states.append(claim_state)
        if used.ephemeral:
            continue
        if isinstance(claim_state, Bound):
            bound.append(claim_state)
        if claim is None:
            missing = missing or used.name
        elif claim.one_pod:
            one_pod.append(key)
    return PodClaims(
        claim_states=tuple(claim_states),
        bound=tuple(bound),
        alike=Alike(tuple(claim_state.alike for claim_state in claim_states)),
        cache_key=tuple(claim_state.version for claim_state in claim_states if isinstance(claim_state, Delayed)),
        missing=missing,
        one_pod=tuple(one_pod),
        attached=tuple(volumes.attached(key) for key in dict.fromkeys(keys)),
    )


def _claim_state(pod: Pod, used: PodClaim, claim: Claim | None, volumes: _KnownVolumes) -> ClaimState:
    if claim is None or claim.lost or claim.deleting or claim.too_large or used.ephemeral:
        problem = _problem(pod, used, claim)
        if problem or claim is None:
            return Missing(problem)
    if claim.bound:
        return _bound(claim, volumes)
    key = (pod.key.namespace, used.name)
    of_class = volumes.of_class(claim.wants.class_name) if claim.wants.class_name else None
    if of_class is None or of_class.known is None or not of_class.known.waits or claim.volume:
        return Immediate(claim.volume, claim.wants.class_name)
    if of_class.known.too_large and of_class.known.provisions:
        return Missing(_too_large(f'storageclass "{claim.wants.class_name}"'))
    return Delayed(
        key=key,
        claim=claim,
        selected=claim.selected_node or volumes.selected(key),
        kept=_kept(key, claim, of_class, volumes),
        version=of_class.version,
    )


def _too_large(about: str) -> str:
    return f"{about} exceeds a limit of this scheduler: {TOO_LARGE}"


def _bound(claim: Claim, volumes: _KnownVolumes) -> Bound | Missing:
    volume = volumes.volume(claim.volume)
    if volume is None:
        return Bound(claim.volume, there=False, reach=None, zones=())
    if volume.too_large:
        return Missing(_too_large(f'persistentvolume "{claim.volume}"'))
    return Bound(claim.volume, there=True, reach=volumes.reach(volume), zones=volume.zones)


def _kept(key: ClaimKey, claim: Claim, of_class: OfClass, volumes: _KnownVolumes) -> str:
    """Name of the volume that is reserved for the claim, or that we have assumed for it; "" for none."""
    kept = (volumes.volume(name) for name in of_class.kept_for.get(key, ()))
    return min((volume.name for volume in kept if volume is not None and _is_kept(volume, claim)), default="")


def _is_kept(volume: Volume, claim: Claim) -> bool:
    reference = volume.claim
    mine = reference is None or reference.uid in {"", claim.uid}
    return mine and volume.suits(claim.wants) and not volume.too_large


def _problem(pod: Pod, used: PodClaim, claim: Claim | None) -> str:
    """Why the pod cannot use the claim, "" if it can. Source: volume_binding.go, podHasPVCs."""
    about, namespace = f'persistentvolumeclaim "{used.name}"', pod.key.namespace
    if claim is None:
        return (
            f"waiting for ephemeral volume controller to create the {about}" if used.ephemeral else f"{about} not found"
        )
    if claim.lost:
        return f'{about} bound to non-existent persistentvolume "{claim.volume}"'
    if claim.deleting:
        return f"{about} is being deleted"
    if used.ephemeral and claim.owner_uid != pod.key.uid:
        return f"PVC {namespace}/{used.name} was not created for pod {namespace}/{pod.key.name} (pod is not owner)"
    return _too_large(about) if claim.too_large else ""
