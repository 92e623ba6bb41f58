"""What is still to be written, or waited for, until a pod has the volumes of its plan. Pure.

Source: kube-scheduler, plugins/volumebinding/binder.go: AssumePodVolumes, bindAPIUpdate, checkBindings.
"""

from collections.abc import Mapping

from scheduler.kube.port import NodeForClaim, VolumeForClaim
from scheduler.pods.pod_volumes import ClaimKey
from scheduler.state.volumes.plan import Plan
from scheduler.state.volumes.volume import Volume
from scheduler.state.volumes.volumes import Volumes


class Failed(Exception):
    """The plan cannot come true any more; the message says why."""


def to_write(plan: Plan, volumes: Volumes) -> list[VolumeForClaim | NodeForClaim]:
    """What the API server does not show yet of what we have decided. Raises Failed for what has gone."""
    writes: list[VolumeForClaim | NodeForClaim] = []
    for name, key in plan.taken:
        volume, claim = volumes.volume(name), volumes.claim(key)
        if volume is None or claim is None:
            message = f"{_missing(name, key, volume)} is gone"
            raise Failed(message)
        if volume.claim is None or not volume.claim.uid:
            writes.append(VolumeForClaim(name, volume.version, *key, claim.uid, kept=volume.claim is not None))
    for key in plan.made:
        claim = volumes.claim(key)
        if claim is None:
            message = f"persistentvolumeclaim {_said(key)} is gone"
            raise Failed(message)
        if claim.selected_node != plan.node:
            writes.append(NodeForClaim(*key, claim.version, plan.node))
    return writes


def is_done(
    plan: Plan, volumes: Volumes, labels: Mapping[str, str] | None, written: Mapping[ClaimKey | str, str]
) -> bool:
    """Whether all claims are bound; raises Failed when that will not be. Looked at once everything is written.

    labels: of the node, None when it is gone. written: versions that our writes have made, by claim and volume.
    """
    if labels is None:
        message = f"node {plan.node} is gone"
        raise Failed(message)
    # Each of them is looked at: what has failed is told although another one still waits.
    taken = [_is_taken(name, key, volumes, labels, written.get(name, "")) for name, key in plan.taken]
    made = [_is_made(key, plan.node, volumes, labels, written.get(key, "")) for key in plan.made]
    return all(taken) and all(made)


def _is_taken(name: str, key: ClaimKey, volumes: Volumes, labels: Mapping[str, str], written: str) -> bool:
    volume, claim = volumes.volume(name), volumes.claim(key)
    if volume is None or claim is None:
        message = f"{_missing(name, key, volume)} is gone"
        raise Failed(message)
    if _is_older(volume.version, written):
        return False
    _check_affinity(volume, volumes, labels)
    if volume.claim is None or not volume.claim.uid:
        message = f"persistentvolume {name} was taken from persistentvolumeclaim {_said(key)} again"
        raise Failed(message)
    if claim.bound and claim.volume != name:
        # kube-scheduler does not look, and binds the pod where the other one may be out of reach.
        message = f"persistentvolumeclaim {_said(key)} was bound to persistentvolume {claim.volume}, not to {name}"
        raise Failed(message)
    return claim.bound


def _is_made(key: ClaimKey, node: str, volumes: Volumes, labels: Mapping[str, str], written: str) -> bool:
    claim = volumes.claim(key)
    if claim is None:
        message = f"persistentvolumeclaim {_said(key)} is gone"
        raise Failed(message)
    if _is_older(claim.version, written):
        return False
    if claim.selected_node != node:
        message = (
            f"no volume can be made for persistentvolumeclaim {_said(key)} on node {node}: the provisioner says so"
        )
        raise Failed(message)
    if claim.volume:
        volume = volumes.volume(claim.volume)
        if volume is None:
            return False
        _check_affinity(volume, volumes, labels)
    return claim.bound


def _check_affinity(volume: Volume, volumes: Volumes, labels: Mapping[str, str]) -> None:
    reach = volumes.reach(volume)
    if reach is not None and not reach.accepts(labels):
        message = f"persistentvolume {volume.name} cannot be used from the node: its node affinity does not match"
        raise Failed(message)


def _is_older(version: str, written: str) -> bool:
    """Whether what the watch has shown is from before our own write. Versions are numbers that grow, since 1.35."""
    if not (version.isdecimal() and written.isdecimal()):
        return False
    return int(version) < int(written)


def _missing(name: str, key: ClaimKey, volume: Volume | None) -> str:
    return f"persistentvolume {name}" if volume is None else f"persistentvolumeclaim {_said(key)}"


def _said(key: ClaimKey) -> str:
    return f"{key[0]}/{key[1]}"
