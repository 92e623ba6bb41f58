"""The admission policies on a real API server: what they refuse, what they let through, and how soon."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from http import HTTPStatus

import pytest

from config.protocol import names
from deviceplugin.node.publisher import NodeApi
from e2e.control_plane import provider
from e2e.control_plane.admin import Admin, ApiResponse, Json, done
from e2e.control_plane.cluster import ControlPlane
from e2e.programs import manifests
from e2e.suites.rights import policy_cases, request_cases
from e2e.suites.rights.policy_cases import Case
from e2e.support import policy_site
from e2e.support.gpu_site import gpu_pod
from e2e.support.policy_site import PolicySite
from scheduler.kube.port import PodKey
from scheduler.kube.rest.client_config.connect import connect

SOON_S = 5.0
DRY_RUN = "/api/v1/namespaces/default/pods?dryRun=All"
PROBE = policy_site.pod("probe", annotations={names.MEM_IDX: "0"})
PROBE_OF_ENVIRONMENT = policy_site.pod("probe")
PROBE_OF_THE_SCHEDULER = policy_site.pod("probe", scheduler="")
PROBE_OF_KEYS = gpu_pod("probe", 1, annotations={"gpushare/exlusive": "true"})
PROBE_OF_ENVIRONMENT["spec"]["containers"][0]["env"] = [{"name": "NVIDIA_VISIBLE_DEVICES", "value": "all"}]


def limited_to(resource: str) -> Json:
    """A pod whose container has a limit of that name."""
    return gpu_pod("probe", 1, containers=[{"name": "c", "image": "none", "resources": {"limits": {resource: "2"}}}])


def trying(client: Admin, probe: Json) -> Callable[[], Awaitable[ApiResponse]]:
    """Creates a pod that is judged and not kept."""
    return lambda: client.post(DRY_RUN, probe)


@contextmanager
def in_force(cluster: provider.Target, documents: Sequence[Json], policy: str, probe: Json) -> Iterator[float]:
    """The policies, observed to refuse the probe; gone again, observed too. Yields the seconds that the first took."""

    async def start() -> float:
        async with Admin(cluster.access()) as admin:
            await policy_site.apply(admin, documents)
            return await policy_site.until(policy, trying(admin, probe), refused=True)

    async def end() -> None:
        async with Admin(cluster.access()) as admin:
            await policy_site.remove(admin, documents)
            await policy_site.until(policy, trying(admin, probe), refused=False)

    try:
        yield asyncio.run(start())
    finally:
        asyncio.run(end())


@pytest.fixture(scope="module")
def accounts(cluster: provider.Target) -> Iterator[None]:
    """Everybody whom the policies tell apart, for the whole module: a token outlives no ServiceAccount."""

    async def each(act: Callable[[Admin, Json], Awaitable[None]], documents: Sequence[Json]) -> None:
        async with Admin(cluster.access()) as admin:
            for document in documents:
                await act(admin, document)

    asyncio.run(each(manifests.apply, policy_site.accounts()))
    yield
    asyncio.run(each(manifests.remove, policy_site.accounts()[::-1]))


@pytest.fixture(scope="module")
def in_force_after_s(cluster: provider.Target, accounts: None) -> Iterator[float]:
    """The policies as installed. Seconds from their writing to the first refusal."""
    del accounts
    with in_force(cluster, policy_site.policies(), policy_site.ALLOCATION, PROBE) as after_s:
        yield after_s


@pytest.fixture(scope="module")
def in_environment_mode(cluster: provider.Target, in_force_after_s: float) -> Iterator[None]:
    """The optional policy beside the others."""
    del in_force_after_s
    documents = policy_site.optional("refuse-visible-devices.yaml")
    with in_force(cluster, documents, policy_site.VISIBLE_DEVICES, PROBE_OF_ENVIRONMENT):
        yield


@pytest.fixture(scope="module")
def by_the_scheduler_alone(cluster: provider.Target, in_force_after_s: float) -> Iterator[None]:
    """The policy of the scheduler's name beside the others."""
    del in_force_after_s
    with in_force(cluster, policy_site.scheduler_name(), policy_site.SCHEDULER_NAME, PROBE_OF_THE_SCHEDULER):
        yield


@pytest.fixture
async def site(
    in_force_after_s: float, admin: Admin, cluster: provider.Target, namespace: str
) -> AsyncIterator[PolicySite]:
    del in_force_after_s
    async with policy_site.policy_site(admin, cluster.access(), namespace) as made:
        for path, policy in (
            ("/api/v1/nodes/{own}", policy_site.PLUGIN_NODES),
            ("{pods}/here", policy_site.PLUGIN_PODS),
        ):
            await policy_site.until(
                policy,
                lambda at=path: made.try_out("plugin", at, policy_cases.OTHER_KEY),  # type: ignore[misc]
                refused=True,
            )
        yield made


@pytest.fixture
async def migrating(site: PolicySite, admin: Admin) -> AsyncIterator[PolicySite]:
    """The policies with the original's accounts in their lists."""

    def by_the_extender() -> Awaitable[ApiResponse]:
        return site.try_out(policy_site.OLD_EXTENDER, "{pods}/here", names.MEM_IDX)

    await policy_site.apply(admin, policy_site.migrating())
    await policy_site.until(policy_site.ALLOCATION, by_the_extender, refused=False)
    yield site
    await policy_site.apply(admin, policy_site.policies())
    await policy_site.until(policy_site.ALLOCATION, by_the_extender, refused=True)


async def show(site: PolicySite, case: Case) -> None:
    """Make the write of the case, and hold what came of it against the table."""
    answer = await site.send(case.who, case.method, case.path, case.body)

    if case.refused_by:
        assert any(policy_site.refuses(answer, policy) for policy in case.refused_by), answer
        assert site.filled(case.message) in answer.body["message"]
        return
    assert answer.status in {HTTPStatus.OK, HTTPStatus.CREATED}, answer
    found = (await site.read(case.at))["metadata"].get("annotations", {})
    assert {key: found.get(key) for key in case.then} == case.then


@pytest.mark.parametrize("case", policy_cases.parameters(policy_cases.ALLOCATION_CASES))
async def test_only_the_scheduler_writes_what_the_scheduler_decided(site: PolicySite, case: Case) -> None:
    await show(site, case)


@pytest.mark.parametrize("case", policy_cases.parameters(policy_cases.PLUGIN_POD_CASES))
async def test_the_device_plugin_marks_pods_of_its_node_and_does_nothing_else_to_them(
    site: PolicySite, case: Case
) -> None:
    await show(site, case)


@pytest.mark.parametrize("case", policy_cases.parameters(policy_cases.NODE_CASES))
async def test_the_device_plugin_announces_on_its_node_and_does_nothing_else_to_it(
    site: PolicySite, case: Case
) -> None:
    await show(site, case)


@pytest.mark.parametrize("case", policy_cases.parameters(policy_cases.MIGRATION_CASES))
async def test_the_original_writes_what_it_has_to_while_migrating(migrating: PolicySite, case: Case) -> None:
    await show(migrating, case)


@pytest.mark.parametrize("case", policy_cases.parameters(policy_cases.ENVIRONMENT_CASES))
async def test_gpu_pods_of_environment_mode_choose_no_cards_themselves(
    in_environment_mode: None, site: PolicySite, case: Case
) -> None:
    del in_environment_mode
    await show(site, case)


@pytest.mark.parametrize("case", policy_cases.parameters(request_cases.REQUEST_CASES))
async def test_what_a_pod_asks_of_the_cards_stays_once_it_has_a_node(site: PolicySite, case: Case) -> None:
    await show(site, case)


@pytest.mark.parametrize("case", policy_cases.parameters(request_cases.SCHEDULER_NAME_CASES))
async def test_pods_that_ask_for_gpu_memory_go_through_the_scheduler(
    by_the_scheduler_alone: None, site: PolicySite, case: Case
) -> None:
    del by_the_scheduler_alone
    await show(site, case)


@pytest.fixture(scope="module")
def without_unknown_keys(cluster: provider.Target) -> Iterator[None]:
    """The policy of misspelled keys."""
    with in_force(cluster, policy_site.optional("refuse-unknown-keys.yaml"), policy_site.UNKNOWN_KEYS, PROBE_OF_KEYS):
        yield


@pytest.mark.parametrize(
    ("pod", "refused"),
    [
        pytest.param(PROBE_OF_KEYS, "unknown, or not read there: gpushare/exlusive", id="a misspelled annotation"),
        pytest.param(limited_to("aliyun.com/gpu-cout"), "read there: aliyun.com/gpu-cout", id="an unknown resource"),
        pytest.param(limited_to(names.GPU_COUNT), f"not read there: {names.GPU_COUNT}", id="a number of cards as one"),
        pytest.param(
            gpu_pod("probe", 1, annotations={names.EXCLUSIVE: "true", names.CARD_POLICY: "spread"}), "", id="right"
        ),
        pytest.param(policy_site.pod("probe", labels={names.GPU_COUNT: "1", "app": "gpu"}), "", id="a label"),
    ],
)
async def test_misspelled_keys_are_refused(without_unknown_keys: None, admin: Admin, pod: Json, refused: str) -> None:
    del without_unknown_keys
    answer = await admin.post(DRY_RUN, pod)

    assert policy_site.refuses(answer, policy_site.UNKNOWN_KEYS) is bool(refused)
    assert refused in answer.body.get("message", "")


async def test_while_migrating_the_pods_of_kube_scheduler_are_let_through(
    by_the_scheduler_alone: None, site: PolicySite, admin: Admin
) -> None:
    del by_the_scheduler_alone
    await policy_site.apply(admin, policy_site.scheduler_name(migrating=True))
    await policy_site.until(policy_site.SCHEDULER_NAME, trying(admin, PROBE_OF_THE_SCHEDULER), refused=False)
    answer = await site.send("somebody", "POST", "{pods}", policy_site.pod("new", scheduler=""))
    await policy_site.apply(admin, policy_site.scheduler_name())
    await policy_site.until(policy_site.SCHEDULER_NAME, trying(admin, PROBE_OF_THE_SCHEDULER), refused=True)

    assert answer.status == HTTPStatus.CREATED, answer


async def test_the_device_plugin_makes_no_cordon(site: PolicySite) -> None:
    await site.clients["somebody"].patch(
        site.filled("/api/v1/nodes/{own}"), {"metadata": {"annotations": {names.CORDON: None}}}
    )

    answer = await site.send("plugin", "PATCH", "/api/v1/nodes/{own}", policy_cases.annotations(cordon="GPU-0"))

    assert policy_site.refuses(answer, policy_site.PLUGIN_NODES), answer


async def test_the_client_of_the_device_plugin_needs_no_more_than_it_may(
    site: PolicySite, admin: Admin, control_plane: ControlPlane
) -> None:
    runs_in = await site.read(f"/api/v1/namespaces/{manifests.NAMESPACE}/pods/plugin-{{own}}")
    token = await manifests.token(admin, manifests.PLUGIN, runs_in)
    connection = await connect({}, kubeconfig=control_plane.kubeconfig_for(token, "plugin"))
    here = (await site.read("{pods}/here"))["metadata"]

    api = NodeApi(connection, site.places["own"])
    try:
        await api.annotate({names.INVENTORY: "new", names.CORDON: "GPU-0"})
        await api.set_capacity({names.GPU_COUNT: 2, names.GPU_CORE: 200})
        await api.mark_assigned(PodKey(site.namespace, "here", here["uid"]), {names.MEM_ASSIGNED: "true"})
    finally:
        await api.close()

    node = await site.read("/api/v1/nodes/{own}")
    assert (node["metadata"]["annotations"][names.INVENTORY], node["status"]["capacity"][names.GPU_COUNT]) == (
        "new",
        "2",
    )


@pytest.mark.parametrize("capacity", ["0", "1"])
async def test_what_the_kubelet_leaves_of_a_plugin_may_be_taken_off_the_node_where_it_is_0(
    site: PolicySite, admin: Admin, capacity: str
) -> None:
    """docs/develop/decisions/0082."""
    status = site.filled("/api/v1/nodes/{own}/status")

    def amounts(capacity: str | None, allocatable: str | None) -> Json:
        return {"status": {"capacity": {names.GPU_MEM: capacity}, "allocatable": {names.GPU_MEM: allocatable}}}

    before = (await site.read("/api/v1/nodes/{own}"))["status"]
    done(await admin.patch(status, amounts(capacity, "0")))
    try:
        answer = await site.send("plugin", "PATCH", "/api/v1/nodes/{own}/status", amounts(None, None))
        left = (await site.read("/api/v1/nodes/{own}"))["status"]
    finally:
        done(
            await admin.patch(status, amounts(before["capacity"][names.GPU_MEM], before["allocatable"][names.GPU_MEM]))
        )

    assert policy_site.refuses(answer, policy_site.PLUGIN_NODES) is (capacity != "0")
    assert (names.GPU_MEM in left["capacity"], names.GPU_MEM in left["allocatable"]) == (capacity != "0",) * 2


def test_a_new_policy_is_in_force_soon(in_force_after_s: float) -> None:
    assert in_force_after_s < SOON_S


async def test_a_token_for_a_pod_names_the_node_of_the_pod(site: PolicySite) -> None:
    review = {"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"}
    path = "/apis/authentication.k8s.io/v1/selfsubjectreviews"
    said = [
        (await site.clients[who].post(path, review)).body["status"]["userInfo"]["extra"]
        for who in ("plugin", "plugin without a node")
    ]

    key = "authentication.kubernetes.io/node-name"
    assert [extra.get(key) for extra in said] == [[site.places["own"]], None]


@pytest.mark.parametrize(
    "document",
    [
        pytest.param(document, id=f"{document['kind']} {document['metadata']['name']}")
        for document in (
            *policy_site.policies(),
            *policy_site.scheduler_name(),
            *policy_site.optional("refuse-visible-devices.yaml"),
        )
    ],
)
async def test_the_api_server_accepts_every_policy_to_the_letter(admin: Admin, document: Json) -> None:
    answer = await policy_site.dry_run(admin, document)

    assert answer.status == HTTPStatus.CREATED, answer.body


async def test_the_api_server_accepts_the_daemon_set_to_the_letter(admin: Admin) -> None:
    (document,) = manifests.documents("device-plugin-daemonset.yaml")
    path = f"/apis/apps/v1/namespaces/{manifests.NAMESPACE}/daemonsets?dryRun=All&fieldValidation=Strict"

    answer = await admin.post(path, document)

    assert answer.status == HTTPStatus.CREATED, answer.body
