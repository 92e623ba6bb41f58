"""The chart on a real API server with the controllers of Kubernetes: installed, changed, taken back and removed."""

import json
from collections.abc import Iterator
from http import HTTPStatus
from typing import Final

import pytest

from e2e.control_plane.admin import Admin, ApiResponse, Json
from e2e.deploy.chart.cluster_state import everything, key, until
from e2e.deploy.chart.helm import CHART, IMAGE, NAMESPACE, RELEASE, SET_IMAGE, Helm
from e2e.deploy.chart.variants import VARIANTS
from e2e.programs import manifests
from tests.support.documents.api_versions import OF_OPENSHIFT, Kind

IN: Final = ("--namespace", NAMESPACE)
INSTALL: Final = ("install", RELEASE, str(CHART), *SET_IMAGE)
DEPLOYMENT: Final = f"/apis/apps/v1/namespaces/{NAMESPACE}/deployments/{RELEASE}"
OURS: Final = "gpushare-scheduler"


async def replicas(admin: Admin) -> int:
    found: int = (await admin.get(DEPLOYMENT)).body["spec"]["replicas"]
    return found


async def test_a_release_is_installed_changed_taken_back_and_leaves_nothing(helm_there: Helm, operator: Admin) -> None:
    before = await everything(operator)
    said = helm_there(*INSTALL, *IN)
    there = await everything(operator) - before
    first = await replicas(operator)
    helm_there("upgrade", RELEASE, str(CHART), *SET_IMAGE, *IN, values={"scheduler": {"replicas": 3}})
    upgraded = await replicas(operator)
    helm_there("rollback", RELEASE, "1", *IN)
    taken_back = await replicas(operator)
    helm_there("uninstall", RELEASE, *IN)

    assert there >= {key(document) for document in helm_there.objects({})}
    assert (first, upgraded, taken_back) == (2, 3, 2)
    assert "kubectl label node NODE gpushare=true" in said

    async def left() -> set[tuple[str, str, str]]:
        return await everything(operator) - before

    await until(left, set())


async def test_the_api_server_accepts_every_object_of_every_variant_to_the_letter(
    helm_there: Helm, prometheus_operator: None, operator: Admin
) -> None:
    del prometheus_operator
    rendered = [one for values in VARIANTS.values() for one in helm_there.objects(values)]
    # OpenShift's own server alone has its kinds.
    documents = [one for one in rendered if Kind(one["apiVersion"], one["kind"]) not in OF_OPENSHIFT]
    distinct = {json.dumps(one, sort_keys=True): one for one in documents}
    for document in distinct.values():
        answer = await manifests.dry_run(operator, document)
        assert answer.status == HTTPStatus.CREATED, (key(document), answer.body)


def test_helm_itself_installs_what_a_company_sets(helm_there: Helm, prometheus_operator: None) -> None:
    """With the kinds that the API server announces, among them those of the Prometheus Operator."""
    del prometheus_operator
    values = {**IMAGE, **VARIANTS["a company"]}
    assert "kind: PodMonitor" in helm_there("install", RELEASE, str(CHART), *IN, "--dry-run=server", values=values)


@pytest.fixture(scope="module")
def named_by_default(helm_there: Helm) -> Iterator[None]:
    helm_there(*INSTALL, *IN, values=VARIANTS["a default scheduler name"])
    yield
    helm_there("uninstall", RELEASE, *IN, "--wait")


def asking(*, scheduler: str = "", node: str = "", units: int = 1, **container: object) -> Json:
    limits = {"aliyun.com/gpu-mem": str(units)} if units else {}
    spec: Json = {"containers": [{"name": "c", "image": "none", "resources": {"limits": limits}, **container}]}
    spec |= {"schedulerName": scheduler} if scheduler else {}
    spec |= {"nodeName": node} if node else {}
    return {"metadata": {"generateName": "p-"}, "spec": spec}


async def tried(operator: Admin, place: str, pod: Json) -> ApiResponse:
    return await operator.post(f"/api/v1/namespaces/{place}/pods?dryRun=All", pod)


@pytest.mark.parametrize(
    ("pod", "scheduler"),
    [
        pytest.param(asking(), OURS, id="says nothing"),
        pytest.param(asking(scheduler="default-scheduler"), OURS, id="names the default scheduler"),
        pytest.param(asking(scheduler="gpushare"), "gpushare", id="names ours by its short name"),
        pytest.param(asking(units=0), "default-scheduler", id="requests no GPU memory"),
        pytest.param(
            asking(env=[{"name": "A", "value": "1"}, {"name": "A", "value": "2"}]), OURS, id="has a variable twice"
        ),
    ],
)
async def test_pods_are_given_the_schedulers_name(
    named_by_default: None, operator: Admin, place: str, pod: Json, scheduler: str
) -> None:
    del named_by_default

    async def name() -> str:
        answer = await tried(operator, place, pod)
        return str(answer.body["spec"]["schedulerName"] if answer.status == HTTPStatus.CREATED else answer.body)

    await until(name, scheduler)


@pytest.mark.parametrize(
    ("pod", "message"),
    [
        pytest.param(
            asking(scheduler="kueue"), "schedulerName is kueue, which assigns no cards", id="another scheduler"
        ),
        pytest.param(asking(node="n"), "schedulerName is default-scheduler, which assigns no cards", id="a node"),
    ],
)
async def test_pods_that_somebody_else_places_stay_as_they_are_and_are_refused(
    named_by_default: None, operator: Admin, place: str, pod: Json, message: str
) -> None:
    del named_by_default

    async def refused() -> bool:
        answer = await tried(operator, place, pod)
        return answer.status == HTTPStatus.FORBIDDEN and message in answer.body["message"]

    await until(refused, wanted=True)
