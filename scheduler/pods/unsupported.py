"""Rules that a pod may ask for and that this scheduler does not have yet.

A pod with such a requirement is left pending with a message that says which, never bound as if it had not asked.
A preference cannot object, so the pod is scheduled without it, and the kind is named once in the log.
"""

from dataclasses import dataclass
from typing import Final

from config.protocol import names
from scheduler.kube import objects

# Volumes that need nothing of a scheduler: they are made, or mounted, on whatever node the pod runs. A kind that
# Kubernetes adds waits until it has been looked up. Of the others, kube-scheduler's rules look at
# - claims, `persistentVolumeClaim` and `ephemeral`: volumebinding/volume_binding.go (podHasPVCs), and volumezone and
#   nodevolumelimits by the claim;
# - disks that two pods may not share, `gcePersistentDisk`, `awsElasticBlockStore`, `rbd` and `iscsi`:
#   isVolumeConflict in volumerestrictions/volume_restrictions.go;
# - disks that count against a node's limit, the first two of those, `azureDisk`, `cinder` and `portworxVolume`:
#   nodevolumelimits/csi.go (checkAttachableInlineVolume), utils.go (isCSIMigrationOn).
_FREE_VOLUMES: Final = frozenset(
    {
        *("configMap", "secret", "emptyDir", "projected", "downwardAPI", "hostPath", "image", "gitRepo", "csi"),
        *("nfs", "cephfs", "glusterfs", "azureFile", "flexVolume", "fc", "flocker", "photonPersistentDisk"),
        *("quobyte", "scaleIO", "storageos", "vsphereVolume"),
    }
)

ANNOTATIONS_READ: Final = (names.CARD_POLICY, names.NODE_POLICY)


@dataclass(frozen=True, slots=True)
class Unsupported:
    """requirements: why the pod waits, for people. preferences: kinds that are ignored."""

    requirements: tuple[str, ...]
    preferences: tuple[str, ...]


def unsupported_rules(pod: objects.Pod) -> Unsupported:
    """What the pod asks that is not built."""
    return Unsupported(
        requirements=(
            *_volumes(pod.spec),
            *_affinity(pod.spec),
            *_groups(pod.spec),
            *_gpu(pod),
        ),
        preferences=_preferences(pod.spec),
    )


def _volumes(spec: objects.PodSpec) -> tuple[str, ...]:
    kinds = {kind for volume in spec.volumes for kind in volume if kind != "name"} - _FREE_VOLUMES
    return tuple(f"volumes of kind {kind}" for kind in sorted(kinds))


def _affinity(spec: objects.PodSpec) -> tuple[str, ...]:
    affinity = spec.affinity or objects.Affinity()
    found = []
    if affinity.pod_affinity and affinity.pod_affinity.required_during_scheduling_ignored_during_execution:
        found.append("required inter-pod affinity")
    if affinity.pod_anti_affinity and affinity.pod_anti_affinity.required_during_scheduling_ignored_during_execution:
        found.append("required inter-pod anti-affinity")
    if any(c.when_unsatisfiable != "ScheduleAnyway" for c in spec.topology_spread_constraints):
        found.append("topology spread with DoNotSchedule")
    return tuple(found)


def _groups(spec: objects.PodSpec) -> tuple[str, ...]:
    found = []
    if spec.resource_claims:
        found.append("resource claims")
    if spec.scheduling_group is not None:
        found.append("pod groups")
    return tuple(found)


def _gpu(pod: objects.Pod) -> tuple[str, ...]:
    annotations = pod.metadata.annotations or {}
    return tuple(f"{key}: fragmentation" for key in ANNOTATIONS_READ if annotations.get(key) == "fragmentation")


def _preferences(spec: objects.PodSpec) -> tuple[str, ...]:
    affinity = spec.affinity or objects.Affinity()
    found = []
    if affinity.pod_affinity and affinity.pod_affinity.preferred_during_scheduling_ignored_during_execution:
        found.append("preferred inter-pod affinity")
    if affinity.pod_anti_affinity and affinity.pod_anti_affinity.preferred_during_scheduling_ignored_during_execution:
        found.append("preferred inter-pod anti-affinity")
    if any(c.when_unsatisfiable == "ScheduleAnyway" for c in spec.topology_spread_constraints):
        found.append("topology spread with ScheduleAnyway")
    return tuple(found)
