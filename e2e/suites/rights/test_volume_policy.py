"""The optional policy for what the scheduler writes about volumes, on a real API server."""

import random
import secrets
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from http import HTTPStatus
from typing import Any, Final

import pytest

from e2e.control_plane import provider
from e2e.control_plane.admin import Access, Admin, Json
from e2e.control_plane.cluster import ControlPlane
from e2e.programs import manifests
from e2e.support import policy_site
from scheduler.kube.port import NodeForClaim, VolumeForClaim
from scheduler.kube.rest.client import KubeCluster
from scheduler.kube.rest.client_config.connect import connect
from tests.support.volumes import SELECTED_NODE, claim, volume

POLICY: Final = "gpushare-scheduler-volumes"
VOLUMES: Final = "/api/v1/persistentvolumes"
BOUND_BY: Final = "pv.kubernetes.io/bound-by-controller"
HELD: Final = {"namespace": "default", "name": "others", "uid": "1"}


class Site:
    """A volume without a claim, one that is kept by name, one that a claim has, and a claim.

    client: with the scheduler's token. at: paths by name.
    """

    def __init__(self, admin: Admin, client: Admin, token: str, namespace: str, suffix: str) -> None:
        self.admin, self.client, self.token, self.namespace = admin, client, token, namespace
        self.claims = f"/api/v1/namespaces/{namespace}/persistentvolumeclaims"
        self.names = {name: f"{name}-{suffix}" for name in ("free", "kept", "held")}
        self.at = {name: f"{VOLUMES}/{full}" for name, full in self.names.items()} | {"claim": f"{self.claims}/data"}


@pytest.fixture
async def site(cluster: provider.Target, admin: Admin, namespace: str) -> AsyncIterator[Site]:
    documents = policy_site.optional("limit-volume-writes.yaml")
    async with AsyncExitStack() as undo:
        rbac = manifests.documents("rbac.yaml")
        undo.push_async_callback(manifests.remove, admin, *rbac)
        await manifests.apply(admin, *rbac)
        token = await manifests.token(admin, manifests.SCHEDULER, None)
        access = cluster.access()
        client = await undo.enter_async_context(Admin(Access(access.url, access.tls, f"Bearer {token}")))
        made = Site(admin, client, token, namespace, secrets.token_hex(3))
        kept = {"namespace": namespace, "name": "data"}
        for name, reference in (("free", None), ("kept", kept), ("held", HELD)):
            more: dict[str, Any] = {} if reference is None else {"claimRef": reference}
            await admin.create(VOLUMES, _volume(made.names[name], more))
            undo.push_async_callback(admin.delete, made.at[name])
        wanted = claim("data", class_name="none")
        wanted["metadata"]["namespace"] = namespace
        await admin.create(made.claims, wanted)
        await policy_site.apply(admin, documents)
        undo.push_async_callback(policy_site.remove, admin, documents)
        probe = {"metadata": {"labels": {"tried": "out"}}}
        await policy_site.until(POLICY, lambda: client.patch(f"{made.at['free']}?dryRun=All", probe), refused=True)
        yield made


def _volume(name: str, more: dict[str, Any]) -> Json:
    made = volume(name, class_name="none", hostPath={"path": "/nowhere"}, **more)
    made["spec"]["persistentVolumeReclaimPolicy"] = "Retain"
    return made


async def test_what_the_scheduler_decides_is_written(site: Site, control_plane: ControlPlane) -> None:
    connection = await connect({}, kubeconfig=control_plane.kubeconfig_for(site.token, "scheduler"))
    client = KubeCluster(connection, random.Random(1))  # noqa: S311 - a seed, no secret
    wanted = (await site.admin.get(site.at["claim"])).body["metadata"]
    try:
        for name in ("free", "kept"):
            version = (await site.admin.get(site.at[name])).body["metadata"]["resourceVersion"]
            await client.bind_volume(
                VolumeForClaim(site.names[name], version, site.namespace, "data", wanted["uid"], kept=name == "kept")
            )
        await client.select_node(NodeForClaim(site.namespace, "data", wanted["resourceVersion"], "a"))
    finally:
        await client.close()

    found = [(await site.admin.get(site.at[name])).body for name in ("free", "kept", "claim")]
    assert [one["spec"]["claimRef"]["uid"] for one in found[:2]] == [wanted["uid"]] * 2
    assert found[0]["metadata"]["annotations"][BOUND_BY] == "yes"
    assert found[2]["metadata"]["annotations"][SELECTED_NODE] == "a"


@pytest.mark.parametrize(
    ("name", "body", "message"),
    [
        pytest.param("free", {"spec": {"capacity": {"storage": "9Ti"}}}, "spec.capacity", id="size"),
        pytest.param("free", {"spec": {"accessModes": ["ReadWriteMany"]}}, "spec.accessModes", id="access modes"),
        pytest.param("free", {"spec": {"persistentVolumeReclaimPolicy": "Delete"}}, "Policy", id="reclaim policy"),
        pytest.param("free", {"metadata": {"labels": {"a": "b"}}}, "metadata.labels", id="label"),
        pytest.param("free", {"metadata": {"finalizers": ["example.com/f"]}}, "metadata.finalizers", id="finalizer"),
        pytest.param("free", {"metadata": {"annotations": {"a": "b"}}}, "annotation a", id="annotation"),
        pytest.param("held", {"spec": {"claimRef": {"name": "mine"}}}, "takes no volume", id="another's volume"),
        pytest.param("held", {"spec": {"claimRef": None}}, "takes no volume", id="another's volume, given back"),
        pytest.param("kept", {"spec": {"claimRef": {"name": "mine", "uid": "2"}}}, "takes no volume", id="kept"),
        pytest.param("claim", {"spec": {"volumeName": "mine"}}, "spec.volumeName", id="volume of a claim"),
        pytest.param("claim", {"metadata": {"annotations": {"a": "b"}}}, "annotation a", id="annotation of a claim"),
    ],
)
async def test_nothing_else_is(site: Site, name: str, body: Json, message: str) -> None:
    answer = await site.client.patch(site.at[name], body)

    assert policy_site.refuses(answer, POLICY), answer
    assert message in answer.body["message"]


async def test_others_write_as_before(site: Site) -> None:
    answer = await site.admin.patch(site.at["free"], {"metadata": {"labels": {"a": "b"}}})

    assert answer.status == HTTPStatus.OK, answer


@pytest.mark.parametrize("document", policy_site.optional("limit-volume-writes.yaml"), ids=lambda one: one["kind"])
async def test_the_api_server_accepts_the_policy_to_the_letter(admin: Admin, document: Json) -> None:
    answer = await policy_site.dry_run(admin, document)

    assert answer.status == HTTPStatus.CREATED, answer.body
