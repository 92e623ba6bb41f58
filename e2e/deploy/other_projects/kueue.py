"""Kueue's controller manager, built from the module that `servers/kueue` pins, beside a control plane of ours.

What of its chart the API server has to know is applied: definitions, webhooks, their Service and Secret. The program
runs as a process, as an administrator. Its Service leads to this machine, and its certificate, which a kubelet would
mount, is written where it looks for it.
"""

import base64
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Final

import yaml

from e2e.control_plane import binaries, commands
from e2e.control_plane.admin import Admin, Json, done, seen
from e2e.control_plane.cluster import ControlPlane
from e2e.control_plane.processes import Child, free_ports, start
from e2e.deploy.chart.helm import Helm
from e2e.deploy.other_projects import custom_resources
from e2e.programs.server_process import ServerProcess

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
