"""Claims, volumes and classes of a cluster file, and the binding of claims of placed pods.

    claim of a placed pod ── a free volume exists ───▶ bound to it
                          └─ one is required ───────▶ created at once, and bound to it

Provisioners, and the controller that binds (pkg/controller/volume/persistentvolume), act the moment a pod is placed.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Final

import msgspec

from config.clusterfile.reading import ClusterFile, said_of
from config.clusterfile.workloads import Manifest
from config.settings.mistakes import ConfigurationError, Mistake
from scheduler.kube.defaults import decoded
from scheduler.kube.objects import PodDisruptionBudget
from scheduler.kube.port import CLAIMS, OF_STORAGE, STORAGE_CLASSES, VOLUMES, Kind
from scheduler.pods.pod_volumes import ClaimKey
from scheduler.state.volumes.plan import VolumePlan
from scheduler.testing.cluster.world import World

_KINDS: Final[Mapping[str, Kind[Any]]] = {kind.api_kind.lower(): kind for kind in OF_STORAGE}


def create_storage(cluster: ClusterFile, world: World) -> None:
    """Create all storage objects of the file.

    Raises ConfigurationError with every object that an API server would reject.
    """
    mistakes: list[Mistake] = []
    for manifest in cluster.storage:
        kind = _KINDS[str(manifest["kind"]).lower()]
        with _noting(mistakes, cluster, manifest):
            world.storage.create(kind, decoded(manifest, kind.type))
    if mistakes:
        raise ConfigurationError(mistakes)


def create_budgets(cluster: ClusterFile, world: World) -> None:
    """Create the file's disruption budgets unchanged. Raises ConfigurationError, as `create_storage`."""
    mistakes: list[Mistake] = []
    for manifest in cluster.budgets:
        with _noting(mistakes, cluster, manifest):
            world.disruption_budgets.add(decoded(manifest, PodDisruptionBudget))
    if mistakes:
        raise ConfigurationError(mistakes)


@contextmanager
def _noting(mistakes: list[Mistake], cluster: ClusterFile, manifest: Manifest) -> Iterator[None]:
    """Add mistakes of the manifest to `mistakes`."""
    try:
        yield
    except msgspec.ValidationError as error:
        message, _, path = str(error).partition(" - at `$.")
        source = cluster.source_of(manifest, said_of(manifest))
        mistakes.append(Mistake(path.removesuffix("`"), source, message.lower()))


def fulfil(plan: VolumePlan, world: World) -> None:
    """Bind every claim of a placed pod to its volume."""
    for (namespace, name), volume in plan:
        claim = world.storage.of(CLAIMS).existing(namespace, name)
        if claim.spec.volume_name:
            continue  # another pod that shares it was placed before
        world.storage.bind(namespace, name, volume or _make((namespace, name), plan.node, world))


def _make(key: ClaimKey, node: str, world: World) -> str:
    """Create a volume for a claim, usable where `allowedTopologies` of its class allow it; returns its name."""
    claim = world.storage.of(CLAIMS).existing(*key)
    class_name = claim.spec.storage_class_name or ""
    of_class = world.storage.of(STORAGE_CLASSES).existing("", class_name)
    found = world.nodes.find(node)
    labels = {} if found is None else found.metadata.labels or {}
    keys = {one.key for term in of_class.allowed_topologies for one in term.match_label_expressions}
    expressions = [{"key": key, "operator": "In", "values": [labels[key]]} for key in sorted(keys) if key in labels]
    spec: dict[str, Any] = {
        "accessModes": list(claim.spec.access_modes),
        "capacity": dict((claim.spec.resources.requests if claim.spec.resources else None) or {}),
        "storageClassName": class_name,
        "volumeMode": claim.spec.volume_mode,
    }
    if of_class.provisioner and "/" in of_class.provisioner and not of_class.provisioner.startswith("kubernetes.io/"):
        spec["csi"] = {"driver": of_class.provisioner, "volumeHandle": f"pvc-{claim.metadata.uid}"}
    if expressions:
        spec["nodeAffinity"] = {"required": {"nodeSelectorTerms": [{"matchExpressions": expressions}]}}
    return world.storage.create(
        VOLUMES, {"metadata": {"name": f"pvc-{claim.metadata.uid}"}, "spec": spec}
    ).metadata.name
