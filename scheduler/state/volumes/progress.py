"""The writes and waits that remain until a pod has the volumes of its plan. Pure.

Source: kube-scheduler, plugins/volumebinding/binder.go: AssumePodVolumes, bindAPIUpdate, checkBindings.
"""

from collections.abc import Mapping

from scheduler.kube.port import NodeForClaim, VolumeForClaim
from scheduler.pods.pod_volumes import ClaimKey
from scheduler.state.volumes.claim import Claim
from scheduler.state.volumes.volume import Volume
from scheduler.state.volumes.volumes import Volumes


class Failed(Exception):
    """The plan can no longer succeed; the message says why."""


def to_write(key: ClaimKey, name: str, node: str, volumes: Volumes) -> VolumeForClaim | NodeForClaim | None:
    """Return the next write for this claim; None if the API server already shows it.

    key, name: one item of iterating over a plan, that is, a claim and its volume. Raises Failed for deleted objects.
    """
    claim, volume = _there(key, name, volumes)
    if volume is None:
        return None if claim.selected_node == node else NodeForClaim(*key, claim.version, node)
    if volume.claim is not None and volume.claim.uid:
        return None
    return VolumeForClaim(name, volume.version, *key, claim.uid, kept=volume.claim is not None)


def is_done(key: ClaimKey, name: str, node: str, volumes: Volumes, labels: Mapping[str, str] | None) -> bool:
    """Whether a claim of a plan is bound. Raises Failed if it will not be. Called once the API server shows our write.

    labels: the node's labels, None if it is deleted.
    """
    if labels is None:
        raise Failed(f"node {node} no longer exists")
    claim, volume = _there(key, name, volumes)
    if volume is None:
        return _is_made(key, claim, node, volumes, labels)
    _check_affinity(volume, volumes, labels)
    if volume.claim is None or not volume.claim.uid:
        raise Failed(f"persistentvolume {name} was unbound from persistentvolumeclaim {_said(key)}")
    if claim.bound and claim.volume != name:
        # kube-scheduler does not check this, and binds the pod even if the node cannot reach the other volume.
        raise Failed(f"persistentvolumeclaim {_said(key)} was bound to persistentvolume {claim.volume}, not to {name}")
    return claim.bound


def is_older(version: str, written: str) -> bool:
    """Whether `version`, from the watch, is older than our own write. Since 1.35, versions are increasing numbers."""
    if not (version.isdecimal() and written.isdecimal()):
        return False
    return int(version) < int(written)


def _there(key: ClaimKey, name: str, volumes: Volumes) -> tuple[Claim, Volume | None]:
    claim, volume = volumes.claim(key), volumes.volume(name) if name else None
    if name and volume is None:
        raise Failed(f"persistentvolume {name} no longer exists")
    if claim is None:
        raise Failed(f"persistentvolumeclaim {_said(key)} no longer exists")
    return claim, volume


def _is_made(key: ClaimKey, claim: Claim, node: str, volumes: Volumes, labels: Mapping[str, str]) -> bool:
    if claim.selected_node != node:
        raise Failed(f"the provisioner cannot create a volume for persistentvolumeclaim {_said(key)} on node {node}")
    if claim.volume:
        volume = volumes.volume(claim.volume)
        if volume is None:
            return False
        _check_affinity(volume, volumes, labels)
    return claim.bound


def _check_affinity(volume: Volume, volumes: Volumes, labels: Mapping[str, str]) -> None:
    reach = volumes.reach(volume)
    if reach is not None and not reach.accepts(labels):
        raise Failed(f"persistentvolume {volume.name} cannot be used from the node: its node affinity does not match")


def _said(key: ClaimKey) -> str:
    return f"{key[0]}/{key[1]}"
