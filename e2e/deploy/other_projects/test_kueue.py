"""Kueue itself, with the queue and the Job of docs/working-with.md: it admits by GPU memory, this scheduler places.

At night: Kueue takes ten minutes of CPU to build, from the module that `servers/kueue` pins. What of its chart the API
server has to know is applied: definitions, webhooks, their Service and Secret. Its controller manager runs as a
process, as an administrator. Its Service leads to this machine, and its certificate, which a kubelet would mount, is
written where it looks for it.
"""

import base64
import copy
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import pytest
import yaml

from config.protocol import names
from e2e.control_plane import binaries, commands
from e2e.control_plane.admin import Admin, Json, done, seen
from e2e.control_plane.cluster import ControlPlane
from e2e.control_plane.processes import Child, free_ports, start
from e2e.deploy.chart.helm import Helm
from e2e.deploy.other_projects import custom_resources
from e2e.deploy.other_projects.test_working_with import examples, requested, written
from e2e.programs.scheduler_process import SchedulerProcess
from e2e.programs.server_process import ServerProcess
from e2e.support.gpu_site import GpuSite, card, cards_of, gpu_node, gpu_site, is_bound

_NAMESPACE: Final = "kueue-system"
_SECRETS: Final = f"/api/v1/namespaces/{_NAMESPACE}/secrets"
_SECRET: Final = "kueue-webhook-server-cert"  # noqa: S105 - the name of an object
_REGISTRATION: Final = "/apis/admissionregistration.k8s.io/v1"
_COLLECTIONS: Final[Mapping[str, str]] = {
    "Secret": _SECRETS,
    "Service": f"/api/v1/namespaces/{_NAMESPACE}/services",
    "MutatingWebhookConfiguration": f"{_REGISTRATION}/mutatingwebhookconfigurations",
    "ValidatingWebhookConfiguration": f"{_REGISTRATION}/validatingwebhookconfigurations",
}
_WITHIN_S: Final = 60.0


class KueueProcess(ServerProcess):
    """One controller manager for Jobs; `apply` what it needs, enter it to start it, `mount` its certificate."""

    def __init__(self, cluster: ControlPlane, helm: Helm, folder: Path) -> None:
        """folder: of its configuration, its certificate and its log. Raises NotDownloaded, HelmRefused, BuildFailed."""
        self._certificates = folder / "certificates"
        self._certificates.mkdir()
        self._webhooks, port = free_ports(2)
        chart = custom_resources.source("kueue", "sigs.k8s.io/kueue") / "charts" / "kueue"
        text = helm("template", "kueue", str(chart), "--namespace", _NAMESPACE)
        self._objects: list[Json] = [one for one in yaml.load_all(text, yaml.CSafeLoader) if one]
        configuration = folder / "kueue.yaml"
        configuration.write_text(commands.as_yaml(self._configuration(port)), encoding="utf-8")
        line = [str(binaries.ensure(["kueue"])["kueue"]), f"--config={configuration}"]
        environment = {"HOME": str(folder), "TMPDIR": str(folder), "KUBECONFIG": str(cluster.kubeconfig_path())}

        def launch() -> Child:
            # It would serve its own API beside the cluster's, which this one does not ask.
            return start("kueue", [*line, "--feature-gates=VisibilityOnDemand=false"], log, environment)

        log = folder / "kueue.log"
        super().__init__(launch, log, port)

    async def apply(self, admin: Admin) -> None:
        """Apply what it needs before it starts. Raises UnexpectedAnswer, NotSeen."""
        await admin.create("/api/v1/namespaces", {"metadata": {"name": _NAMESPACE}})
        for one in self._objects:
            _lead_to(self._webhooks, one)
        definitions = [one for one in self._objects if one["kind"] == "CustomResourceDefinition"]
        await custom_resources.create(admin, [custom_resources.without_words(one) for one in definitions])
        for one in self._of(_COLLECTIONS):
            if one["kind"] == "Service":
                one["spec"] = {"type": "ExternalName", "externalName": "localhost"}
            done(await admin.post(_COLLECTIONS[one["kind"]], one))

    async def mount(self, admin: Admin) -> None:
        """Give it the certificate that it makes, and return when it is ready. Raises NotSeen, Died, NotReady."""
        query = {"fieldSelector": f"metadata.name={_SECRET}"}
        secret = await seen(admin, _SECRETS, lambda one: "tls.crt" in one.get("data", {}), query, within_s=_WITHIN_S)
        # The certificate last: it looks for that alone.
        for name in ("ca.crt", "tls.key", "tls.crt"):
            (self._certificates / name).write_bytes(base64.b64decode(secret["data"][name]))
        await self.ready()

    def _of(self, kinds: Iterable[str]) -> list[Json]:
        return [one for one in self._objects if one["kind"] in {*kinds} and not _is_metrics(one)]

    def _configuration(self, port: int) -> dict[str, Any]:
        """That of the chart, on loopback, for Jobs alone."""
        (found,) = [one for one in self._of(["ConfigMap"]) if "controller_manager_config.yaml" in one["data"]]
        read: dict[str, Any] = yaml.safe_load(found["data"]["controller_manager_config.yaml"])
        return read | {
            "health": {"healthProbeBindAddress": f"127.0.0.1:{port}"},
            "metrics": {"bindAddress": "0"},
            "webhook": {"host": "127.0.0.1", "port": self._webhooks, "certDir": str(self._certificates)},
            "leaderElection": {"leaderElect": False},
            "integrations": {"frameworks": ["batch/job"]},
        }


def _is_metrics(document: Json) -> bool:
    return document["kind"] == "Service" and "webhook" not in document["metadata"]["name"]


def _lead_to(port: int, value: object) -> None:
    """Have every webhook within call that port of its Service."""
    if isinstance(value, dict):
        if "service" in (client := value.get("clientConfig") or {}):
            client["service"]["port"] = port
        for one in value.values():
            _lead_to(port, one)
    elif isinstance(value, list):
        for one in value:
            _lead_to(port, one)


NAMESPACE: Final = "default"
JOBS: Final = f"/apis/batch/v1/namespaces/{NAMESPACE}/jobs"
WORKLOADS: Final = f"/apis/kueue.x-k8s.io/v1beta2/namespaces/{NAMESPACE}/workloads"
SOON_S: Final = 60.0


@pytest.fixture(scope="module")
def cluster() -> Iterator[ControlPlane]:
    with ControlPlane(controller_manager=True) as started:
        yield started


@pytest.fixture
async def site(
    cluster: ControlPlane, scheduler: SchedulerProcess, helm: Helm, tmp_path: Path
) -> AsyncIterator[GpuSite]:
    kueue = KueueProcess(cluster, helm, tmp_path)
    async with Admin(cluster.access()) as admin:
        await kueue.apply(admin)
        with kueue:
            await kueue.mount(admin)
            await scheduler.ready()
            async with gpu_site(admin, NAMESPACE, scheduler) as made:
                yield made


async def pod_of(site: GpuSite, job: str) -> Json:
    """The Job's pod, once it has a node."""
    query = {"labelSelector": f"batch.kubernetes.io/job-name={job}"}
    return await seen(site.admin, site.pods_path, is_bound, query, within_s=SOON_S)


async def told_to_wait(site: GpuSite, job: str) -> str:
    """What Kueue says of a Job that has to wait."""
    message = ""

    def waits(workload: Json) -> bool:
        nonlocal message
        if workload["metadata"]["ownerReferences"][0]["name"] != job:
            return False
        conditions = workload.get("status", {}).get("conditions", [])
        said = [one["message"] for one in conditions if one["type"] == "QuotaReserved" and one["status"] == "False"]
        message = said[0] if said else ""
        return bool(said)

    await seen(site.admin, WORKLOADS, waits, {}, within_s=SOON_S)
    return message


@pytest.mark.nightly
async def test_jobs_start_as_the_quota_of_gpu_memory_lets_them_and_their_pods_get_cards(site: GpuSite) -> None:
    node = gpu_node("a", [16])
    node["metadata"]["labels"] = {"gpushare": "true"}
    await site.add_nodes(node)
    *queue, job = next(one for one in examples() if one[-1]["kind"] == "Job")
    units = requested(job["spec"]["template"]["spec"])
    for document in queue:
        done(await written(site.admin, document))

    for name in ("first", "second"):
        made = copy.deepcopy(job)
        made["metadata"]["name"] = name
        del made["spec"]["suspend"]  # Kueue's webhook suspends it.
        assert done(await written(site.admin, made)).body["spec"]["suspend"] is True
        if name == "first":
            first = await pod_of(site, name)

    assert first["spec"]["nodeSelector"] == {"gpushare": "true"}
    assert cards_of(first) == {"0": card("a", 0)}
    assert f"insufficient unused quota for {names.GPU_MEM}" in await told_to_wait(site, "second")
    assert done(await site.admin.get(f"{JOBS}/second")).body["spec"]["suspend"] is True
    assert [pod["metadata"]["name"] for pod in await site.admin.items(site.pods_path)] == [first["metadata"]["name"]]

    ended = {"status": {"phase": "Succeeded"}}
    done(await site.admin.patch(f"{site.pods_path}/{first['metadata']['name']}/status", ended))

    second = await pod_of(site, "second")
    assert cards_of(second) == {"0": card("a", 0)}
    assert 2 * units > 12, "otherwise the quota of the example lets both in at once"
