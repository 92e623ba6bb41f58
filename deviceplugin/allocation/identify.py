"""Which container the kubelet means. It names neither pod nor container in any call. Pure.

`allocating` serves Allocate where the answer must be complete at once (environment mode). It rests on this: admission
is serial, so each pod that was admitted before has all its containers recorded; one that was rejected is unknown to
PodResources.Get at once; later ones are unknown to it still. The caller is the first unrecorded container of the one
pod that is left. `starting` serves PreStartContainer, when the assignment is recorded, and so needs no inference.

Either answers right or refuses. What the rule cannot tell apart, and is refused unless the count of devices decides:
a pod that was admitted while the kubelet did not know the resource; running containers whose record was lost; a pod
that was being deleted when the kubelet first saw it; two pods of one name; a kubelet that has no PodResources.Get.
While the caller is missing from our view, which is late, three other pods look just like it: a namesake of it that was
deleted before it was allocated, a pod that the kubelet saw deleted first and we do not yet, a pod whose containers run
and lost their record before they were ever reported. Such an answer is found at PreStartContainer, by the UID, so that
no container starts with it: see `container_share.replay_objection`.

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

# The hash of its manifest. Source: Kubernetes, pkg/kubelet/config/common.go (applyDefaults).
_UID_OF_STATIC: Final = re.compile(r"[0-9a-f]{32}")


class NotIdentified(Exception):
    """No container can be named for certain; the message names the candidates and why each was ruled out."""


@dataclass(frozen=True, slots=True)
class KubeletPod:
    """Answer of PodResources.Get for a pod: container name -> ids of our resource, empty where it has none yet.

    Ordinary init containers are never there, and there is no UID: it may speak of another pod of the same name.
    """

    containers: Mapping[str, frozenset[str]]


@dataclass(frozen=True, slots=True)
class NodeState:
    """State of this node at the moment of a call.

    pods: of this node, as the API server tells us, so maybe late. entries: the kubelet's checkpoint, read after the
    call came. shown: pod UID -> what PodResources.Get said of its name after the call came, None for NotFound; a pod
    that is missing was not asked for.
    """

    resource: str
    pods: Sequence[NodePod]
    entries: Sequence[CheckpointEntry]
    shown: Mapping[str, KubeletPod | None] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class PodContainers:
    """The pod, and the container; several of it where they hold the same ids, one after the other."""

    pod: NodePod
    containers: tuple[PodContainer, ...]


def unrecorded(view: NodeState, answered: Collection[tuple[str, str]] = ()) -> list[PodContainers]:
    """Each pod with a container that waits for devices, and the first such: the pods to ask PodResources.Get for.

    answered: (UID, container) of the calls that we answered since the kubelet last registered us: it repeats none.
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
    """The container whose Allocate asks for `units` devices. Raises NotIdentified.

    answered: as for `unrecorded`. passed: UIDs of the pods that the kubelet had admitted before we registered with it.
    Holds only with `pre_start_required`: else a container may be allocated at its start, during an admission.
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
    """The entries that hold exactly `ids`; the pods to ask PodResources.Get for are theirs."""
    wanted = frozenset(ids)
    return [entry for entry in view.entries if entry.resource == view.resource and entry.ids == wanted]


def starting(ids: Collection[str], view: NodeState) -> PodContainers:
    """The container that starts with exactly the devices `ids`. Raises NotIdentified; the kubelet then asks again.

    A UID on record whose pod is not known here is not taken for a dead pod's: the watch may be late, and a pod that was
    deleted by force may be gone for the API server and still start containers.
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
    """Shares of the found containers. Raises NotIdentified if they hold the same ids and have different cards."""
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
    """Why the container cannot be the one that allocates; "" when it can."""
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
    """Why the only pod that is left may still be the wrong one, the right one being unknown here yet; "" for none."""
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
    """Why the pod's recorded containers cannot be what starts; "" when they can."""
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
    """Why PodResources.Get speaks of another pod of this name, or of a moment that the checkpoint does not know."""
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
