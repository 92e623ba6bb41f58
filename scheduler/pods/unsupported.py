"""Rules that a pod may ask for and that this scheduler does not have yet.

A pod with such a requirement is left pending with a message that says which, never bound as if it had not asked.
"""

from typing import Final

from scheduler.kube import objects
from scheduler.pods.pod_volumes import JUDGED

# Volumes that need nothing of a scheduler: they are made, or mounted, on whatever node the pod runs. A kind that
# Kubernetes adds waits until it has been looked up.
_FREE_VOLUMES: Final = frozenset(
    {
        *("configMap", "secret", "emptyDir", "projected", "downwardAPI", "hostPath", "image", "gitRepo", "csi"),
        *("nfs", "cephfs", "glusterfs", "azureFile", "flexVolume", "fc", "flocker", "photonPersistentDisk"),
        *("quobyte", "scaleIO", "storageos", "vsphereVolume"),
    }
)


def unsupported_rules(pod: objects.PodObject) -> tuple[str, ...]:
    """What the pod asks that is not built: why it waits, for people."""
    return (*_volumes(pod.spec), *_groups(pod.spec))


def _volumes(spec: objects.PodSpec) -> tuple[str, ...]:
    kinds = {kind for volume in spec.volumes for kind in volume if kind != "name"} - _FREE_VOLUMES - JUDGED
    return tuple(f"volumes of kind {kind}" for kind in sorted(kinds))


def _groups(spec: objects.PodSpec) -> tuple[str, ...]:
    found = []
    if spec.resource_claims:
        found.append("resource claims")
    if spec.scheduling_group is not None or spec.workload_ref is not None:
        found.append("pod groups")
    return tuple(found)
