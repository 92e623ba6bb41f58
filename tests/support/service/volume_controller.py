"""The parts of the volume controller and a provisioner that the scheduler waits for; they act at a test's request.

Source: kubernetes/pkg/controller/volume/persistentvolume, and external-provisioner.
"""

from collections.abc import Mapping
from typing import Any

from scheduler.kube.port import CLAIMS, STORAGE_CLASSES, VOLUMES
from scheduler.testing.cluster.world import World
from tests.support.builders import wire_node
from tests.support.service.looking import cluster
from tests.support.volumes import HOSTNAME, SELECTED_NODE, ZONE, volume


class VolumeController:
    """Controller of one world."""

    def __init__(self, of: World) -> None:
        self._of = of.storage

    def bind(self, claim_name: str, volume_name: str, namespace: str = "default") -> None:
        """Bind both to each other, whatever they contained."""
        self._of.bind(namespace, claim_name, volume_name)

    def bind_kept(self) -> list[str]:
        """Bind every claim for which a volume is reserved; return the claims' names."""
        done = []
        for found in list(self._of.of(VOLUMES)):
            reference = found.spec.claim_ref
            free = reference is not None and found.status.phase == "Available"
            if reference is not None and free and self._is_unbound(reference.namespace, reference.name):
                self._of.bind(reference.namespace, reference.name, found.metadata.name)
                done.append(reference.name)
        return done

    def provision(self, *, key: str = HOSTNAME) -> dict[str, str]:
        """Create a volume for every claim that has a node; return claim -> node."""
        done = {}
        for found in list(self._of.of(CLAIMS)):
            namespace = found.metadata.namespace
            node = self.selected(found.metadata.name, namespace)
            if not node or found.spec.volume_name:
                continue
            name = f"pvc-{found.metadata.uid}"
            made = volume(name, class_name=found.spec.storage_class_name or "", on=(node,), key=key)
            reference = {"namespace": namespace, "name": found.metadata.name, "uid": found.metadata.uid}
            made["spec"]["claimRef"] = reference
            self._of.create(VOLUMES, made)
            self._of.bind(namespace, found.metadata.name, name)
            done[found.metadata.name] = node
        return done

    def _is_unbound(self, namespace: str, claim_name: str) -> bool:
        found = self._of.of(CLAIMS).find(namespace, claim_name)
        return found is not None and not found.spec.volume_name

    def selected(self, claim_name: str, namespace: str = "default") -> str:
        """Return the node that the scheduler has written into the claim."""
        found = self._of.of(CLAIMS).existing(namespace, claim_name)
        return (found.metadata.annotations or {}).get(SELECTED_NODE, "")

    def reject(self, claim_name: str, namespace: str = "default") -> None:
        """Report that no volume can be created on that node: the scheduler has to select another."""
        self._of.annotate_claim(namespace, claim_name, {SELECTED_NODE: None})

    def comes(self, *manifests: Mapping[str, Any]) -> None:
        """Create claims, volumes and classes, each recognized by its fields."""
        for manifest in manifests:
            if "provisioner" in manifest:
                self._of.create(STORAGE_CLASSES, manifest)
            elif "capacity" in manifest["spec"]:
                self._of.create(VOLUMES, manifest)
            else:
                self._of.create(CLAIMS, manifest)


def zones(**nodes: str) -> tuple[World, VolumeController]:
    """Return one node with a card of 16 units for each keyword, in the zone that is its value."""
    of = cluster()
    for name, zone in nodes.items():
        of.nodes.add(wire_node(name, [16], labels={ZONE: zone}))
    return of, VolumeController(of)
