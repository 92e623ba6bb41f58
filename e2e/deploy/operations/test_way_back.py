"""The way back from the steps 4 and 5 in docs/migrate-back.md, as an operator types it.

kube-scheduler itself with a double of the extender, our scheduler, kubectl and helm; every command is the document's.
What an account may write is decided by the policies of the chart, which nodes have a plugin by DaemonSets.
"""

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from http import HTTPStatus
from pathlib import Path
from typing import Any, Final

import pytest

from config.protocol import names
from e2e.control_plane.admin import Access, Admin, Json, done, seen
from e2e.control_plane.cluster import ControlPlane
from e2e.deploy.chart.cluster_state import until
from e2e.deploy.operations.migrating_cluster import (
    EXTENDER,
    OLD_DAEMON_SET,
    asking,
    desired,
    legacy_objects,
    moved_node,
)
from e2e.deploy.operations.terminal import WAY_BACK, Terminal, blocks
from e2e.programs import manifests
from e2e.programs.legacy_extender import LegacyExtender
from e2e.programs.scheduler_process import NO_PREDECESSOR, SchedulerProcess
from e2e.support.gpu_site import NODES, is_bound, is_unschedulable
from tests.support.legacy import DEFAULT, chosen

INSTALL: Final = "## 2. Install"
CUT_OVER: Final = "## 4. Cut over"
REMOVE: Final = "## 5. Remove the extender"
BACK_TO_3: Final = "## From step 4"
BACK_TO_4: Final = "## From step 5"
PODS: Final = "/api/v1/namespaces/default/pods"
DEPLOYMENTS: Final = "/apis/apps/v1/namespaces/default/deployments"
UNITS: Final = 15
_WITHIN_S: Final = 60.0


@dataclass(frozen=True, slots=True)
class Migration:
    """A cluster with the extender at work and this scheduler beside it, on two nodes that step 3 has moved."""

    cluster: ControlPlane
    admin: Admin
    extender: LegacyExtender
    extenders_account: Admin
    terminal: Terminal

    async def chooser(self) -> object:
        """Which scheduler a pod that names none is given; the answer where it is refused."""
        answer = await self.admin.post(f"{PODS}?dryRun=All", asking("tried", 1))
        return answer.body["spec"]["schedulerName"] if answer.status == HTTPStatus.CREATED else answer.body["message"]

    async def extender_writes(self) -> HTTPStatus:
        """What the extender's first request, of a pod that is there, is answered."""
        body = {"metadata": {"annotations": chosen(0, 1, UNITS, assigned=False)}}
        return HTTPStatus((await self.extenders_account.patch(f"{PODS}/theirs?dryRun=All", body)).status)

    async def placed(self, name: str, units: int, **options: Any) -> Json:  # noqa: ANN401 - as asking
        """A pod that has got its node, from whoever was asked: see `asking`."""
        await self.admin.create(PODS, asking(name, units, **options))
        return await seen(self.admin, PODS, is_bound, {"fieldSelector": f"metadata.name={name}"}, within_s=_WITHIN_S)

    async def on_nodes(self) -> tuple[tuple[int, bool], tuple[int, bool]]:
        """On how many nodes our plugin wants to be, and the legacy one."""
        return await desired(self.admin, manifests.PLUGIN), await desired(self.admin, OLD_DAEMON_SET)


@contextmanager
def kube_scheduler(cluster: ControlPlane, *extenders: Json) -> Iterator[None]:
    child = cluster.start_scheduler({"extenders": list(extenders), "podMaxBackoffSeconds": 1})
    try:
        yield
    finally:
        child.stop()


@asynccontextmanager
async def account(cluster: ControlPlane, admin: Admin, name: str) -> AsyncIterator[Admin]:
    access = cluster.access()
    token = await manifests.token(admin, name)
    async with Admin(Access(access.url, access.tls, f"Bearer {token}")) as client:
        yield client


@pytest.fixture
async def migration(tmp_path: Path) -> AsyncIterator[Migration]:
    """After step 3."""
    with ControlPlane(controller_manager=True) as cluster:
        terminal = Terminal(cluster, tmp_path)
        async with Admin(cluster.access()) as admin:
            for document in legacy_objects():
                await manifests.apply(admin, document)
            for name in ("a", "b"):
                await admin.create(NODES, moved_node(name, [UNITS, UNITS]))
            (install,) = blocks(INSTALL)
            await asyncio.to_thread(terminal.types, install)
            ours = cluster.kubeconfig_for(await manifests.token(admin), "ours")
            async with account(cluster, admin, EXTENDER) as extenders_account:
                extender = LegacyExtender(extenders_account, {name: [UNITS, UNITS] for name in ("a", "b")})
                with SchedulerProcess(ours, tmp_path, NO_PREDECESSOR):
                    async with extender.running():
                        yield Migration(cluster, admin, extender, extenders_account, terminal)


async def cut_over(site: Migration) -> None:
    """Step 4, from its first command until it is in force."""
    await until(site.chooser, DEFAULT)
    theirs = await site.placed("theirs", 3)
    assert theirs["metadata"]["annotations"][names.MEM_IDX] == "0"
    upgrade, _ = blocks(CUT_OVER)
    await asyncio.to_thread(site.terminal.types, upgrade)
    await until(site.chooser, names.SCHEDULER_NAME)
    await until(site.extender_writes, HTTPStatus.FORBIDDEN)


async def test_back_from_step_4_the_extender_chooses_again_and_pods_of_ours_go_on(migration: Migration) -> None:
    site = migration
    with kube_scheduler(site.cluster, site.extender.configuration()):
        await cut_over(site)
        ours = await site.placed("ours", 4)
        await site.placed("two-cards", 2, cards=2)
        await site.admin.create(PODS, asking("waiting", UNITS + 1))
        await seen(site.admin, PODS, is_unschedulable, {"fieldSelector": "metadata.name=waiting"}, within_s=_WITHIN_S)
        named = {"replicas": 0, "selector": {"matchLabels": {"app": "w"}}}
        template = {"metadata": {"labels": {"app": "w"}}, "spec": asking("", 1, schedulerName="gpushare")["spec"]}
        await site.admin.create(DEPLOYMENTS, {"metadata": {"name": "w"}, "spec": {**named, "template": template}})

        back, workloads, waiting = blocks(BACK_TO_3, WAY_BACK)
        several = await asyncio.to_thread(site.terminal.types, back)
        await until(site.chooser, DEFAULT)
        await until(site.extender_writes, HTTPStatus.OK)
        found = await asyncio.to_thread(site.terminal.types, workloads, NAMESPACE="default", NAME="w")
        deployment = done(await site.admin.get(f"{DEPLOYMENTS}/w")).body
        waited = await asyncio.to_thread(site.terminal.types, waiting, NAMESPACE="default", NAME="waiting")
        again = await site.placed("again", 5)
        left = done(await site.admin.get(f"{PODS}/ours")).body

    assert ours["metadata"]["annotations"][names.CARDS]
    assert several.splitlines()[-1] == "default two-cards"
    assert "default ours" not in several
    assert found.splitlines()[0] == "Deployment default w"
    assert deployment["spec"]["template"]["spec"]["schedulerName"] == DEFAULT
    assert waited.splitlines()[0] == "default waiting"
    assert "No problems found." in waited
    assert again["spec"]["schedulerName"] == DEFAULT
    assert names.CARDS not in again["metadata"]["annotations"]
    assert left["metadata"]["annotations"] == ours["metadata"]["annotations"]
    assert await site.on_nodes() == ((2, True), (0, True))


async def test_back_from_step_5_every_node_keeps_a_plugin_and_the_extender_chooses_again(migration: Migration) -> None:
    site = migration
    with kube_scheduler(site.cluster, site.extender.configuration()):
        await cut_over(site)
    with kube_scheduler(site.cluster):
        remove, alone = blocks(REMOVE)
        await asyncio.to_thread(site.terminal.types, remove)
        await asyncio.to_thread(site.terminal.types, alone)
        removed = await site.admin.get(f"/apis/apps/v1/namespaces/{manifests.NAMESPACE}/daemonsets/{OLD_DAEMON_SET}")
        await until(lambda: desired(site.admin, manifests.PLUGIN), (2, True))
        (back,) = blocks(BACK_TO_4, WAY_BACK)
        await asyncio.to_thread(site.terminal.types, back)
        await until(site.on_nodes, ((2, True), (0, True)))
    async with account(site.cluster, site.admin, EXTENDER) as extenders_account:
        extender = LegacyExtender(extenders_account, {"a": [UNITS, UNITS]})
        async with extender.running():
            with kube_scheduler(site.cluster, extender.configuration()):
                await asyncio.to_thread(site.terminal.types, blocks(BACK_TO_3, WAY_BACK)[0])
                await until(site.chooser, DEFAULT)
                await until(site.on_nodes, ((2, True), (0, True)))
                again = await site.placed("again", 5)

    assert removed.status == HTTPStatus.NOT_FOUND
    assert (again["spec"]["schedulerName"], extender.taken) == (DEFAULT, {"a": [5, 0]})
