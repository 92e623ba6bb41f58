"""Changes of an installation as docs/operations.md and docs/nodes-and-cards.md have them, with kubectl and helm.

On a real API server with controllers and without kubelets: no pod becomes ready, so what is waited for is what the
objects say. `e2e/suites/installed/test_documents.py` types the other commands of that document.
"""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import pytest
import yaml

from e2e.control_plane.admin import Admin, Json, done
from e2e.control_plane.cluster import ControlPlane
from e2e.deploy.operations.terminal import Terminal, blocks
from e2e.programs import manifests
from e2e.support.gpu_site import NODES, gpu_node
from tests.support.repository import ROOT

DOCUMENT: Final = ROOT / "docs" / "operations.md"
CHANGE: Final = "## Change the configuration"
AGAIN: Final = "## Reinstall the same version"
UPGRADE: Final = "## Upgrade"
BACK: Final = "## Roll back"
CARDS: Final = ROOT / "docs" / "nodes-and-cards.md"
NODE_WORK: Final = "## Drain or reboot a node"
RESTORE: Final = "### etcd from a backup"
INSTALL: Final = (
    "helm install gpushare-scheduler deploy/chart/gpushare-scheduler --namespace kube-system"
    " --set image.repository=gpushare-scheduler"
)
UNINSTALL: Final = "helm uninstall gpushare-scheduler --namespace kube-system --wait"
NEWER: Final = "7.8.9"
APPS: Final = f"/apis/apps/v1/namespaces/{manifests.NAMESPACE}"
DEPLOYMENT: Final = f"{APPS}/deployments/{manifests.SCHEDULER}"
DAEMON_SET: Final = f"{APPS}/daemonsets/{manifests.PLUGIN}"
CONFIGURATION: Final = f"/api/v1/namespaces/{manifests.NAMESPACE}/configmaps/{manifests.SCHEDULER}"
RBAC: Final = "/apis/rbac.authorization.k8s.io/v1"
POLICIES: Final = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies"
RESTARTED: Final = "kubectl.kubernetes.io/restartedAt"
# In what the revisions of a program are kept, and of which one.
REVISIONS: Final = {"replicasets": manifests.SCHEDULER, "controllerrevisions": manifests.PLUGIN}
SOON_S: Final = 60.0


@dataclass(frozen=True, slots=True)
class Site:
    """A cluster in which the chart is installed, and who operates it."""

    admin: Admin
    terminal: Terminal

    async def there(self, path: str) -> Json:
        return done(await self.admin.get(path)).body

    async def template(self, path: str) -> Any:  # noqa: ANN401 - JSON
        return (await self.there(path))["spec"]["template"]

    async def tags(self) -> set[str]:
        """Of the images of both programs."""
        pods = [(await self.template(path))["spec"] for path in (DEPLOYMENT, DAEMON_SET)]
        return {container["image"].rpartition(":")[2] for pod in pods for container in pod["containers"]}

    async def has_revisions(self, count: int) -> None:
        """Return when the controllers have kept so many of both programs. Raises TimeoutError."""
        async with asyncio.timeout(SOON_S):
            while {await self._revisions(kind) for kind in REVISIONS} != {count}:  # noqa: ASYNC110 - nothing tells
                await asyncio.sleep(0.1)

    async def _revisions(self, kind: str) -> int:
        owned = [one["metadata"].get("ownerReferences", []) for one in await self.admin.items(f"{APPS}/{kind}")]
        return sum(any(owner["name"] == REVISIONS[kind] for owner in owners) for owners in owned)


@pytest.fixture
async def site(controlled: ControlPlane, operator: Admin, tmp_path: Path) -> AsyncIterator[Site]:
    """Installed, and removed afterwards."""
    made = Site(operator, Terminal(controlled, tmp_path))
    await operator.create(NODES, gpu_node("n", [16]))
    made.terminal.types(INSTALL)
    yield made
    made.terminal.types(UNINSTALL)
    await operator.delete(f"{NODES}/n")
    await made.has_revisions(0)


def typed(site: Site, heading: str, begins: str, **words: str) -> None:
    """The commands of the section that begin so."""
    found = [block for block in blocks(heading, DOCUMENT) if block.startswith(begins)]
    assert found, f"{heading} has no command that begins with {begins!r}"
    for block in found:
        site.terminal.types(block, **words)


async def test_an_installation_is_changed_upgraded_and_rolled_back(site: Site) -> None:
    first = await site.tags()
    before = (await site.template(DEPLOYMENT))["metadata"]["annotations"]["checksum/config"]
    typed(site, CHANGE, "helm upgrade")
    configured = yaml.safe_load((await site.there(CONFIGURATION))["data"]["scheduler.yaml"])
    assert configured["reserveAfter"] == "10m"
    assert (await site.template(DEPLOYMENT))["metadata"]["annotations"]["checksum/config"] != before

    typed(site, UPGRADE, "helm upgrade", VERSION=NEWER)
    assert await site.tags() == {NEWER}
    typed(site, BACK, "helm history")
    assert await site.tags() == first


async def test_what_was_deleted_or_edited_comes_back_and_the_values_stay(site: Site) -> None:
    typed(site, CHANGE, "helm upgrade")
    rights, binding = f"{RBAC}/clusterroles/{manifests.SCHEDULER}", f"{RBAC}/clusterrolebindings/{manifests.SCHEDULER}"
    granted, configured = (await site.there(rights))["rules"], (await site.there(CONFIGURATION))["data"]
    done(await site.admin.patch(rights, {"rules": granted[:1]}))
    done(await site.admin.delete(binding))
    done(await site.admin.delete(f"{POLICIES}/gpushare-allocation"))

    typed(site, AGAIN, "helm upgrade")
    assert (await site.there(rights))["rules"] == granted
    assert (await site.there(binding))["subjects"]
    assert (await site.there(f"{POLICIES}/gpushare-allocation"))["spec"]["validations"]
    assert (await site.there(CONFIGURATION))["data"] == configured
    assert "reserveAfter: 10m" in configured["scheduler.yaml"]


async def test_pods_are_restarted_and_one_program_alone_goes_back(site: Site) -> None:
    # A controller keeps what there was a little after it is written, and only what it has kept comes back.
    await site.has_revisions(1)
    typed(site, CHANGE, "kubectl -n kube-system rollout restart")
    assert RESTARTED in (await site.template(DEPLOYMENT))["metadata"]["annotations"]
    typed(site, RESTORE, "kubectl -n kube-system rollout restart")
    assert RESTARTED in (await site.template(DAEMON_SET))["metadata"]["annotations"]

    await site.has_revisions(2)
    typed(site, BACK, "kubectl -n kube-system rollout undo")
    for path in (DEPLOYMENT, DAEMON_SET):
        assert RESTARTED not in (await site.template(path))["metadata"].get("annotations", {})


async def test_the_scheduler_is_stopped_for_a_restore_and_started_again(site: Site) -> None:
    stop, start = (block for block in blocks(RESTORE, DOCUMENT) if "scale" in block)
    site.terminal.types(stop)
    assert (await site.there(DEPLOYMENT))["spec"]["replicas"] == 0
    site.terminal.types(start.splitlines()[0])
    assert (await site.there(DEPLOYMENT))["spec"]["replicas"] == 2


async def test_a_node_is_drained_and_taken_back(site: Site) -> None:
    drain, uncordon = (line for line in blocks(NODE_WORK, CARDS)[0].splitlines())
    site.terminal.types(drain, NODE="n")
    assert (await site.there(f"{NODES}/n"))["spec"]["unschedulable"] is True
    site.terminal.types(uncordon, NODE="n")
    assert "unschedulable" not in (await site.there(f"{NODES}/n"))["spec"]
