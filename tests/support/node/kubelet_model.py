"""A small model of the kubelet's device manager: what it asks of a device plugin, and what it shows meanwhile.

Pods are admitted one at a time. It rejects some before their Allocate and some after, hands devices of init containers
on, forgets devices of dead pods at its next allocation only, and may give one device to two pods. A pod that it admits
again, with a container that does not run, it fails when one of its devices is unhealthy or no longer listed.
Source: the behaviour of Kubernetes 1.36 in cm/devicemanager/manager.go and kubelet.go.
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
    """The plugin refused an Allocate."""


@dataclass
class Kubelet:
    """known: pods by UID, in the order in which it learnt of them, whether admitted or not.

    finished: UIDs that it does not count as active. running: UIDs with containers that run. registered: a plugin is.
    healthy: the healthy ids that the plugin lists, in the order in which free ones are given away.
    assigned: (UID, container) -> ids, as in its memory; `checkpoint` as in its file. answers: what was recorded beside.
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
        """PodResources.Get: the pod that it learnt of last under this name."""
        named = [pod for pod in self.known.values() if pod.name == name and pod.uid in self.active()]
        if not named:
            return None
        pod = named[-1]
        shown = (c.name for c in pod.containers if c.kind is not ContainerKind.INIT)
        return KubeletPod({name: self.assigned.get((pod.uid, name), frozenset()) for name in shown})

    def admit(self, pod: NodePod, allocate: Callable[[NodePod, PodContainer, int], bytes], *, doubled: bool) -> None:
        """Admit or reject the pod. allocate: the call to the plugin, which may raise Rejected.

        A pod that is being deleted already is neither, and active until it has ended.
        doubled: the known defect by which devices of a running pod are taken for free ones.
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
        """By the device manager, or by a handler that comes before or after it."""
        self.known[pod.uid] = pod
        self.finished.add(pod.uid)
        self.admitted.discard(pod.uid)
        self.running.discard(pod.uid)

    def end(self, uid: str) -> None:
        """The pod's containers have ended, and it is forgotten; its devices are not."""
        self.known.pop(uid, None)
        self.running.discard(uid)
        self.finished.discard(uid)
        self.admitted.discard(uid)

    def restart(self, *, record_lost: bool) -> None:
        """Containers go on running. The plugin has to register again, pods are learnt of again."""
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
        """Containers that run are left as they are; a resource that nobody registered is no device."""
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
