"""The rights of the web page on a real API server, and an account that may be let look."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import yaml

from e2e.control_plane.admin import Admin, Json
from e2e.control_plane.cluster import ControlPlane
from e2e.programs import manifests
from tests.support.repository import ROOT

VIEWER = "page-viewer"
BOUND = "page-viewer"
RBAC = [
    *manifests.documents("rbac.yaml"),
    *yaml.safe_load_all((ROOT / "deploy" / "optional" / "page.yaml").read_text(encoding="utf-8")),
]
SUBJECTS = [{"kind": "ServiceAccount", "name": VIEWER, "namespace": manifests.NAMESPACE}]
KIND: Json = {"apiVersion": "rbac.authorization.k8s.io/v1"}
ACCOUNT: Json = {
    "apiVersion": "v1",
    "kind": "ServiceAccount",
    "metadata": {"name": VIEWER, "namespace": manifests.NAMESPACE},
}
MAY_LOOK: Json = KIND | {
    "kind": "ClusterRoleBinding",
    "metadata": {"name": BOUND},
    "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "gpushare-page-viewer"},
    "subjects": SUBJECTS,
}


@asynccontextmanager
async def rights_for_the_page(cluster: ControlPlane, admin: Admin) -> AsyncIterator[Path]:
    """A kubeconfig of the scheduler's account, with the rights for the page. ACCOUNT is there, and may not look yet."""
    await manifests.apply(admin, *RBAC, ACCOUNT)
    try:
        yield cluster.kubeconfig_for(await manifests.token(admin), "service-account")
    finally:
        await manifests.remove(admin, *RBAC, ACCOUNT, MAY_LOOK)
