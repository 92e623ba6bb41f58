"""What a container of a node of ours is like from within, asked without kubelet and containerd."""

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
    """The pod has no such container, or it does not run; the message says which."""


@dataclass(frozen=True, slots=True)
class LocalContainer:
    """One life of one container: a restart makes another one. Made by `find`.

    runtime: `runc` and where it keeps its containers. log: what the kubelet writes of its output.
    """

    id: str
    runtime: tuple[str, ...]
    log: Path

    @property
    def pid(self) -> int:
        """Of its first process, as this machine counts. Raises NoSuchContainer where it has ended."""
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
        """Run one more program in it; what that writes. Raises NoSuchContainer with its error output."""
        return self._run("exec", self.id, *command)

    def output(self) -> str:
        """What it has written so far, both streams."""
        lines = self.log.read_text().splitlines() if self.log.exists() else []
        # TIME STREAM TAG CONTENT; tag P: the line goes on in the next entry.
        entries = [line.split(" ", 3) for line in lines]
        return "".join(entry[3] + ("" if entry[2] == "P" else "\n") for entry in entries)

    def lives(self) -> "list[LocalContainer]":
        """Lives of the container whose output the kubelet has kept, this one last; only the output is theirs."""
        return [replace(self, log=log) for log in sorted(self.log.parent.glob("*.log"))]

    def _run(self, *arguments: str) -> str:
        answer = subprocess.run([*self.runtime, *arguments], capture_output=True, text=True, check=False)
        if answer.returncode != 0:
            message = f"container {self.id}: {arguments[0]}: {answer.stderr.strip() or answer.returncode}"
            raise NoSuchContainer(message)
        return answer.stdout


@dataclass(frozen=True, slots=True)
class RunningContainer:
    """pod_uid, name: as its kubelet calls it. pid: as LocalContainer. environment: of its first process."""

    pod_uid: str
    name: str
    pid: int
    environment: dict[str, str]

    def still_runs(self) -> bool:
        """Whether this process is there, with what it was started with."""
        return _environment(self.pid) == self.environment


def running(site: NodeSite) -> list[RunningContainer]:
    """Containers of pods that run at this moment, whatever kubelet and containerd know of them."""
    found = []
    for folder in (site.runc_root / NAMESPACE).glob("*"):
        try:
            state = json.loads((folder / "state.json").read_text())
            labels = dict(label.split("=", 1) for label in state["config"]["labels"])
            pid = state["init_process_pid"]
        except (OSError, ValueError, KeyError):
            continue  # it is being made, or removed
        if (inside := _environment(pid)) and labels.get(_KIND) == "container":
            found.append(RunningContainer(labels[_POD_UID], labels[_NAME], pid, inside))
    return found


def _environment(pid: int) -> dict[str, str]:
    """{} where the process has ended."""
    try:
        entries = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    except OSError:
        return {}
    return dict(os.fsdecode(entry).split("=", 1) for entry in entries if entry)


def find(site: NodeSite, runc: Path, pod: Json, name: str | None) -> LocalContainer:
    """The container of that name, an init container too, as the pod's status has it.

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
