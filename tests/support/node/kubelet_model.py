"""A small model of the kubelet's device manager: its calls to a device plugin, and the state that it shows meanwhile.

Pods are admitted one at a time. It rejects some before their Allocate and some after, passes on devices of init
containers, forgets devices of dead pods only at its next allocation, and may allocate one device to two pods. When it
re-admits a pod with a stopped container, it fails the pod if one of its devices is unhealthy or no longer listed.
Source: the behavior of Kubernetes 1.36 in cm/devicemanager/manager.go and kubelet.go.
"""

import base64
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from config.protocol import names
from config.protocol.container_formula import ContainerKind
from deviceplugin.allocation.identify import KubeletPod
from deviceplugin.allocation.pods import NodePod, PodContainer
from deviceplugin.kubelet.checkpoint import CheckpointEntry

IDS: Final = tuple(f"d{number:02}" for number in range(40))


class Rejected(Exception):
    """The plugin rejected an Allocate."""


@dataclass
class Kubelet:
    """The model. known: pods by UID, in the order in which it learned of them, admitted or not.

    finished: UIDs that it does not count as active. running: UIDs with running containers. registered: whether a plugin
    is. healthy: the healthy IDs that the plugin lists, in allocation order. assigned: (UID, container) -> IDs in its
    memory; `checkpoint`: in its file. answers: the recorded Allocate answers.
    """

    known: dict[str, NodePod] = field(default_factory=dict)
    admitted: set[str] = field(default_factory=set)
    finished: set[str] = field(default_factory=set)
    running: set[str] = field(default_factory=set)
    registered: bool = True
    knows_resource: bool = True
    healthy: tuple[str, ...] = IDS
    assigned: dict[tuple[str, str], frozenset[str]] = field(default_factory=dict)
    answers: dict[tuple[str, str], bytes] = field(default_factory=dict)
    checkpoint: tuple[CheckpointEntry, ...] = ()

    def active(self) -> set[str]:
        return set(self.known) - self.finished

    def get(self, name: str) -> KubeletPod | None:
        """Return the answer of PodResources.Get: the last pod that it learned of with this name."""
        named = [pod for pod in self.known.values() if pod.name == name and pod.uid in self.active()]
        if not named:
            return None
        pod = named[-1]
        shown = (c.name for c in pod.containers if c.kind is not ContainerKind.INIT)
        return KubeletPod({name: self.assigned.get((pod.uid, name), frozenset()) for name in shown})

    def admit(self, pod: NodePod, allocate: Callable[[NodePod, PodContainer, int], bytes], *, doubled: bool) -> None:
        """Admit or reject the pod. allocate: the call to the plugin, which may raise Rejected.

        A pod that is already being deleted is neither admitted nor rejected, and stays active until it has ended.
        doubled: the known bug in which devices of a running pod count as free.
        """
        self.known[pod.uid] = pod
        if pod.terminating:
            return None
        reusable: set[str] = set()
        for container in pod.asking():
            key = (pod.uid, container.name)
            if self._skipped(pod):
                pass
            elif key in self.assigned:
                if not self.registered or not self.assigned[key] <= set(self.healthy):
                    return self.reject(pod)
            else:
                ids = self._pick(container.units, reusable, doubled=doubled)
                if not self.registered or len(ids) < container.units:
                    return self.reject(pod)
                try:
                    answer = allocate(pod, container, container.units)
                except Rejected:
                    return self.reject(pod)
                self.assigned[key], self.answers[key] = ids, answer
                self._write()
            if container.kind is ContainerKind.INIT:
                reusable |= self.assigned.get(key, frozenset())
            else:
                reusable -= self.assigned.get(key, frozenset())
        self.admitted.add(pod.uid)
        return None

    def reject(self, pod: NodePod) -> None:
        """Reject the pod, by the device manager or by a handler before or after it."""
        self.known[pod.uid] = pod
        self.finished.add(pod.uid)
        self.admitted.discard(pod.uid)
        self.running.discard(pod.uid)

    def end(self, uid: str) -> None:
        """End the pod's containers and forget the pod, but not its devices."""
        self.known.pop(uid, None)
        self.running.discard(uid)
        self.finished.discard(uid)
        self.admitted.discard(uid)

    def restart(self, *, record_lost: bool) -> None:
        """Restart the kubelet while containers keep running. It forgets registrations, and learns of pods again."""
        if record_lost:
            self.checkpoint = ()
        self.assigned = {(entry.pod_uid, entry.container): entry.ids for entry in self.checkpoint}
        self.answers = {(entry.pod_uid, entry.container): entry.answer() for entry in self.checkpoint}
        self.knows_resource = bool(self.checkpoint)
        self.registered = False
        self.known, self.admitted, self.finished = {}, set(), set()

    def register(self) -> None:
        self.registered = self.knows_resource = True

    def _skipped(self, pod: NodePod) -> bool:
        """Return whether running containers are left alone, or the resource is unregistered and so not a device."""
        return pod.uid in self.running or not self.knows_resource

    def _pick(self, units: int, reusable: set[str], *, doubled: bool) -> frozenset[str]:
        active = self.active()
        self.assigned = {key: ids for key, ids in self.assigned.items() if key[0] in active}
        taken = frozenset[str]() if doubled else frozenset().union(*self.assigned.values())
        reused = sorted(reusable)[:units]
        free = [device for device in self.healthy if device not in taken and device not in reused]
        return frozenset([*reused, *free[: units - len(reused)]])

    def _write(self) -> None:
        self.checkpoint = tuple(
            CheckpointEntry(
                uid, name, names.GPU_MEM, ids, base64.b64encode(self.answers.get((uid, name), b"")).decode()
            )
            for (uid, name), ids in self.assigned.items()
        )
