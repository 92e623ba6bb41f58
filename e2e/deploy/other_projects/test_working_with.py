"""The objects of docs/working-with.md, judged by the definitions of the projects that they are for; their pods bound.

The definitions are those of the versions that `e2e/servers/custom-resources` pins. None of the projects runs here: what
their own programs add to pods, such as ports and sidecars, is not here. Most kinds have whole templates of pods.
"""

import asyncio
import copy
import json
from collections.abc import AsyncIterator, Iterator, Sequence
from http import HTTPStatus
from typing import Final

import pytest
import yaml

from config.protocol import names
from e2e.control_plane.admin import Admin, ApiResponse, Json, done
from e2e.control_plane.cluster import ControlPlane
from e2e.deploy.other_projects import custom_resources
from e2e.deploy.other_projects.custom_resources import Definitions
from e2e.programs.scheduler_process import SchedulerProcess
from e2e.support.gpu_site import GpuSite, cards_of, gpu_site
from tests.support.documents import document_commands

# Fields of a predictor that are fields of a pod's spec, of those that the document uses.
_OF_A_POD: Final = ("schedulerName",)


def pods_of(objects: Sequence[Json]) -> list[Json]:
    """Of the objects of one example: a pod for each template whose pods this scheduler places, named by number."""
    asked = [one["spec"]["trainer"]["resourcesPerNode"] for one in objects if one["kind"] == "TrainJob"]
    made: list[Json] = []
    for template in (template for one in objects for template in templates(one)):
        spec = template["spec"]
        if asked:
            spec = spec | {"containers": [container | {"resources": asked[0]} for container in spec["containers"]]}
        if spec.get("schedulerName") == names.SCHEDULER_NAME or requested(spec):
            metadata = template.get("metadata", {}) | {"name": f"{objects[-1]['kind'].lower()}-{len(made)}"}
            made.append({"metadata": metadata, "spec": spec})
    return made


def templates(document: Json) -> Iterator[Json]:
    """Each template of pods in the object: `metadata`, if there is any, and `spec`."""
    spec = document["spec"]
    match document["kind"]:
        case "InferenceService":
            predictor = spec["predictor"]
            container = {"name": "kserve-container", "image": "none", "resources": predictor["model"]["resources"]}
            own = {field: predictor[field] for field in _OF_A_POD if field in predictor}
            yield {"spec": own | {"containers": [container]}}
        case "Workflow":
            for step in spec["templates"]:
                scheduler = step.get("schedulerName", spec.get("schedulerName", ""))
                yield {"spec": {"schedulerName": scheduler, "containers": [{"name": "main"} | step["container"]]}}
        case _:
            yield from _whole(document)


def _whole(value: object) -> Iterator[Json]:
    if isinstance(value, list):
        for one in value:
            yield from _whole(one)
    elif isinstance(value, dict):
        if "containers" in (value.get("spec") or {}):
            yield value
        else:
            yield from _whole([*value.values()])


def requested(spec: Json) -> int:
    """Units of GPU memory that its containers request."""
    return sum(int(one["resources"].get("limits", {}).get(names.GPU_MEM, 0)) for one in spec["containers"])


_PINNED_BY: Final = "custom-resources"
DEFINITIONS: Final = (
    Definitions(
        _PINNED_BY,
        "sigs.k8s.io/kueue",
        "config/components/crd/bases",
        tuple(f"kueue.x-k8s.io_{plural}.yaml" for plural in ("resourceflavors", "clusterqueues", "localqueues")),
    ),
    Definitions(
        _PINNED_BY,
        "github.com/kubeflow/training-operator",
        "manifests/base/crds",
        ("kubeflow.org_pytorchjobs.yaml",),
    ),
    Definitions(
        _PINNED_BY,
        "github.com/kubeflow/trainer/v2",
        "manifests/base/crds",
        ("trainer.kubeflow.org_trainingruntimes.yaml", "trainer.kubeflow.org_trainjobs.yaml"),
    ),
    Definitions(
        _PINNED_BY,
        "github.com/kserve/kserve",
        "config/crd/full",
        ("serving.kserve.io_inferenceservices.yaml",),
    ),
    Definitions(
        _PINNED_BY,
        "github.com/ray-project/kuberay/ray-operator",
        "config/crd/bases",
        tuple(f"ray.io_{plural}.yaml" for plural in ("rayclusters", "rayjobs", "rayservices")),
    ),
    Definitions(
        _PINNED_BY,
        "github.com/argoproj/argo-workflows/v4",
        "manifests/base/crds/full",
        ("argoproj.io_workflows.yaml",),
    ),
)
NAMESPACE: Final = "default"
CARDS: Final = (16, 16)


def examples() -> list[list[Json]]:
    """The objects of each file that the document shows."""
    shown = [text for document, text in document_commands.blocks("yaml") if document == "docs/working-with.md"]
    return [list(yaml.safe_load_all(text)) for text in shown]


EXAMPLES: Final = [pytest.param(one, id=one[-1]["kind"]) for one in examples()]
OBJECTS: Final = [
    pytest.param(one, id=f"{one['kind']} of the {example[-1]['kind']}") for example in examples() for one in example
]


@pytest.fixture(scope="module")
def cluster() -> Iterator[ControlPlane]:
    async def install(started: ControlPlane) -> None:
        async with Admin(started.access()) as admin:
            await custom_resources.install(admin, *DEFINITIONS)

    with ControlPlane() as started:
        asyncio.run(install(started))
        yield started


@pytest.fixture
async def site(admin: Admin, scheduler: SchedulerProcess) -> AsyncIterator[GpuSite]:
    await scheduler.ready()
    async with gpu_site(admin, NAMESPACE, scheduler) as made:
        yield made


async def written(admin: Admin, document: Json) -> ApiResponse:
    """Create the object, as `kubectl create --validate=strict` does."""
    version = document["apiVersion"]
    base = f"/apis/{version}" if "/" in version else f"/api/{version}"
    resources = done(await admin.get(base)).body["resources"]
    (kind,) = [one for one in resources if one["kind"] == document["kind"] and "/" not in one["name"]]
    within = f"namespaces/{NAMESPACE}/" if kind["namespaced"] else ""
    return await admin.post(f"{base}/{within}{kind['name']}?fieldValidation=Strict", document)


def other_kinds_of_ray() -> list[Json]:
    """The example's cluster as the document says to write it into a RayJob and into a RayService."""
    (cluster,) = next(one for one in examples() if one[-1]["kind"] == "RayCluster")
    job = {"entrypoint": "python finetune.py", "rayClusterSpec": cluster["spec"]}
    service = {"upgradeStrategy": {"type": "None"}, "rayClusterConfig": cluster["spec"]}
    head = {"apiVersion": cluster["apiVersion"], "metadata": cluster["metadata"]}
    return [head | {"kind": "RayJob", "spec": job}, head | {"kind": "RayService", "spec": service}]


def misspelled(value: object) -> int:
    """Change `schedulerName` into what is no field, wherever it stands; returns how often."""
    if isinstance(value, list):
        return sum(misspelled(one) for one in value)
    if not isinstance(value, dict):
        return 0
    here = "schedulerName" in value
    if here:
        value["schedulersName"] = value.pop("schedulerName")
    return here + sum(misspelled(one) for one in value.values())


@pytest.mark.parametrize("document", [*OBJECTS, *(pytest.param(one, id=one["kind"]) for one in other_kinds_of_ray())])
async def test_an_object_is_what_its_definition_says(admin: Admin, document: Json) -> None:
    answer = await written(admin, document)
    assert (answer.status, answer.body.get("message", "")) == (HTTPStatus.CREATED, "")


@pytest.mark.parametrize("example", EXAMPLES)
async def test_a_wrong_field_is_refused(admin: Admin, example: list[Json]) -> None:
    changed = [one for one in copy.deepcopy(example) if misspelled(one)]
    answers = [await written(admin, one) for one in changed]
    assert [(one.status, "schedulersName" in one.body["message"]) for one in answers] == [
        (HTTPStatus.BAD_REQUEST, True)
    ]


@pytest.mark.parametrize("example", EXAMPLES)
async def test_its_pods_are_bound_each_with_its_card(site: GpuSite, example: list[Json]) -> None:
    await site.nodes(a=CARDS)
    pods = pods_of(example)

    for pod in pods:
        await site.admin.create(site.pods_path, pod)
    bound = [await site.bound(pod["metadata"]["name"]) for pod in pods]

    assert [units_of(pod) for pod in bound] == [[requested(pod["spec"])] for pod in pods]
    kept_apart = [pod for pod in bound if names.CARD_ANTI_AFFINITY in pod["metadata"]["annotations"]]
    assert len({*map(str, map(cards_of, kept_apart))}) == len(kept_apart)


def units_of(pod: Json) -> list[int]:
    """Of each card that its containers were given."""
    allocation = json.loads(pod["metadata"]["annotations"][names.ALLOCATION])
    return [units for shares in allocation.values() for units in shares.values()]
