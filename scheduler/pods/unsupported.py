"""Requirements of pods that this scheduler does not support yet.

A pod with one stays Pending with a message that names it, and is never bound as if it had none.
"""

from typing import Final

from scheduler.kube import objects
from scheduler.pods.pod_volumes import JUDGED

# Volumes that do not restrict the node: they are created or mounted wherever the pod runs. A kind that Kubernetes adds
# waits until it has been examined.
_FREE_VOLUMES: Final = frozenset(
    {
        *("configMap", "secret", "emptyDir", "projected", "downwardAPI", "hostPath", "image", "gitRepo", "csi"),
        *("nfs", "cephfs", "glusterfs", "azureFile", "flexVolume", "fc", "flocker", "photonPersistentDisk"),
        *("quobyte", "scaleIO", "storageos", "vsphereVolume"),
    }
)


def unsupported_rules(pod: objects.PodObject) -> tuple[str, ...]:
    """Unsupported requirements of the pod, as text for users."""
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
