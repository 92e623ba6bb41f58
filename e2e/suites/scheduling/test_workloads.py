"""Pods as people really write them: each workload of `e2e/workloads` is bound, with two fields added.

The files hold what the operators of this field make of what their users write. Here each gets `schedulerName` and, in
one container, GPU memory: nothing else is changed. The pods of Deployments, StatefulSets and Jobs come from the real
controllers.
"""

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import pytest
import yaml

from config.protocol import names
from e2e.control_plane.admin import Admin, Json, NotSeen, done
from e2e.control_plane.cluster import ControlPlane
from e2e.programs import manifests
from e2e.programs.scheduler_process import NO_PREDECESSOR, SchedulerProcess
from e2e.support.claims_site import CLASSES, FAST, LOCAL, SOON_S, VOLUMES, Site, claim_is_bound
from e2e.support.gpu_site import condition, gpu_node, gpu_site, is_bound
from tests.support.repository import ROOT
from tests.support.volumes import HOSTNAME, ZONE, storage_class, volume

FOLDER: Final = ROOT / "e2e" / "workloads"
RUNTIME_CLASSES: Final = "/apis/node.k8s.io/v1/runtimeclasses"
DEFAULT: Final = storage_class("standard", provisioner="example.com/test")
DEFAULT["metadata"]["annotations"] = {"storageclass.kubernetes.io/is-default-class": "true"}
NVIDIA: Final = {
    "metadata": {"name": "nvidia"},
    "handler": "nvidia",
    "scheduling": {
        "nodeSelector": {"nvidia.com/gpu.present": "true"},
        "tolerations": [{"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoSchedule"}],
    },
}
GATE: Final = "kueue.x-k8s.io/topology"


def node(name: str, zone: str, cards: list[int], *, taint: str = "", label: str = "") -> Json:
    """taint, label: `key=value`."""
    made = gpu_node(name, cards)
    made["metadata"]["labels"] = {HOSTNAME: name, ZONE: zone} | dict([label.split("=")] if label else [])
    if taint:
        key, _, value = taint.partition("=")
        made["spec"] = {"taints": [{"key": key, "value": value, "effect": "NoSchedule"}]}
    return made


NODES: Final = (
    node("a", "z1", [16, 16]),
    node("b", "z2", [24], taint="hub.jupyter.org/dedicated=user", label="hub.jupyter.org/node-purpose=user"),
    node("c", "z3", [16], taint="nvidia.com/gpu=present", label="nvidia.com/gpu.present=true"),
    node("d", "z2", [8]),
)
LABELS: Final = {made["metadata"]["name"]: made["metadata"]["labels"] for made in NODES}


@dataclass(frozen=True, slots=True)
class Workload:
    """file: in the folder. container: the one that gets `units` of GPU memory.

    places: of its pods, as node and allocation (container index -> card index -> units): no other place would do.
    in_zone: the zone from which the volume of its claim can be used, if it has one already.
    """

    file: str
    container: str
    units: int
    places: tuple[tuple[str, dict[str, dict[str, int]]], ...]
    in_zone: str = ""

    def documents(self, namespace: str) -> list[Json]:
        """All objects of the file, in that namespace; its pods ask for GPU memory and name our scheduler."""
        found = list(yaml.safe_load_all((FOLDER / f"{self.file}.yaml").read_text(encoding="utf-8")))
        for document in found:
            document["metadata"]["namespace"] = namespace
            spec = document if document["kind"] == "Pod" else document.get("spec", {}).get("template", {})
            if spec:
                self._ask(spec["spec"])
        return found

    def _ask(self, spec: Json) -> None:
        assert "schedulerName" not in spec
        spec["schedulerName"] = names.SCHEDULER_NAME
        (asking,) = [one for one in spec["containers"] if one["name"] == self.container]
        asking["resources"].setdefault("limits", {})[names.GPU_MEM] = str(self.units)


PYTORCH: Final = Workload("pytorchjob-worker", "pytorch", 14, (("c", {"0": {"0": 14}}),), in_zone="z3")
KSERVE: Final = Workload("kserve-predictor", "kserve-container", 10, (("a", {"0": {"0": 10}}), ("a", {"0": {"1": 10}})))
JUPYTERHUB: Final = Workload("jupyterhub-notebook", "notebook", 20, (("b", {"0": {"0": 20}}),))
RAY: Final = Workload("ray-worker", "ray-worker", 12, (("c", {"0": {"0": 12}}),))
ARGO: Final = Workload("argo-step", "main", 6, (("d", {"1": {"0": 6}}),), in_zone="z2")
STATEFUL_SET: Final = Workload("stateful-set", "vectors", 6, tuple((name, {"0": {"0": 6}}) for name in "acd"))
KUEUE: Final = Workload("kueue-job", "finetune", 4, (("d", {"0": {"0": 4}}),) * 2)


@pytest.fixture(scope="module")
def scheduler(controlled: ControlPlane, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SchedulerProcess]:
    folder = tmp_path_factory.mktemp("scheduler")
    with SchedulerProcess(controlled.kubeconfig_path(), folder, NO_PREDECESSOR) as started:
        yield started


class WorkloadSite:
    """Four nodes in three zones, and what an administrator has made for their users."""

    def __init__(self, site: Site) -> None:
        self.site = site
        self.admin = site.admin
        self.namespace = site.of.namespace
        self._made: list[str] = []

    async def apply(self, workload: Workload) -> None:
        """As `kubectl apply` does; a claim that has its volume already is bound before the pod comes."""
        for document in workload.documents(self.namespace):
            path, name = manifests.collection(document), document["metadata"]["name"]
            if document["kind"] == "PersistentVolumeClaim" and workload.in_zone:
                await self.site.comes(VOLUMES, self._volume(document, workload.in_zone))
            await self.admin.create(path, document)
            self._made.append(f"{path}/{name}")
            if document["kind"] == "PersistentVolumeClaim" and workload.in_zone:
                await self.until(lambda found: [claim_is_bound(one) for one in found] == [True], self.site.claims_path)

    async def until(self, wanted: Callable[[list[Json]], bool], path: str = "") -> list[Json]:
        """The objects there, the pods unless said otherwise, once they are as wanted. Raises NotSeen."""
        found: list[Json] = []
        try:
            async with asyncio.timeout(SOON_S):
                while not wanted(found):
                    await asyncio.sleep(0.05)
                    found = await self.admin.items(path or self.site.of.pods_path)
        except TimeoutError:
            message = f"not within {SOON_S} s: {[(one['metadata']['name'], one['status']) for one in found]}"
            raise NotSeen(message) from None
        return found

    async def bound(self, number: int) -> list[Json]:
        """So many pods, once each has a node."""
        return await self.until(lambda pods: len(pods) == number and all(map(is_bound, pods)))

    async def volumes_hold(self, pod: Json) -> int:
        """Each claim of the pod is bound to a volume that can be used on its node. Returns how many it has."""
        claims = [one["persistentVolumeClaim"] for one in pod["spec"]["volumes"] if "persistentVolumeClaim" in one]
        for claim in claims:
            found = await self.site.read(claim["claimName"])
            assert claim_is_bound(found)
            kept = done(await self.admin.get(f"{VOLUMES}/{found['spec']['volumeName']}")).body
            (term,) = kept["spec"]["nodeAffinity"]["required"]["nodeSelectorTerms"]
            (asked,) = term["matchExpressions"]
            assert LABELS[pod["spec"]["nodeName"]][asked["key"]] in asked["values"]
        return len(claims)

    async def clear(self) -> None:
        """Remove what was applied, before its pods: nobody makes them again."""
        for path in self._made:
            await self.admin.delete(path, {"propagationPolicy": "Background"})

    def _volume(self, document: Json, zone: str) -> Json:
        spec, name = document["spec"], document["metadata"]["name"]
        size = spec["resources"]["requests"]["storage"]
        made = volume(f"{self.namespace}-{name}", class_name="local", on=(zone,), key=ZONE, size=size)
        made["spec"] |= {"accessModes": spec["accessModes"], "nfs": {"server": "10.0.0.1", "path": "/"}}
        made["spec"]["claimRef"] = {"namespace": self.namespace, "name": name}
        return made


@asynccontextmanager
async def workload_site(operator: Admin, namespace: str, scheduler: SchedulerProcess) -> AsyncIterator[WorkloadSite]:
    async with gpu_site(operator, namespace, scheduler) as of:
        site = Site(of)
        made = WorkloadSite(site)
        provisioner = asyncio.create_task(site.provision())
        try:
            for one in (LOCAL, FAST, DEFAULT):
                await site.comes(CLASSES, one)
            await site.comes(RUNTIME_CLASSES, NVIDIA)
            await of.add_nodes(*NODES)
            yield made
        finally:
            provisioner.cancel()
            await made.clear()
            await site.clear()


@pytest.fixture
async def site(operator: Admin, place: str, scheduler: SchedulerProcess) -> AsyncIterator[WorkloadSite]:
    await scheduler.ready()
    async with workload_site(operator, place, scheduler) as made:
        yield made


def places(pods: list[Json]) -> list[tuple[str, dict[str, dict[str, int]]]]:
    """In order."""
    found = [(pod["spec"]["nodeName"], json.loads(pod["metadata"]["annotations"][names.ALLOCATION])) for pod in pods]
    return sorted(found, key=str)


@pytest.mark.parametrize(
    ("workload", "claims"),
    [
        pytest.param(PYTORCH, 1, id="a Kubeflow PyTorchJob's worker"),
        pytest.param(KSERVE, 0, id="a KServe predictor"),
        pytest.param(JUPYTERHUB, 1, id="a JupyterHub notebook"),
        pytest.param(RAY, 0, id="a Ray worker"),
        pytest.param(ARGO, 1, id="a step of an Argo Workflow"),
        pytest.param(STATEFUL_SET, 3, id="a StatefulSet over three zones"),
    ],
)
async def test_it_is_bound_as_its_operator_makes_it(site: WorkloadSite, workload: Workload, claims: int) -> None:
    await site.apply(workload)

    pods = await site.bound(len(workload.places))

    assert places(pods) == list(workload.places)
    assert sum([await site.volumes_hold(pod) for pod in pods]) == claims


async def test_a_job_in_a_queue_of_kueue_is_bound_when_its_gates_are_gone(site: WorkloadSite) -> None:
    await site.apply(KUEUE)
    job = f"/apis/batch/v1/namespaces/{site.namespace}/jobs/finetune"
    template = {"spec": {"schedulingGates": [{"name": GATE}]}}
    done(await site.admin.patch(job, {"spec": {"suspend": False, "template": template}}))
    gated = await site.until(lambda pods: len(pods) == len(KUEUE.places))

    assert {condition(pod)["reason"] for pod in gated} == {"SchedulingGated"}
    for pod in gated:
        chosen = {"spec": {"schedulingGates": None, "nodeSelector": {HOSTNAME: "d"}}}
        done(await site.admin.patch(f"{site.site.of.pods_path}/{pod['metadata']['name']}", chosen))

    assert places(await site.bound(len(gated))) == list(KUEUE.places)


def test_every_file_is_tried() -> None:
    tried = (PYTORCH, KSERVE, JUPYTERHUB, RAY, ARGO, STATEFUL_SET, KUEUE)
    assert {f"{workload.file}.yaml" for workload in tried} == {path.name for path in Path(FOLDER).iterdir()}
