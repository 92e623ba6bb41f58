"""A real node on this machine: its own kubelet, containerd and runc, removed without a trace afterwards.

    new --enter--> RUNNING --exit--> gone: no process, mount, cgroup, folder, node object
                   RUNNING --stop_kubelet | stop_containerd--> PARTLY DOWN --start_…--> RUNNING
                   RUNNING | PARTLY DOWN --reboot--> RUNNING: no process, mount, cgroup, /run of before

The node's programs see their own /run, /var/lib and /var/log and cannot change kernel settings, so a machine can have
several nodes. `node_keeper.py` ensures that, and undoes everything if this process is killed. Containers keep running
while kubelet or containerd are down. Pods run with
`hostNetwork: true`, images of `images.py` and `imagePullPolicy: Never`. Enter a node, and stop and start its programs,
from one thread that outlives the node.
"""

import http.client
import json
import os
import secrets
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import ExitStack, suppress
from http import HTTPStatus
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Protocol, Self

from e2e.control_plane import commands, readiness
from e2e.control_plane.admin import Json, ask
from e2e.control_plane.cluster import ControlPlane
from e2e.control_plane.processes import Child, free_ports, start
from e2e.node import containers, images, node_commands, node_keeper
from e2e.node.containers import LocalContainer, RunningContainer
from e2e.node.node_commands import NodeSite
from e2e.node.node_programs import NOT_HERE, NodeUnavailable, require

_KEEPER: Final = Path(node_keeper.__file__)
_IMPORT_WITHIN_S: Final = 120.0
_PATH: Final = "/usr/sbin:/usr/bin:/sbin:/bin"


class CommandFailed(Exception):
    """A program on the node failed; the message has its error output."""


class Hardware(Protocol):
    """Port: hardware that a node has and an ordinary machine lacks."""

    def install(self, site: NodeSite, runc: Path) -> str:
        """Put its files into the node's folder; return text to append to containerd's configuration, as TOML."""
        ...

    def boot(self, node: "LocalNode") -> None:
        """Prepare it before kubelet and containerd start; called at each boot of the node."""
        ...


class LocalNode:
    """One node of a cluster; enter it to start it."""

    def __init__(
        self,
        cluster: ControlPlane,
        name: str,
        *,
        kubelet: Mapping[str, Any] | None = None,
        hardware: Hardware | None = None,
    ) -> None:
        """Configure the node without starting anything. kubelet: fields of its KubeletConfiguration that differ."""
        self.cluster = cluster
        self.name = name
        # Short: a path of a unix socket has at most 107 bytes.
        folder = Path(tempfile.gettempdir()) / f"gpushare-e2e-{secrets.token_hex(6)}"
        port, health_port = free_ports(2)
        self._site = NodeSite(name, folder, folder.name, port, health_port)
        self._overrides = dict(kubelet or {})
        self._hardware = hardware
        self._programs: dict[str, Path] = {}
        self._entered: list[Child] = []
        self._servers: dict[str, Child] = {}
        self._keeper: subprocess.Popen[str] | None = None
        self._undo = ExitStack()

    def __enter__(self) -> Self:
        """Build missing programs, start, and return when the node is ready; undo everything if that fails.

        Raises NodeUnavailable, binaries.BuildFailed, processes.Died, readiness.NotReady.
        """
        self._programs = require()
        with ExitStack() as undo:
            undo.callback(self._forget)
            self._keep(undo)
            undo.callback(self._stop_all)
            self._write_files()
            self._boot()
            self._undo = undo.pop_all()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """End its programs and pods, undo its changes, and remove it from the cluster."""
        self._undo.close()

    def reboot(self) -> None:
        """End every process, drop /run and the mounts, and start kubelet and containerd again.

        Raises the same errors as entering. A program started with `enter` stays ended.
        """
        keeper = self._kept()
        if keeper.stdin:
            keeper.stdin.write("reboot\n")
            keeper.stdin.flush()
        self._until_ready(keeper)
        # They were killed with all other processes.
        self._stop_all()
        for of_before in (self._site.runc_root, self._site.containerd_state):
            if of_before.exists():
                shutil.rmtree(of_before)
        self._boot()

    @property
    def root(self) -> Path:
        """The node's /, as its programs see it."""
        return Path(f"/proc/{self._kept().pid}/root")

    def run(self, *command: str | Path) -> str:
        """Run a program of the node to its end; return its output. Raises CommandFailed."""
        inside = node_commands.within(self._kept().pid, command)
        answer = subprocess.run(inside, env={"PATH": _PATH}, capture_output=True, text=True, check=False)
        if answer.returncode != 0:
            message = f"{self.name}: {' '.join(map(str, command))}: {answer.stderr.strip() or answer.returncode}"
            raise CommandFailed(message)
        return answer.stdout

    @property
    def folder(self) -> Path:
        """Folder of all its files, with the logs of its programs; the same path inside and outside."""
        return self._site.folder

    @property
    def kubelet_folder(self) -> Path:
        """The node's /var/lib/kubelet, as seen from outside."""
        return self.folder / "var-lib" / "kubelet"

    @property
    def device_plugins(self) -> Path:
        """The node's /var/lib/kubelet/device-plugins, as seen from outside."""
        return self.kubelet_folder / "device-plugins"

    @property
    def cdi(self) -> Path:
        """The node's /var/run/cdi, as seen from outside; containerd reads its specs there."""
        return self.folder / "run" / "cdi"

    @property
    def static_pods(self) -> Path:
        """Folder of static pods, one file each, which the kubelet runs."""
        return self._site.static_pods

    @property
    def cgroup(self) -> str:
        """Name of the cgroup, in every hierarchy, that holds its pods."""
        return self._site.cgroup

    @property
    def pids(self) -> dict[str, int]:
        """Process IDs of the running programs, by program."""
        return {name: child.pid for name, child in self._servers.items()}

    @property
    def children(self) -> list[Child]:
        """Its programs in the order of their starts, including stopped ones and those started with `enter`."""
        return [*self._entered]

    def start_containerd(self) -> None:
        """Start containerd with the images of `images.py`; return once it serves."""
        configuration = self.folder / "containerd.toml"
        command = node_commands.containerd(self._programs["containerd"], configuration)
        child = self._start("containerd", command)
        readiness.wait_until(child, readiness.missing_at_socket(self._site.socket))
        self.import_images(self.folder / "images.tar")

    def import_images(self, archive: Path) -> None:
        """Have containerd import the images of the archive. Raises NotReady."""
        ctr = node_commands.ctr(self._programs["ctr"], self._site)
        command = [*ctr, "images", "import", "--local", str(archive)]
        answer = subprocess.run(command, capture_output=True, text=True, timeout=_IMPORT_WITHIN_S, check=False)
        if answer.returncode != 0:
            message = f"containerd of {self.name} does not take the images: {answer.stderr}"
            raise readiness.NotReady(message)

    def stop_containerd(self) -> None:
        """Send SIGTERM and wait for its end; containers keep running."""
        self._servers.pop("containerd").stop()

    def start_kubelet(self) -> None:
        """Start the kubelet; return once it is healthy and the node is ready."""
        kubeconfig = self.cluster.node_kubeconfig_path(self.name)
        configuration = self.folder / "kubelet.yaml"
        command = node_commands.kubelet(self._programs["kubelet"], self.name, configuration, kubeconfig)
        child = self._start("kubelet", command)
        readiness.wait_until(child, readiness.missing_at_http(self._site.health_port, "/healthz"))
        readiness.wait_until(child, readiness.missing_of_node(self.cluster.access(), self.name))

    def stop_kubelet(self) -> None:
        """Send SIGTERM and wait for its end; containers keep running."""
        self._servers.pop("kubelet").stop()

    def kill_kubelet(self) -> None:
        """Send SIGKILL and wait for its end; containers keep running."""
        self._servers.pop("kubelet").kill()

    def enter(self, name: str, command: Sequence[str | Path], environment: Mapping[str, str] | None = None) -> Child:
        """Start one more program of the node, with the kubelet's view; it ends with the node.

        name: of the program and of its log in the node's folder, where output is appended. environment: added to PATH,
        HOME and TMPDIR; nothing is inherited.
        """
        home = str(self.folder)
        everything = {"PATH": os.defpath, "HOME": home, "TMPDIR": home, **(environment or {})}
        inside = node_commands.within(self._kept().pid, command)
        child = start(name, inside, self.folder / f"{name}.log", everything)
        self._entered.append(child)
        return child

    def container(self, pod: Json, name: str | None = None) -> LocalContainer:
        """Return a container of a pod on this node, see `containers.find`. Raises NoSuchContainer."""
        return containers.find(self._site, self._programs["runc"], pod, name)

    def running(self) -> list[RunningContainer]:
        """Return every container of a pod that now runs on this node."""
        return containers.running(self._site)

    def kill_containerd(self) -> None:
        """Send SIGKILL and wait for its end; containers keep running."""
        self._servers.pop("containerd").kill()

    def _keep(self, undo: ExitStack) -> None:
        """Have the keeper create the node's folder, cgroups and mount namespace, and undo them at the end."""
        self.folder.mkdir(mode=0o700)
        keeper = subprocess.Popen(
            [sys.executable, "-I", "-S", _KEEPER, self.folder, self._site.cgroup],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        undo.callback(keeper.communicate)  # closes its standard input and waits for its end
        self._until_ready(keeper)
        self._keeper = keeper

    def _until_ready(self, keeper: subprocess.Popen[str]) -> None:
        said = keeper.stdout.readline().strip() if keeper.stdout else ""
        if said != "ready":
            message = f"{NOT_HERE}: {said or 'the keeper of the node ended'}"
            raise NodeUnavailable(message)

    def _kept(self) -> subprocess.Popen[str]:
        if self._keeper is None:
            message = f"node {self.name} is not started: enter it first"
            raise RuntimeError(message)
        return self._keeper

    def _boot(self) -> None:
        self.cdi.mkdir(parents=True)
        if self._hardware is not None:
            self._hardware.boot(self)
        self.start_containerd()
        self.start_kubelet()

    def _write_files(self) -> None:
        site = self._site
        for folder in (site.network, site.static_pods, self.device_plugins):
            folder.mkdir(parents=True)
        busybox, pause = images.busybox(self._programs["busybox"]), images.Image(images.PAUSE, self._programs["pause"])
        images.archive([busybox, pause], site.folder / "images.tar")
        kubelet = node_commands.kubelet_configuration(site, self.cluster.ca_file, self._overrides)
        runc = self._programs["runc"]
        of_hardware = self._hardware.install(site, runc) if self._hardware else ""
        for name, text in {
            "containerd.toml": node_commands.containerd_configuration(site, runc) + of_hardware,
            "kubelet.yaml": commands.as_yaml(kubelet),
            "network/10-none.conflist": node_commands.network_configuration(),
        }.items():
            (site.folder / name).write_text(text)

    def _start(self, name: str, command: list[str]) -> Child:
        child = self.enter(name, command)
        self._servers[name] = child
        return child

    def _stop_all(self) -> None:
        """Stop all in reverse order of start; already ended ones are skipped."""
        while self._entered:
            self._entered.pop().stop()
        self._servers.clear()

    def _forget(self) -> None:
        """Remove the node, its lease and its pods from the API server, if that still runs."""
        access = self.cluster.access()
        with suppress(OSError, http.client.HTTPException):
            answer = ask(access, f"/api/v1/pods?fieldSelector=spec.nodeName={self.name}")
            pods = json.loads(answer.body)["items"] if answer.status == HTTPStatus.OK else []
            for pod in (found["metadata"] for found in pods):
                path = f"/api/v1/namespaces/{pod['namespace']}/pods/{pod['name']}"
                ask(access, f"{path}?gracePeriodSeconds=0", "DELETE")
            ask(access, f"/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases/{self.name}", "DELETE")
            ask(access, f"/api/v1/nodes/{self.name}", "DELETE")
