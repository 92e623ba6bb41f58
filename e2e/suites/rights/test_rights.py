"""The scheduler under exactly the rights of deploy/manifests: enough for all that it does, and for nothing else."""

import asyncio
import copy
from collections.abc import AsyncIterator, Iterator
from http import HTTPStatus
from pathlib import Path

import aiohttp
import pytest

from e2e.control_plane import pinned, provider
from e2e.control_plane.admin import Access, Admin, ApiResponse, Json
from e2e.control_plane.cluster import ControlPlane
from e2e.programs import manifests
from e2e.programs.scheduler_process import SchedulerProcess
from e2e.support.gpu_site import gpu_pod, gpu_site

POD = "/api/v1/namespaces/default/pods/p"
KUBE_SYSTEM = "/api/v1/namespaces/kube-system"
RBAC = manifests.documents("rbac.yaml")
(CLUSTER_ROLE,) = (document for document in RBAC if document["kind"] == "ClusterRole")


@pytest.fixture(scope="module")
def account_for_all(cluster: provider.Target) -> Iterator[None]:
    """Removes the ServiceAccount at the end: a token is of one ServiceAccount, not of one that has its name."""

    async def remove() -> None:
        async with Admin(cluster.access()) as admin:
            await manifests.remove(admin, *RBAC)

    yield
    asyncio.run(remove())


@pytest.fixture
async def granted(account_for_all: None, admin: Admin) -> None:
    """The ServiceAccount with exactly its rights."""
    del account_for_all
    await manifests.apply(admin, *RBAC)


@pytest.fixture
async def kubeconfig(granted: None, control_plane: ControlPlane, admin: Admin) -> Path:
    """Of the ServiceAccount."""
    del granted
    return control_plane.kubeconfig_for(await manifests.token(admin), "service-account")


@pytest.fixture
async def account(granted: None, cluster: provider.Target, admin: Admin) -> AsyncIterator[Admin]:
    """A client that is the ServiceAccount."""
    del granted
    access = cluster.access()
    own = Access(access.url, access.tls, f"Bearer {await manifests.token(admin)}")
    async with Admin(own) as client:
        yield client


def without(verb: str, resource: str) -> Json:
    """The ClusterRole less one right."""
    role = copy.deepcopy(CLUSTER_ROLE)
    (rule,) = (rule for rule in role["rules"] if resource in rule["resources"])
    rule["resources"].remove(resource)
    rest = {"apiGroups": rule["apiGroups"], "resources": [resource], "verbs": sorted({*rule["verbs"]} - {verb})}
    role["rules"] = [rule for rule in (*role["rules"], rest) if rule["resources"] and rule["verbs"]]
    return role


async def test_it_schedules_and_writes_events_and_lacks_no_right(
    kubeconfig: Path, admin: Admin, namespace: str, tmp_path: Path
) -> None:
    with SchedulerProcess(kubeconfig, tmp_path) as scheduler:
        await scheduler.ready()
        async with gpu_site(admin, namespace, scheduler) as site:
            await site.nodes(a=[16])
            await site.pod("fits", 3)
            await site.pod("does-not", 17)
            bound = await site.bound("fits")
            events = [await site.event("fits", "Scheduled"), await site.event("does-not", "FailedScheduling")]
            message = await site.unschedulable("does-not")
        version = await scheduler.said("kubernetes.version")

    assert bound["spec"]["nodeName"] == "a"
    assert [event["type"] for event in events] == ["Normal", "Warning"]
    assert "wants 17" in message
    assert (version["program"], version["version"]) == ("kube-apiserver", pinned.kubernetes_version())
    assert [line for line in scheduler.lines() if line["level"] in {"warning", "error"}] == []


@pytest.mark.parametrize(
    "right",
    [
        "create pods/binding",
        "patch pods/status",
        "delete pods",
        "list poddisruptionbudgets.policy",
        "create events.events.k8s.io",
        "watch nodes",
        "get pods",
    ],
)
async def test_a_right_that_is_missing_is_named(kubeconfig: Path, admin: Admin, tmp_path: Path, right: str) -> None:
    verb, _, resource = right.partition(" ")
    await manifests.apply(admin, without(verb, resource.partition(".")[0]))

    with SchedulerProcess(kubeconfig, tmp_path) as scheduler:
        said = await scheduler.said("rights.missing")

    assert (said["missing"], said["hint"]) == ([right], "apply deploy/manifests/rbac.yaml")


async def test_pods_wait_for_the_right_to_bind_them_and_are_bound_when_it_is_there(
    kubeconfig: Path, admin: Admin, namespace: str, tmp_path: Path
) -> None:
    await manifests.apply(admin, without("create", "pods/binding"))
    with SchedulerProcess(kubeconfig, tmp_path) as scheduler:
        await scheduler.ready()
        async with gpu_site(admin, namespace, scheduler) as site:
            await site.nodes(a=[16])
            await site.pod("p", 3)
            said = await scheduler.said("bind.forbidden", pod=f"{namespace}/p")
            await manifests.apply(admin, CLUSTER_ROLE)
            await site.bound("p")

    assert "grant create on pods/binding" in said["hint"]


FORBIDDEN = [
    pytest.param("PUT", POD, id="update a pod"),
    pytest.param("PATCH", POD, id="patch a pod"),
    pytest.param("DELETE", "/api/v1/namespaces/default/pods", id="delete all pods"),
    pytest.param("POST", "/api/v1/namespaces/default/pods", id="create a pod"),
    pytest.param("PUT", f"{POD}/status", id="replace a pod's status"),
    pytest.param("POST", f"{POD}/eviction", id="evict a pod"),
    pytest.param("POST", f"{POD}/exec?command=id", id="run a command in a pod"),
    pytest.param("GET", f"{POD}/log", id="read a pod's log"),
    pytest.param("PATCH", f"{POD}/ephemeralcontainers", id="add an ephemeral container"),
    pytest.param("PATCH", f"{POD}/resize", id="resize a pod"),
    pytest.param("GET", "/api/v1/nodes/n", id="read one node"),
    pytest.param("PATCH", "/api/v1/nodes/n", id="patch a node"),
    pytest.param("PATCH", "/api/v1/nodes/n/status", id="patch a node's status"),
    pytest.param("POST", "/api/v1/nodes", id="create a node"),
    pytest.param("DELETE", "/api/v1/nodes/n", id="delete a node"),
    pytest.param("GET", "/api/v1/nodes/n/proxy/pods", id="reach a kubelet"),
    pytest.param("GET", "/api/v1/secrets", id="list all secrets"),
    pytest.param("GET", f"{KUBE_SYSTEM}/secrets", id="list secrets"),
    pytest.param("GET", f"{KUBE_SYSTEM}/secrets/s", id="read a secret"),
    pytest.param("GET", "/api/v1/configmaps", id="list all ConfigMaps"),
    pytest.param("GET", "/api/v1/namespaces/default/configmaps", id="list ConfigMaps elsewhere"),
    pytest.param("GET", f"{KUBE_SYSTEM}/configmaps/c", id="read one ConfigMap"),
    pytest.param("PATCH", f"{KUBE_SYSTEM}/configmaps/c", id="patch a ConfigMap"),
    pytest.param("POST", f"{KUBE_SYSTEM}/configmaps", id="create a ConfigMap"),
    pytest.param("POST", f"{KUBE_SYSTEM}/serviceaccounts/gpushare-scheduler/token", id="issue itself a token"),
    pytest.param("GET", "/apis/events.k8s.io/v1/events", id="list events"),
    pytest.param("DELETE", "/apis/events.k8s.io/v1/namespaces/default/events/e", id="delete an event"),
    pytest.param("POST", "/api/v1/namespaces/default/events", id="create an old event"),
    pytest.param("DELETE", "/api/v1/persistentvolumes/p", id="delete a volume"),
    pytest.param("DELETE", "/api/v1/namespaces/default/persistentvolumeclaims/p", id="delete a claim"),
    pytest.param("GET", "/api/v1/namespaces/default/services/s", id="read one Service"),
    pytest.param("PATCH", "/apis/apps/v1/namespaces/default/replicasets/r", id="patch a ReplicaSet"),
    pytest.param("GET", "/apis/apps/v1/deployments", id="list Deployments"),
    pytest.param("PATCH", "/apis/apps/v1/namespaces/kube-system/deployments/d", id="patch a Deployment"),
    pytest.param("POST", "/apis/coordination.k8s.io/v1/namespaces/default/leases", id="create a Lease elsewhere"),
    pytest.param(
        "PATCH", "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases/kube-scheduler", id="take another Lease"
    ),
    pytest.param("GET", "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases", id="list all Leases"),
    pytest.param(
        "DELETE", "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases/gpushare-scheduler", id="delete its Lease"
    ),
    pytest.param(
        "PATCH", "/apis/rbac.authorization.k8s.io/v1/clusterroles/gpushare-scheduler", id="give itself a right"
    ),
    pytest.param("DELETE", "/api/v1/namespaces/default", id="delete a namespace"),
]


async def asked(account: Admin, method: str, path: str) -> ApiResponse:
    """What the API server answers; whether it is allowed is judged before the body is."""
    match method:
        case "GET":
            return await account.get(path)
        case "DELETE":
            return await account.delete(path)
        case "POST":
            return await account.post(path, {})
        case "PUT":
            return await account.put(path, {})
    return await account.patch(path, {})


@pytest.mark.parametrize(("method", "path"), FORBIDDEN)
async def test_what_it_does_not_need_is_forbidden(account: Admin, method: str, path: str) -> None:
    status, body = await asked(account, method, path)

    assert status == HTTPStatus.FORBIDDEN
    assert f'User "system:serviceaccount:{manifests.NAMESPACE}:{manifests.SCHEDULER}" cannot' in body["message"]


PREEMPTION = [
    pytest.param("DELETE", POD, HTTPStatus.NOT_FOUND, id="delete a pod"),
    pytest.param("GET", "/apis/policy/v1/poddisruptionbudgets", HTTPStatus.OK, id="list disruption budgets"),
]


@pytest.mark.parametrize(("method", "path", "expected"), PREEMPTION)
async def test_what_preemption_needs_is_granted(account: Admin, method: str, path: str, expected: HTTPStatus) -> None:
    status, _ = await asked(account, method, path)

    assert status == expected


@pytest.mark.parametrize(
    "document",
    [
        pytest.param(document, id=f"{document['kind']} in {file}")
        for file in manifests.installed()
        for document in manifests.documents(file)
    ],
)
async def test_the_api_server_accepts_every_manifest_to_the_letter(admin: Admin, document: Json) -> None:
    answer = await manifests.dry_run(admin, document)

    assert answer.status == HTTPStatus.CREATED, answer.body


async def test_the_pod_of_the_deployment_keeps_to_the_restricted_standard(admin: Admin, namespace: str) -> None:
    labels = {"pod-security.kubernetes.io/enforce": "restricted"}
    await admin.patch(f"/api/v1/namespaces/{namespace}", {"metadata": {"labels": labels}})
    (deployment,) = manifests.documents("deployment.yaml")
    template = deployment["spec"]["template"]
    # Only kube-system may use the class.
    del template["spec"]["priorityClassName"]
    pods = f"/api/v1/namespaces/{namespace}/pods?dryRun=All"

    # The API server takes the label into use a little after it was written.
    async with asyncio.timeout(15):
        while "violates PodSecurity" not in await refusal(admin, pods):  # noqa: ASYNC110 - nothing tells
            await asyncio.sleep(0.05)
    ours = await admin.post(pods, {"metadata": {"name": "p"}, "spec": template["spec"]})

    assert ours.status == HTTPStatus.CREATED, ours.body


async def refusal(admin: Admin, path: str) -> str:
    """What the API server says of a pod that keeps to no standard; "" when it takes it."""
    message: str = (await admin.post(path, gpu_pod("q", 1))).body.get("message", "")
    return message


async def test_its_requests_are_served_at_the_level_that_the_flow_schema_names(
    account: Admin, admin: Admin, cluster: provider.Target
) -> None:
    schemas = manifests.documents("flow-schema.yaml")
    for schema in schemas:
        await manifests.apply(admin, schema)
    (general,) = (
        schema for schema in schemas if schema["spec"]["priorityLevelConfiguration"]["name"] == "workload-high"
    )
    path = f"{manifests.collection(general)}/{general['metadata']['name']}"
    uid = (await admin.get(path)).body["metadata"]["uid"]

    async with asyncio.timeout(15):
        await until_served_by(uid, cluster.access(), await manifests.token(admin))

    for schema in schemas:
        await manifests.remove(admin, schema)
    assert (await account.get("/api/v1/nodes")).status == HTTPStatus.OK


async def until_served_by(uid: str, access: Access, token: str) -> None:
    """The API server takes a new schema into use a little after it has been made."""
    while True:
        if await served_by(access, token) == uid:
            return
        await asyncio.sleep(0.05)


async def served_by(access: Access, token: str) -> str:
    """Uid of the FlowSchema that a list of nodes falls under."""
    headers = {"Authorization": f"Bearer {token}"}
    async with (
        aiohttp.ClientSession(access.url, headers=headers) as session,
        session.get("/api/v1/nodes", ssl=access.tls) as response,
    ):
        return response.headers["X-Kubernetes-PF-FlowSchema-UID"]
