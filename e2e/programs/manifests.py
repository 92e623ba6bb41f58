"""What `deploy/manifests` holds, and applying it to an API server without kubectl."""

from collections.abc import Mapping
from http import HTTPStatus
from typing import Final

import yaml

from e2e.control_plane.admin import Admin, ApiResponse, Json, UnexpectedAnswer
from tests.support.repository import ROOT

FOLDER: Final = ROOT / "deploy" / "manifests"
NAMESPACE: Final = "kube-system"
SCHEDULER: Final = "gpushare-scheduler"
PLUGIN: Final = "gpushare-scheduler-device-plugin"
_SERVICE_ACCOUNTS: Final = f"/api/v1/namespaces/{NAMESPACE}/serviceaccounts"
_PLURALS: Final[Mapping[str, str]] = {
    "ServiceAccount": "serviceaccounts",
    "Pod": "pods",
    "PersistentVolumeClaim": "persistentvolumeclaims",
    "Service": "services",
    "StatefulSet": "statefulsets",
    "Job": "jobs",
    "ConfigMap": "configmaps",
    "Deployment": "deployments",
    "DaemonSet": "daemonsets",
    "FlowSchema": "flowschemas",
    "Role": "roles",
    "RoleBinding": "rolebindings",
    "ClusterRole": "clusterroles",
    "ClusterRoleBinding": "clusterrolebindings",
    "ValidatingAdmissionPolicy": "validatingadmissionpolicies",
    "ValidatingAdmissionPolicyBinding": "validatingadmissionpolicybindings",
    "MutatingAdmissionPolicy": "mutatingadmissionpolicies",
    "MutatingAdmissionPolicyBinding": "mutatingadmissionpolicybindings",
    "PodDisruptionBudget": "poddisruptionbudgets",
    "NetworkPolicy": "networkpolicies",
    "PodMonitor": "podmonitors",
    "ServiceMonitor": "servicemonitors",
    "PrometheusRule": "prometheusrules",
}


def installed() -> list[str]:
    """The files that `kubectl apply -k deploy/manifests` applies, in order."""
    listed: list[str] = yaml.safe_load((FOLDER / "kustomization.yaml").read_text(encoding="utf-8"))["resources"]
    return listed


def documents(*files: str) -> list[Json]:
    """Every object of these files."""
    texts = [(FOLDER / file).read_text(encoding="utf-8") for file in files]
    return [document for text in texts for document in yaml.safe_load_all(text) if document]


def collection(document: Json) -> str:
    """Path of the collection that the object belongs to. KeyError for a kind that no manifest has had so far."""
    version = document["apiVersion"]
    base = f"/apis/{version}" if "/" in version else f"/api/{version}"
    namespace = document["metadata"].get("namespace")
    return f"{base}/{f'namespaces/{namespace}/' if namespace else ''}{_PLURALS[document['kind']]}"


def account(name: str, *rules: Json) -> list[Json]:
    """A ServiceAccount beside those of the manifests, and the rights that it has in the whole cluster."""
    group, own = "rbac.authorization.k8s.io", {"name": name}
    subject = {"kind": "ServiceAccount", "name": name, "namespace": NAMESPACE}
    role = {"apiGroup": group, "kind": "ClusterRole", "name": name}
    binding = {"roleRef": role, "subjects": [subject]}
    return [
        {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": name, "namespace": NAMESPACE}},
        {"apiVersion": f"{group}/v1", "kind": "ClusterRole", "metadata": own, "rules": list(rules)},
        {"apiVersion": f"{group}/v1", "kind": "ClusterRoleBinding", "metadata": own, **binding},
    ]


async def dry_run(admin: Admin, document: Json) -> ApiResponse:
    """Have the API server judge the object as strictly as it can, and not keep it.

    Under another name, since one of that name may be there.
    """
    renamed = document["metadata"] | {"name": f"{document['metadata']['name']}-dry-run"}
    return await admin.post(
        f"{collection(document)}?dryRun=All&fieldValidation=Strict", document | {"metadata": renamed}
    )


async def apply(admin: Admin, *documents: Json) -> None:
    """Create the objects in order, or replace those of their names. Raises UnexpectedAnswer."""
    for document in documents:
        path, name = collection(document), document["metadata"]["name"]
        answer = await admin.post(path, document)
        if answer.status == HTTPStatus.CONFLICT:
            answer = await admin.put(f"{path}/{name}", document)
        if answer.status >= HTTPStatus.BAD_REQUEST:
            message = f"{document['kind']} {name}: {answer.status} {answer.body.get('message')}"
            raise UnexpectedAnswer(message)


async def remove(admin: Admin, *documents: Json) -> None:
    """Delete the objects that exist, the last one first."""
    for document in reversed(documents):
        await admin.delete(f"{collection(document)}/{document['metadata']['name']}")


async def token(admin: Admin, account: str = SCHEDULER, bound_to: Json | None = None, *, lasts_s: int = 3600) -> str:
    """Return a token of a ServiceAccount, as the kubelet gets one for a pod; bound_to: that pod.

    Raises UnexpectedAnswer.
    """
    spec: Json = {"expirationSeconds": lasts_s}
    if bound_to:
        own = bound_to["metadata"]
        spec["boundObjectRef"] = {"apiVersion": "v1", "kind": "Pod", "name": own["name"], "uid": own["uid"]}
    issued = await admin.create(f"{_SERVICE_ACCOUNTS}/{account}/token", {"spec": spec})
    value: str = issued["status"]["token"]
    return value
