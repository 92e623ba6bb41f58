"""A cluster for running the documents' commands: both programs run there as pods of the installed manifests.

It differs from an installation as described in `e2e/deploy/image/installed_node.py`, and in the image, which takes
minutes to build: the pods have busybox, with this machine's Python and this checkout mounted. The web page runs,
because docs/page.md forwards its port.
"""

import asyncio
import shlex
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import yaml

from e2e.control_plane import binaries, commands
from e2e.control_plane.admin import Admin, Json, seen
from e2e.control_plane.cluster import ControlPlane
from e2e.control_plane.processes import free_ports
from e2e.deploy.image import installed_node
from e2e.node import images
from e2e.node.local_node import LocalNode
from e2e.programs import manifests
from tests.support.repository import ROOT

NODE: Final = "n1"
CARDS_MIB: Final = (16_384, 16_384, 81_920)
BIN: Final = "/opt/gpushare/bin"
_PROGRAMS: Final = {"gpushare-scheduler": "scheduler.main", "gpushare-device-plugin": "deviceplugin.main"}
# A missing folder would be created on the machine.
_OF_THE_MACHINE: Final = tuple(path for path in ("/usr", "/lib", "/lib64") if Path(path).is_dir())
# Elected, for users who read the Lease; no leader existed before, so the first wait may be short.
_NO_PREDECESSOR: Final[Json] = {
    "bindTimeout": "0s",
    "leaderElection": {"leaseDuration": "8s", "renewDeadline": "3s", "retryPeriod": "1s"},
}
_PODS: Final = "/api/v1/namespaces/default/pods"
_PAGE: Final = ROOT / "deploy" / "optional" / "page.yaml"


@dataclass(slots=True)
class DocumentsSite:
    """The shell user and the locations of the installation.

    home: contains `.kube/config`. path: the folders of programs. ports: the scheduler's actual port by the port in the
    documents. scheduler, plugin: names of the two pods.
    """

    home: Path
    path: str
    ports: dict[str, int]
    scheduler: str
    plugin: str

    def run(self, *command: str, given: str = "") -> str:
        """Run a command and return its standard output. given: its standard input. Raises CalledProcessError."""
        environment = {"PATH": self.path, "HOME": str(self.home)}
        done = subprocess.run(
            command, cwd=ROOT, env=environment, input=given, capture_output=True, text=True, check=False
        )
        if done.returncode:
            sys.stdout.write(done.stdout + done.stderr)
        done.check_returncode()
        return done.stdout


@contextmanager
def documents_site(folder: Path) -> Iterator[DocumentsSite]:
    """The cluster while the context lasts, with the pods of `docs/examples`: first-pod runs, too-big waits."""
    plane = ControlPlane(controller_manager=True, scheduler={}, kubelets=(NODE,))
    node = LocalNode(plane, NODE)
    with plane, node:
        yield asyncio.run(_made(node, folder))


async def _made(node: LocalNode, folder: Path) -> DocumentsSite:
    (page,) = free_ports(1)
    installed = [_configured(_with_programs(one, folder)) for one in installed_node.documents(node, CARDS_MIB)]
    shown = [_with_programs(one, folder) for one in _page(node, page)]
    async with Admin(node.cluster.access()) as admin:
        await manifests.apply(admin, *installed, *shown)
        await admin.patch(f"/api/v1/nodes/{NODE}", {"metadata": {"labels": {"gpushare": "true"}}})
        pods = await installed_node.ready(admin)
        of_the_page = {"labelSelector": "app.kubernetes.io/name=gpushare-page"}
        await seen(admin, installed_node.PODS, _runs, of_the_page, within_s=60.0)
        await _scene(admin)
    (scheduler,) = (one for one in installed if one["kind"] == "Deployment")
    listens = scheduler["spec"]["template"]["spec"]["containers"][0]["ports"][0]["containerPort"]
    names = [pod["metadata"]["name"] for pod in pods]
    return DocumentsSite(_home(node, folder), path_of(folder), {"10261": listens, "10264": page}, *names)


async def _scene(admin: Admin) -> None:
    for name, reached in (("first-pod", _runs), ("too-big", _waits)):
        text = (ROOT / "docs" / "examples" / f"{name}.yaml").read_text(encoding="utf-8")
        await admin.create(_PODS, yaml.safe_load(text))
        await seen(admin, _PODS, reached, {"fieldSelector": f"metadata.name={name}"}, within_s=60.0)


def _runs(pod: Json) -> bool:
    return bool(pod["status"].get("phase") == "Running")


def _waits(pod: Json) -> bool:
    return any(one.get("reason") == "Unschedulable" for one in pod["status"].get("conditions", []))


def _page(node: LocalNode, port: int) -> list[Json]:
    """The objects of the page, which listens on that port of the machine."""
    documents: list[Json] = list(yaml.safe_load_all(_PAGE.read_text(encoding="utf-8")))
    (workload,) = (one for one in documents if one["kind"] == "Deployment")
    installed_node.for_our_network(workload, node.cluster.url)
    workload["spec"]["template"]["spec"]["containers"][0]["args"] += ["--port", str(port)]
    return documents


def _configured(document: Json) -> Json:
    """Return the scheduler's configuration without a first wait."""
    if document["kind"] == "ConfigMap" and "scheduler.yaml" in document["data"]:
        read = yaml.safe_load(document["data"]["scheduler.yaml"])
        read |= _NO_PREDECESSOR
        document["data"]["scheduler.yaml"] = commands.as_yaml(read)
    return document


def _with_programs(document: Json, folder: Path) -> Json:
    """Return a workload whose pods find our programs at their paths in the image."""
    if document["kind"] not in {"Deployment", "DaemonSet"}:
        return document
    pod = document["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    container |= {"image": images.BUSYBOX, "imagePullPolicy": "Never"}
    container.setdefault("command", [f"{BIN}/gpushare-scheduler"])
    container.setdefault("env", []).append({"name": "PATH", "value": f"{BIN}:/usr/bin:/bin"})  # as in the image
    mounted = {BIN: str(_wrappers(folder))} | {path: path for path in (*_OF_THE_MACHINE, *_python())}
    for number, (at, of) in enumerate(mounted.items()):
        container["volumeMounts"].append({"name": f"machine-{number}", "mountPath": at, "readOnly": True})
        pod["volumes"].append({"name": f"machine-{number}", "hostPath": {"path": of}})
    return document


def _python() -> list[str]:
    """Return the folders of this Python, its packages and this checkout, without nested ones."""
    found = sorted({sys.base_prefix, sys.prefix, str(ROOT)})
    within = [*_OF_THE_MACHINE, *found]
    return [path for path in found if not any(path != one and Path(path).is_relative_to(one) for one in within)]


def _wrappers(folder: Path) -> Path:
    """Return a folder with our programs, for every user."""
    programs = folder / "programs"
    programs.mkdir(exist_ok=True)
    programs.chmod(0o755)
    for name, module in _PROGRAMS.items():
        run = shlex.join(["env", f"PYTHONPATH={ROOT}", sys.executable, "-m", module])
        (programs / name).write_text(f'#!/bin/sh\nexec {run} "$@"\n', encoding="utf-8")
        (programs / name).chmod(0o755)
    return programs


def _home(node: LocalNode, folder: Path) -> Path:
    """Return the user's HOME, with the kubeconfig where kubectl looks for it."""
    (folder / ".kube").mkdir()
    (folder / ".kube" / "config").symlink_to(node.cluster.kubeconfig_path())
    return folder


def path_of(folder: Path) -> str:
    """Return a PATH with kubectl, its plugins and our programs in one folder, and the folders of every shell."""
    linked = folder / "bin"
    linked.mkdir()
    found = [path for name in ("kubectl-*", "gpushare-*") for path in Path(sys.executable).parent.glob(name)]
    for program in (binaries.ensure(["kubectl"])["kubectl"], *found):
        (linked / program.name).symlink_to(program)
    return f"{linked}:/usr/local/bin:/usr/bin:/bin"
