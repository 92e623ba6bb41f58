"""Identifies the container that the kubelet means: no call names a pod or container. Pure.

`allocating` serves Allocate when the answer must be complete at once (environment mode). It relies on serial admission:
each pod admitted earlier has all its containers recorded; PodResources.Get drops a rejected pod at once and does not
yet know later ones. The caller is the first unrecorded container of the only remaining pod. `starting` serves
PreStartContainer, when the assignment is recorded, and so needs no inference.

Each of them answers correctly or raises. The rule cannot identify the following, and rejects them unless the device
count decides: a pod that was admitted while the kubelet did not know the resource; running containers whose record was
lost; a pod that was being deleted when the kubelet first saw it; two pods with the same name; a kubelet without
PodResources.Get.
While the caller is missing from our (delayed) view, three other pods look just like it: a namesake that was deleted
before it was allocated; a pod that the kubelet already saw deleted and we have not; a pod whose running containers lost
their record before they were ever reported. PreStartContainer detects such an answer by the UID, so no container starts
with it: see `container_share.replay_objection`.

Source: pkg/kubelet/kubelet.go (HandlePodAdditions) and pkg/kubelet/cm/devicemanager/manager.go of Kubernetes 1.36.
"""

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from config.protocol.container_formula import ContainerKind
from deviceplugin.allocation.decision import CardDecision, Share
from deviceplugin.allocation.pods import NodePod, PodContainer
from deviceplugin.kubelet.checkpoint import CheckpointEntry

# Annotation with the manifest's hash. Source: Kubernetes, pkg/kubelet/config/common.go (applyDefaults).
_UID_OF_STATIC: Final = re.compile(r"[0-9a-f]{32}")


class NotIdentified(Exception):
    """The container cannot be identified for certain; the message names the candidates and why each was ruled out."""


@dataclass(frozen=True, slots=True)
class KubeletPod:
    """Answer of PodResources.Get for a pod: container name -> IDs of our resource, empty if it has none yet.

    Ordinary init containers are never listed. The answer has no UID, so it may describe another pod with the same name.
    """

    containers: Mapping[str, frozenset[str]]


@dataclass(frozen=True, slots=True)
class NodeState:
    """State of this node at the moment of a call.

    pods: this node's, from the API server, so possibly out of date. entries: the kubelet's checkpoint, read after the
    call arrived. shown: pod UID -> answer of PodResources.Get for its name after the call arrived, None for NotFound; a
    missing pod was not queried.
    """

    resource: str
    pods: Sequence[NodePod]
    entries: Sequence[CheckpointEntry]
    shown: Mapping[str, KubeletPod | None] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class PodContainers:
    """A pod and one of its containers, or several that hold the same IDs because they run one at a time."""

    pod: NodePod
    containers: tuple[PodContainer, ...]


def unrecorded(view: NodeState, answered: Collection[tuple[str, str]] = ()) -> list[PodContainers]:
    """Return each pod with a container that waits for devices, and its first such container.

    Query PodResources.Get for these pods. answered: (UID, container) of the calls answered since the kubelet last
    registered the plugin; the kubelet does not repeat these calls.
    """
    recorded = {(entry.pod_uid, entry.container) for entry in view.entries if entry.resource == view.resource}
    recorded.update(answered)
    waiting = []
    for pod in view.pods:
        first = next((c for c in pod.containers if c.units > 0 and (pod.uid, c.name) not in recorded), None)
        if first is not None and not pod.finished:
            waiting.append(PodContainers(pod, (first,)))
    return waiting


def allocating(
    units: int,
    view: NodeState,
    *,
    answered: Collection[tuple[str, str]] = (),
    passed: Collection[str] = (),
) -> PodContainers:
    """Return the container whose Allocate requests `units` devices. Raises NotIdentified.

    answered: as for `unrecorded`. passed: UIDs of the pods that the kubelet had admitted before the plugin registered.
    Valid only with `pre_start_required`: otherwise the kubelet may allocate devices to a starting container while it
    admits another pod.
    """
    possible, reasons = [], []
    for found in unrecorded(view, answered):
        reason = _not_calling(found, units, view)
        if reason:
            reasons.append(f"UID {found.pod.uid}: {reason}")
        else:
            possible.append(found)
    if len(possible) == 1:
        doubt = _doubt(possible[0].pod, view, passed)
        if not doubt:
            return possible[0]
        reasons.append(f"UID {possible[0].pod.uid}: {doubt}")
    else:
        reasons += [f"UID {found.pod.uid}: its next container matches too" for found in possible]
    why = "; ".join(reasons) or "no pod on this node is waiting for devices"
    raise NotIdentified(f"cannot tell which container allocates {units} devices of {view.resource}; {why}")


def holders(ids: Collection[str], view: NodeState) -> list[CheckpointEntry]:
    """Return the entries that hold exactly `ids`; query PodResources.Get for their pods."""
    wanted = frozenset(ids)
    return [entry for entry in view.entries if entry.resource == view.resource and entry.ids == wanted]


def starting(ids: Collection[str], view: NodeState) -> PodContainers:
    """Return the container that starts with exactly the devices `ids`. Raises NotIdentified; the kubelet then retries.

    A recorded UID whose pod is unknown here may not belong to a deleted pod: the watch may be late, and a pod that
    was force-deleted may have left the API server and still start containers.
    """
    by_uid = {pod.uid: pod for pod in view.pods}
    held = holders(ids, view)
    reasons = [_unknown(uid) for uid in sorted({entry.pod_uid for entry in held} - set(by_uid))]
    live = {entry.pod_uid for entry in held if entry.pod_uid in by_uid and not by_uid[entry.pod_uid].finished}
    if len(live) == 1 and not reasons:
        pod = by_uid[live.pop()]
        recorded = {entry.container for entry in held if entry.pod_uid == pod.uid}
        reason = _not_starting(pod, recorded, len(set(ids)), view)
        if not reason:
            return PodContainers(pod, tuple(container for container in pod.containers if container.name in recorded))
        reasons.append(f"UID {pod.uid}: {reason}")
    reasons += [f"UID {uid}: holds the same devices" for uid in sorted(live)]
    why = "; ".join(reasons) or "the kubelet records no live container with exactly these devices"
    raise NotIdentified(f"cannot tell which container starts with {len(set(ids))} devices of {view.resource}; {why}")


def common_shares(found: PodContainers, decision: CardDecision) -> tuple[Share, ...]:
    """Return the shares of the found containers. Raises NotIdentified if they have the same IDs but different cards."""
    shares = {container.name: decision.shares[container.name] for container in found.containers}
    if len(set(shares.values())) > 1:
        each = ", ".join(f"{name} on {'+'.join(s.uuid for s in on)}" for name, on in shares.items())
        message = (
            f"cannot tell which container of pod {found.pod} starts: the same devices, but different cards: {each}"
        )
        raise NotIdentified(message)
    return next(iter(shares.values()))


def _unknown(uid: str) -> str:
    if _UID_OF_STATIC.fullmatch(uid):
        return f"UID {uid}: a static pod; no scheduler has chosen cards for it"
    return f"UID {uid}: the kubelet has recorded its pod, but the plugin has not seen the pod yet"


def _not_calling(found: PodContainers, units: int, view: NodeState) -> str:
    """Return why the container cannot be the one that allocates; "" if it can."""
    pod, container = found.pod, found.containers[0]
    if pod.uid in view.shown:
        shown = view.shown[pod.uid]
        if shown is None:
            return "the kubelet has not admitted it, or has rejected it"
        other = _namesake(pod, shown, view)
        if other:
            return other
    if container.units != units:
        return f"its next container requests {container.units} units"
    return ""


def _doubt(pod: NodePod, view: NodeState, passed: Collection[str]) -> str:
    """Return why the only remaining pod may not be the caller; "" if it certainly is.

    If it is not, the caller is a pod that has not appeared here yet.
    """
    if pod.uid not in view.shown:
        return "it is unknown whether the kubelet has admitted it (PodResources.Get requires Kubernetes 1.34)"
    if pod.terminating:
        return "it is being deleted"
    if pod.uid in passed:
        return "the kubelet admitted it before this resource was registered"
    if pod.reported:
        return "the kubelet admitted it earlier, but recorded no devices for its containers"
    return ""


def _not_starting(pod: NodePod, recorded: Iterable[str], units: int, view: NodeState) -> str:
    """Return why the pod's recorded containers cannot be the ones that start; "" if they can."""
    by_name = {container.name: container for container in pod.containers}
    for name in sorted(recorded):
        asks = by_name[name].units if name in by_name else 0
        if asks != units:
            return f"its container {name} requests {asks} units"
    if pod.uid not in view.shown:
        return "PodResources.Get has not confirmed it"
    shown = view.shown[pod.uid]
    return "PodResources.Get did not find it" if shown is None else _namesake(pod, shown, view)


def _namesake(pod: NodePod, shown: KubeletPod, view: NodeState) -> str:
    """Return why PodResources.Get describes a namesake of the pod, or another time than the checkpoint; else ""."""
    strangers = set(shown.containers) - {container.name for container in pod.containers}
    if strangers:
        return f"the kubelet's pod of this name also has container {min(strangers)}"
    recorded = {
        entry.container: entry.ids
        for entry in view.entries
        if entry.pod_uid == pod.uid and entry.resource == view.resource
    }
    for container in pod.containers:
        if container.kind is ContainerKind.INIT:
            continue
        ids, on_record = shown.containers.get(container.name, frozenset()), recorded.get(container.name, frozenset())
        if ids != on_record:
            return (
                f"the kubelet lists {len(ids)} devices for container {container.name} of the pod with this name, "
                f"but its checkpoint records a different set of {len(on_record)} for this UID"
            )
    return ""
