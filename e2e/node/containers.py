"""Containers of a test node as seen from inside, inspected without kubelet and containerd."""

import json
import os
import subprocess
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

from e2e.control_plane.admin import Json
from e2e.node.node_commands import NAMESPACE, NodeSite

_STATUSES: Final = ("containerStatuses", "initContainerStatuses", "ephemeralContainerStatuses")
_SCHEME: Final = "containerd://"
# Source: containerd, internal/cri/annotations/annotations.go.
_KIND: Final = "io.kubernetes.cri.container-type"
_NAME: Final = "io.kubernetes.cri.container-name"
_POD_UID: Final = "io.kubernetes.cri.sandbox-uid"


class NoSuchContainer(Exception):
    """The pod has no such container, or it is not running; the message says which."""


@dataclass(frozen=True, slots=True)
class LocalContainer:
    """One life of one container: a restart creates another one. Created by `find`.

    runtime: `runc` and where it keeps its containers. log: where the kubelet writes its output.
    """

    id: str
    runtime: tuple[str, ...]
    log: Path

    @property
    def pid(self) -> int:
        """PID of its first process, in this machine's numbering. Raises NoSuchContainer if it has ended."""
        state: dict[str, Any] = json.loads(self._run("state", self.id))
        if state["status"] != "running":
            message = f"container {self.id} is {state['status']}"
            raise NoSuchContainer(message)
        pid: int = state["pid"]
        return pid

    def environment(self) -> dict[str, str]:
        """Variables that its first process was started with."""
        return _environment(self.pid)

    def execute(self, *command: str) -> str:
        """Run one more program in it; return its output. Raises NoSuchContainer with its error output."""
        return self._run("exec", self.id, *command)

    def output(self) -> str:
        """Return its output so far, both streams."""
        lines = self.log.read_text().splitlines() if self.log.exists() else []
        # TIME STREAM TAG CONTENT; tag P: the line continues in the next entry.
        entries = [line.split(" ", 3) for line in lines]
        return "".join(entry[3] + ("" if entry[2] == "P" else "\n") for entry in entries)

    def lives(self) -> "list[LocalContainer]":
        """Return the lives of the container with kept output, this one last; only their output is their own."""
        return [replace(self, log=log) for log in sorted(self.log.parent.glob("*.log"))]

    def _run(self, *arguments: str) -> str:
        answer = subprocess.run([*self.runtime, *arguments], capture_output=True, text=True, check=False)
        if answer.returncode != 0:
            message = f"container {self.id}: {arguments[0]}: {answer.stderr.strip() or answer.returncode}"
            raise NoSuchContainer(message)
        return answer.stdout


@dataclass(frozen=True, slots=True)
class RunningContainer:
    """A running container. pod_uid, name: as in its kubelet. pid: as LocalContainer. environment: at its start."""

    pod_uid: str
    name: str
    pid: int
    environment: dict[str, str]

    def still_runs(self) -> bool:
        """Return whether this process still exists, with the same initial environment."""
        return _environment(self.pid) == self.environment


def running(site: NodeSite) -> list[RunningContainer]:
    """Return the containers of pods that run now, whether or not kubelet and containerd know of them."""
    found = []
    for folder in (site.runc_root / NAMESPACE).glob("*"):
        try:
            state = json.loads((folder / "state.json").read_text())
            labels = dict(label.split("=", 1) for label in state["config"]["labels"])
            pid = state["init_process_pid"]
        except (OSError, ValueError, KeyError):
            continue  # it is being created or removed
        if (inside := _environment(pid)) and labels.get(_KIND) == "container":
            found.append(RunningContainer(labels[_POD_UID], labels[_NAME], pid, inside))
    return found


def _environment(pid: int) -> dict[str, str]:
    """Return the process's environment; {} if it has ended."""
    try:
        entries = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    except OSError:
        return {}
    return dict(os.fsdecode(entry).split("=", 1) for entry in entries if entry)


def find(site: NodeSite, runc: Path, pod: Json, name: str | None) -> LocalContainer:
    """Return the container with that name, possibly an init container, from the pod's status.

    pod: as the API server gave it. name: None: its first container. Raises NoSuchContainer.
    """
    wanted = name or pod["spec"]["containers"][0]["name"]
    key = f"{pod['metadata']['namespace']}/{pod['metadata']['name']}"
    for status in (status for field in _STATUSES for status in pod["status"].get(field, [])):
        if status["name"] == wanted and status.get("containerID"):
            folder = f"{key.replace('/', '_')}_{pod['metadata']['uid']}"
            log = site.pod_logs / folder / wanted / f"{status['restartCount']}.log"
            runtime = (str(runc), "--root", str(site.runc_root / NAMESPACE))
            return LocalContainer(status["containerID"].removeprefix(_SCHEME), runtime, log)
    message = f"pod {key} has no container {wanted} yet: {pod['status']}"
    raise NoSuchContainer(message)
