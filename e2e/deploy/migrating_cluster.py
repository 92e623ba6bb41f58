"""A cluster that is on its way from the legacy extender: docs/migrate.md, whose own commands are run, by a shell.

Nodes without kubelets; the extender is a double, its account and its objects are those that the document names.
"""

import os
import re
import subprocess
import sys
import textwrap
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from config.protocol import names
from e2e.control_plane import binaries
from e2e.control_plane.admin import Admin, Json, done
from e2e.control_plane.cluster import ControlPlane
from e2e.programs import manifests
from e2e.suites.gpu_site import gpu_node
from tests.support.repository import ROOT

EXTENDER: Final = "gpushare-schd-extender"
OLD_PLUGIN: Final = "gpushare-device-plugin"
OLD_DAEMON_SET: Final = "gpushare-device-plugin-ds"
MIGRATED: Final = "gpushare-migrated"
_DOCUMENT: Final = ROOT / "docs" / "migrate.md"
_BLOCK: Final = re.compile(r"^( *)```sh\n(.*?)^\1```$", re.MULTILINE | re.DOTALL)
# No kubelet is there that could make a pod ready.
_NEEDS_KUBELETS: Final = "rollout status"


class CommandFailed(Exception):
    """A command of the document ended with an error; the message has it and what it said."""


def blocks(heading: str) -> list[str]:
    """What the section under this heading, up to the next one, has to be typed."""
    _, found, after = _DOCUMENT.read_text(encoding="utf-8").partition(f"\n{heading}\n")
    if not found:
        message = f"{_DOCUMENT.name} has no {heading!r}"
        raise LookupError(message)
    section = re.split(r"^##", after, maxsplit=1, flags=re.MULTILINE)[0]
    return [textwrap.dedent(text) for _, text in _BLOCK.findall(section)]


class Terminal:
    """Where the operator of a cluster types: kubectl, helm and jq are there, and the chart as the document has it."""

    def __init__(self, cluster: ControlPlane, folder: Path) -> None:
        programs = folder / "bin"
        programs.mkdir()
        for name, path in binaries.ensure(["kubectl", "helm"]).items():
            (programs / name).symlink_to(path)
        ours = programs / "kubectl-gpushare"
        ours.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m scheduler.cli.kubectl.main "$@"\n', encoding="utf-8")
        ours.chmod(0o755)
        (folder / "deploy").symlink_to(ROOT / "deploy")
        self._folder = folder
        self._inherits = {
            "PATH": f"{programs}:{os.environ['PATH']}",
            "HOME": str(folder),
            "KUBECONFIG": str(cluster.kubeconfig_path()),
            "PYTHONPATH": str(ROOT),
        }

    def types(self, block: str, **words: str) -> str:
        """Run it as it stands, but for these words. What it wrote. Raises CommandFailed."""
        for word, meaning in words.items():
            block = re.sub(rf"\b{word}\b", meaning, block)
        lines = [line for line in block.splitlines() if _NEEDS_KUBELETS not in line]
        text = "set -e -o pipefail\n" + "\n".join(lines)
        ran = subprocess.run(
            ["bash", "-c", text], cwd=self._folder, env=self._inherits, capture_output=True, text=True, check=False
        )
        if ran.returncode != 0:
            message = f"{text}\n{ran.stdout}\n{ran.stderr}"
            raise CommandFailed(message)
        return ran.stdout


def _role(name: str, rules: Sequence[Json]) -> list[Json]:
    account = {"kind": "ServiceAccount", "name": name, "namespace": manifests.NAMESPACE}
    reference = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": name}
    return [
        _legacy("v1", "ServiceAccount", name, {}),
        _legacy("rbac.authorization.k8s.io/v1", "ClusterRole", name, {"rules": list(rules)}),
        _legacy(
            "rbac.authorization.k8s.io/v1", "ClusterRoleBinding", name, {"roleRef": reference, "subjects": [account]}
        ),
    ]


def _legacy(version: str, kind: str, name: str, fields: Json) -> Json:
    place = {} if kind.startswith("ClusterRole") else {"namespace": manifests.NAMESPACE}
    return {"apiVersion": version, "kind": kind, "metadata": {"name": name, **place}, **fields}


def _workload(account: str, **pod: Any) -> Json:  # noqa: ANN401 - fields of a pod
    labels = {"app": account}
    template = {"serviceAccountName": account, "containers": [{"name": "c", "image": "none"}], **pod}
    return {"selector": {"matchLabels": labels}, "template": {"metadata": {"labels": labels}, "spec": template}}


def legacy_objects() -> list[Json]:
    """Of the extender and of the legacy plugin, the latter as the document has changed it before it moves nodes."""
    elsewhere = {"matchExpressions": [{"key": MIGRATED, "operator": "DoesNotExist"}]}
    required = {"nodeSelectorTerms": [elsewhere]}
    affinity = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": required}}
    on_nodes = _workload(OLD_PLUGIN, nodeSelector={"gpushare": "true"}, affinity=affinity)
    ports = [{"port": 12345}]
    return [
        *_role(
            EXTENDER,
            [
                {"apiGroups": [""], "resources": ["pods"], "verbs": ["get", "list", "watch", "update", "patch"]},
                {"apiGroups": [""], "resources": ["pods/binding", "bindings"], "verbs": ["create"]},
            ],
        ),
        *_role(OLD_PLUGIN, [{"apiGroups": [""], "resources": ["nodes", "pods"], "verbs": ["get", "list", "patch"]}]),
        _legacy("v1", "Service", EXTENDER, {"spec": {"selector": {"app": EXTENDER}, "ports": ports}}),
        _legacy("apps/v1", "Deployment", EXTENDER, {"spec": _workload(EXTENDER)}),
        _legacy("apps/v1", "DaemonSet", OLD_DAEMON_SET, {"spec": on_nodes}),
    ]


def moved_node(name: str, cards: Sequence[int]) -> Json:
    """A node that step 3 has moved: our device plugin has announced its cards."""
    node = gpu_node(name, cards)
    node["metadata"]["labels"] = {"gpushare": "true", MIGRATED: "true", "kubernetes.io/hostname": name}
    return node


async def desired(admin: Admin, daemon_set: str) -> tuple[int, bool]:
    """On how many nodes it wants to be, and whether that is of its newest form."""
    found = done(await admin.get(f"/apis/apps/v1/namespaces/{manifests.NAMESPACE}/daemonsets/{daemon_set}")).body
    status = found["status"]
    return status["desiredNumberScheduled"], status.get("observedGeneration") == found["metadata"]["generation"]


def asking(name: str, units: int, *, cards: int = 1, **spec: object) -> Json:
    """A pod that names no scheduler, unless spec says so. units: of each card."""
    container = {"name": "c", "image": "none", "resources": {"limits": {names.GPU_MEM: str(units)}}}
    own = {"containers": [container], **spec}
    return {"metadata": {"name": name, "annotations": {names.GPU_COUNT: str(cards)}}, "spec": own}
