"""The API server that is run has the features that docs/compatibility.md says of its version, and no other.

And the scheduler says what is off, and works with whatever it is told of a version, or is not.
"""

import json
from http import HTTPStatus
from pathlib import Path
from typing import Any, Final

import pytest

from e2e.control_plane import pinned
from e2e.control_plane.admin import Admin, Json, ask
from e2e.control_plane.cluster import ControlPlane
from e2e.control_plane.provider import Target
from e2e.fire.proxy import Answer, Mishap, Passing, proxy, status_body
from e2e.programs.scheduler_process import SchedulerProcess
from e2e.support.gpu_site import gpu_site
from scheduler.kube import versions
from scheduler.kube.versions import Minor

RUNS: Final = versions.minor_of(pinned.kubernetes_version())
TABLE: Final = {feature.name: feature for feature in versions.OF_THE_SCHEDULER}
REQUESTS: Final = {"requests": {"cpu": "1"}}
TERM: Final = {"topologyKey": "zone", "labelSelector": {"matchLabels": {"app": "a"}}}
SPREAD: Final = {
    **TERM,
    "maxSkew": 1,
    "whenUnsatisfiable": "DoNotSchedule",
    "minDomains": 2,
    "nodeAffinityPolicy": "Ignore",
    "nodeTaintsPolicy": "Honor",
    "matchLabelKeys": ["version"],
}


def affinity(**keys: list[str]) -> Json:
    return {"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [TERM | keys]}}


def has(feature: str) -> bool:
    """Whether the table says that the API server that is run has it."""
    assert RUNS is not None
    return TABLE[feature].on(RUNS)


def is_at_least(minor: Minor) -> bool:
    """Whether the API server that is run is of that version or newer."""
    assert RUNS is not None
    return minor <= RUNS


async def kept(admin: Admin, namespace: str, **spec: Any) -> Json:  # noqa: ANN401 - of a pod
    """What the API server keeps of a pod's spec."""
    pod = {"metadata": {"name": "p", "labels": {"version": "1"}}, "spec": {"containers": [container()]} | spec}
    made = await admin.create(f"/api/v1/namespaces/{namespace}/pods", pod)
    found: Json = made["spec"]
    return found


def container(**more: object) -> Json:
    return {"name": "c", "image": "none", **more}


async def test_pod_level_resources(admin: Admin, namespace: str) -> None:
    assert ("resources" in await kept(admin, namespace, resources=REQUESTS)) is has("PodLevelResources")


@pytest.mark.parametrize("keys", ["matchLabelKeys", "mismatchLabelKeys"])
async def test_label_keys_of_pod_affinity_come_into_the_selector(admin: Admin, namespace: str, keys: str) -> None:
    spec = await kept(admin, namespace, affinity=affinity(**{keys: ["version"]}))
    (term,) = spec["affinity"]["podAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]

    wanted = {"key": "version", "operator": "In" if keys == "matchLabelKeys" else "NotIn", "values": ["1"]}
    on = has("MatchLabelKeysInPodAffinity")
    assert term["labelSelector"].get("matchExpressions") == ([wanted] if on else None)


async def test_every_field_of_a_topology_spread_constraint(admin: Admin, namespace: str) -> None:
    (constraint,) = (await kept(admin, namespace, topologySpreadConstraints=[SPREAD]))["topologySpreadConstraints"]

    assert {key: constraint[key] for key in SPREAD if key != "labelSelector"} == {
        key: value for key, value in SPREAD.items() if key != "labelSelector"
    }


async def test_gates_and_sidecars(admin: Admin, namespace: str) -> None:
    helper = container(restartPolicy="Always") | {"name": "helper"}
    spec = await kept(admin, namespace, schedulingGates=[{"name": "x/y"}], initContainers=[helper])

    assert spec["schedulingGates"] == [{"name": "x/y"}]
    assert spec["initContainers"][0]["restartPolicy"] == "Always"


async def test_a_resize_in_place(admin: Admin, namespace: str) -> None:
    await kept(admin, namespace, containers=[container(resources=REQUESTS)])
    path = f"/api/v1/namespaces/{namespace}/pods/p/resize"
    bigger = {"spec": {"containers": [container(resources={"requests": {"cpu": "2"}})]}}

    answer = await admin.patch(path, bigger)

    assert (answer.status == HTTPStatus.OK) is is_at_least(Minor(1, 33))


async def test_streamed_lists(cluster: Target) -> None:
    query = "watch=true&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true"
    answer = ask(cluster.access(), f"/api/v1/nodes?{query}&timeoutSeconds=1")

    assert (answer.status == HTTPStatus.OK) is has("WatchList")


async def test_the_interfaces_that_the_manifests_are_written_in(admin: Admin) -> None:
    admission = (await admin.get("/apis/admissionregistration.k8s.io/v1")).body["resources"]
    flow = await admin.get("/apis/flowcontrol.apiserver.k8s.io/v1")

    assert ("validatingadmissionpolicies" in {each["name"] for each in admission}) is has("ValidatingAdmissionPolicy")
    assert (flow.status == HTTPStatus.OK) is is_at_least(Minor(1, 29))


def answering(status: int, body: object) -> Mishap:
    async def answer(_: Passing) -> Answer:
        return Answer(status, {"Content-Type": "application/json"}, json.dumps(body).encode())

    return answer


async def never(passing: Passing) -> Answer:
    await passing.released.wait()
    return await passing.sent()


FORBIDDEN: Final = status_body(403, "Forbidden", 'User "x" cannot get path "/version"')
UNKNOWN: Final = ("kubernetes.version_unknown", "")


@pytest.mark.parametrize(
    ("answer", "complaints"),
    [
        pytest.param(answering(403, FORBIDDEN), [UNKNOWN], id="forbidden"),
        pytest.param(answering(404, status_body(404, "NotFound", "not found")), [UNKNOWN], id="not there"),
        pytest.param(never, [], id="no answer"),
        pytest.param(
            answering(200, {"gitVersion": "v1.31.14"}),
            [
                ("kubernetes.version_not_run", ""),
                ("kubernetes.feature_off", "WatchList"),
                ("kubernetes.feature_off", "PodLevelResources"),
            ],
            id="an old one",
        ),
    ],
)
async def test_whatever_the_version_is_pods_are_bound(  # noqa: PLR0917  (fixtures)
    control_plane: ControlPlane,
    admin: Admin,
    namespace: str,
    tmp_path: Path,
    answer: Mishap,
    complaints: list[tuple[str, str]],
) -> None:
    async with proxy(control_plane) as between:
        between.choose = lambda passing: answer if passing.path == "/version" else None
        with SchedulerProcess(between.kubeconfig(control_plane.kubeconfig_path()), tmp_path) as scheduler:
            await scheduler.ready()
            async with gpu_site(admin, namespace, scheduler) as site:
                await site.nodes(a=[16])
                await site.pod("p", 3)
                await site.bound("p")
            lines = [line for line in scheduler.lines() if line["event"].startswith("kubernetes.")]

    assert [
        (line["event"], line.get("feature", "")) for line in lines if line["event"] != "kubernetes.version"
    ] == complaints
