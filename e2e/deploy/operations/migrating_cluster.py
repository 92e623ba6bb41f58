"""A cluster on its way from the legacy extender, whose account and objects are those that docs/migrate.md names."""

from collections.abc import Sequence
from typing import Any, Final

from config.protocol import names
from e2e.control_plane.admin import Admin, Json, done
from e2e.programs import manifests
from e2e.support.gpu_site import gpu_node

EXTENDER: Final = "gpushare-schd-extender"
OLD_PLUGIN: Final = "gpushare-device-plugin"
OLD_DAEMON_SET: Final = "gpushare-device-plugin-ds"
MIGRATED: Final = "gpushare-migrated"


def _legacy(version: str, kind: str, name: str, fields: Json) -> Json:
    metadata = {"name": name, "namespace": manifests.NAMESPACE}
    return {"apiVersion": version, "kind": kind, "metadata": metadata, **fields}


def _workload(account: str, **pod: Any) -> Json:  # noqa: ANN401 - fields of a pod
    labels = {"app": account}
    template = {"serviceAccountName": account, "containers": [{"name": "c", "image": "none"}], **pod}
    return {"selector": {"matchLabels": labels}, "template": {"metadata": {"labels": labels}, "spec": template}}


def legacy_objects() -> list[Json]:
    """Of the extender and of the legacy plugin, the latter as the document has changed it before it moves nodes."""
    elsewhere = {"matchExpressions": [{"key": MIGRATED, "operator": "DoesNotExist"}]}
    required = {"nodeSelectorTerms": [elsewhere]}
    affinity = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": required}}
    on_nodes = _workload(OLD_PLUGIN, nodeSelector={"gpushare": "true"}, affinity=affinity)
    ports = [{"port": 12345}]
    return [
        *manifests.account(
            EXTENDER,
            {"apiGroups": [""], "resources": ["pods"], "verbs": ["get", "list", "watch", "update", "patch"]},
            {"apiGroups": [""], "resources": ["pods/binding", "bindings"], "verbs": ["create"]},
        ),
        *manifests.account(
            OLD_PLUGIN, {"apiGroups": [""], "resources": ["nodes", "pods"], "verbs": ["get", "list", "patch"]}
        ),
        _legacy("v1", "Service", EXTENDER, {"spec": {"selector": {"app": EXTENDER}, "ports": ports}}),
        _legacy("apps/v1", "Deployment", EXTENDER, {"spec": _workload(EXTENDER)}),
        _legacy("apps/v1", "DaemonSet", OLD_DAEMON_SET, {"spec": on_nodes}),
    ]


def moved_node(name: str, cards: Sequence[int]) -> Json:
    """A node that step 3 has moved: our device plugin has announced its cards."""
    node = gpu_node(name, cards)
    node["metadata"]["labels"] = {"gpushare": "true", MIGRATED: "true", "kubernetes.io/hostname": name}
    return node


async def desired(admin: Admin, daemon_set: str) -> tuple[int, bool]:
    """On how many nodes it wants to be, and whether that is of its newest form."""
    found = done(await admin.get(f"/apis/apps/v1/namespaces/{manifests.NAMESPACE}/daemonsets/{daemon_set}")).body
    status = found["status"]
    return status["desiredNumberScheduled"], status.get("observedGeneration") == found["metadata"]["generation"]


def asking(name: str, units: int, *, cards: int = 1, **spec: object) -> Json:
    """A pod that names no scheduler, unless spec says so. units: of each card."""
    container = {"name": "c", "image": "none", "resources": {"limits": {names.GPU_MEM: str(units)}}}
    own = {"containers": [container], **spec}
    return {"metadata": {"name": name, "annotations": {names.GPU_COUNT: str(cards)}}, "spec": own}
