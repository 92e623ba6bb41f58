"""The process in the background that holds the local cluster: `python -m e2e.local_cluster.keeper`.

    started --> takes the lock --> clears what an earlier one has left --> starts everything --says READY--> UP
    UP --a program dies--> it is started again --> UP
    UP --SIGTERM--> everything ended and removed

Says each step on standard output, and `READY` or why not; from then on it writes to its log. Its end takes everything
along, also when it is killed.
"""

import base64
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterable
from pathlib import Path
from types import FrameType
from typing import Any, Final

from e2e.control_plane import binaries, cache, commands, pki, processes, readiness
from e2e.control_plane.admin import NotSeen, UnexpectedAnswer
from e2e.control_plane.cluster import ControlPlane
from e2e.local_cluster import leftovers, record
from e2e.local_cluster.parts import parts, started
from e2e.local_cluster.restarts import Restarts
from e2e.node.local_node import NodeUnavailable
from e2e.programs.plugin_process import DevicePluginProcess
from tests.support.repository import ROOT

READY: Final = "READY"
_LOOK_EVERY_S: Final = 0.2
CONTEXT: Final = "gpushare-local"
_OF_THE_PROJECT: Final = ("kubectl-*", "gpushare-*")
_TOLD: Final = (
    NodeUnavailable,
    binaries.BuildFailed,
    binaries.GoUnavailable,
    cache.PackageUnavailable,
    pki.OpensslUnavailable,
    processes.Died,
    readiness.NotReady,
    NotSeen,
    UnexpectedAnswer,
)


def clear() -> None:
    """Take away what the cluster that was written down last has left. With the lock held, by whoever calls."""
    if (last := record.read()) is not None:
        for folder in last.folders:
            leftovers.remove(Path(folder))
    record.forget()


def main() -> int:
    """Hold a cluster until SIGTERM. Exit code 1: there is one already, or it does not start."""
    if (lock := record.taken()) is None:
        _say("a cluster is up, or being started, already")
        return 1
    with lock:
        record.sign(lock)
        clear()
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, _end)
        try:
            _hold()
        except KeyboardInterrupt:
            return 0
        except _TOLD as error:
            _say(f"{error}")
            return 1
        finally:
            record.forget()
            record.remove_lock()
    return 0


def _hold() -> None:
    made_of = parts()
    record.write(record.Record(made_of.folders, made_of.plane.url))
    with started(made_of, _say) as running:
        _write_kubeconfig(made_of.plane)
        _link_programs()
        _link_sockets(running.plugins)
        _say(READY)
        _go_on_in_the_log(record.log())
        restarts = Restarts(running.children, _say, time.monotonic())
        while True:
            time.sleep(_LOOK_EVERY_S)
            restarts.look(time.monotonic())


def _end(number: int, frame: FrameType | None) -> None:
    """Once: what is under way at a second signal is the end."""
    del number, frame
    for each in (signal.SIGTERM, signal.SIGINT):
        signal.signal(each, signal.SIG_IGN)
    raise KeyboardInterrupt


def _write_kubeconfig(plane: ControlPlane) -> None:
    """Whole in one file, and of the user who asked for the cluster, so that kubectl takes no root."""
    document: dict[str, Any] = commands.kubeconfig(plane.url, plane.ca_file, {"token": plane.admin_token}, CONTEXT)
    authority = base64.b64encode(plane.ca_file.read_bytes()).decode()
    document["clusters"][0]["cluster"] = {"server": plane.url, "certificate-authority-data": authority}
    path = record.kubeconfig()
    path.touch(mode=0o600)
    path.write_text(commands.as_yaml(document), encoding="utf-8")
    if user := os.environ.get("SUDO_UID"):
        os.chown(path, int(user), -1)


def _link_programs() -> None:
    """kubectl, its plugins and our programs in one folder: of a virtual environment they would bring a python along."""
    found = [path for pattern in _OF_THE_PROJECT for path in sorted(Path(sys.executable).parent.glob(pattern))]
    record.programs().mkdir()
    for program in (binaries.ensure(["kubectl"])["kubectl"], *found):
        (record.programs() / program.name).symlink_to(program)


def _link_sockets(plugins: Iterable[DevicePluginProcess]) -> None:
    record.faults().mkdir()
    for plugin in plugins:
        (record.faults() / plugin.node.name).symlink_to(plugin.control)


def _say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def _go_on_in_the_log(path: Path) -> None:
    """Whoever started this process goes, and the terminal with him."""
    with path.open("ab") as log:
        for stream in (sys.stdout, sys.stderr):
            os.dup2(log.fileno(), stream.fileno())


def launch() -> subprocess.Popen[str]:
    """Start one in a session of its own, so that Ctrl-C does not reach it; what it says is on its standard output."""
    command = [sys.executable, "-m", "e2e.local_cluster.keeper"]
    return subprocess.Popen(
        command,
        cwd=ROOT,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )


if __name__ == "__main__":
    sys.exit(main())
