"""The process in the background that holds the local cluster: `python -m e2e.local_cluster hold`.

    started --> takes the lock --> clears what an earlier one has left --> starts everything --says READY--> UP
    UP --a program dies--> it is started again --> UP
    UP --SIGTERM--> everything ended and removed

Says each step on standard output, and `READY` or why not; from then on it writes to its log. Everything ends with it,
also when it is killed.
"""

import base64
import os
import signal
import sys
import time
from collections.abc import Iterable
from pathlib import Path
from types import FrameType
from typing import Any, Final, NoReturn

from e2e.control_plane import binaries, cache, commands, pki, processes, readiness
from e2e.control_plane.admin import NotSeen, UnexpectedAnswer
from e2e.control_plane.cluster import ControlPlane
from e2e.control_plane.processes import Child
from e2e.local_cluster import record
from e2e.local_cluster.parts import parts, started
from e2e.node.local_node import NodeUnavailable
from scheduler.process.output import show_text

READY: Final = "READY"
CONTEXT: Final = "gpushare-local"
# A program that ends at each start costs a start in this time, no more.
_LOOK_EVERY_S: Final = 3.0
_OF_THE_PROJECT: Final = ("kubectl-*", "gpushare-*")
EXPECTED: Final = (
    NodeUnavailable,
    binaries.BuildFailed,
    binaries.GoUnavailable,
    binaries.CompilerUnavailable,
    cache.PackageUnavailable,
    pki.OpensslUnavailable,
    processes.Died,
    readiness.NotReady,
    NotSeen,
    UnexpectedAnswer,
)


def say(line: str) -> None:
    """Print it at once."""
    show_text(f"{line}\n")


def hold() -> int:
    """Hold a cluster until SIGTERM. Exit code 1: there is one already, or it does not start."""
    with record.lock() as ours:
        if not ours:
            say("a cluster is up, or being started, already")
            return 1
        record.clear()
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, _end)
        try:
            _until_sigterm()
        except KeyboardInterrupt:
            return 0
        except EXPECTED as error:
            say(f"{error}")
        finally:
            record.forget()
    return 1


def _until_sigterm() -> NoReturn:
    plane, nodes = parts()
    record.write([str(plane.folder), *(str(node.folder) for node in nodes)])
    with started(plane, nodes, say) as (plugins, children):
        _write_kubeconfig(plane)
        _link("bin", [(program.name, program) for program in _programs()])
        _link("faults", [(plugin.node.name, plugin.control) for plugin in plugins])
        say(READY)
        _go_on_in_the_log()
        while True:
            time.sleep(_LOOK_EVERY_S)
            start_again(children)


def start_again(children: Iterable[Child]) -> None:
    """Start the programs that have died."""
    for child in children:
        if (exit_code := child.process.poll()) is not None:
            say(f"{child.name} ended with exit code {exit_code}; starting it again")
            child.start_again()


def _end(number: int, frame: FrameType | None) -> None:
    """Once: at a second signal the end is under way."""
    del number, frame
    for each in (signal.SIGTERM, signal.SIGINT):
        signal.signal(each, signal.SIG_IGN)
    raise KeyboardInterrupt


def _write_kubeconfig(plane: ControlPlane) -> None:
    """Whole in one file, and of the user who asked for the cluster, so that kubectl takes no root."""
    document: dict[str, Any] = commands.kubeconfig(plane.url, plane.ca_file, {"token": plane.admin_token}, CONTEXT)
    authority = base64.b64encode(plane.ca_file.read_bytes()).decode()
    document["clusters"][0]["cluster"] = {"server": plane.url, "certificate-authority-data": authority}
    path = record.home() / "kubeconfig"
    path.touch(mode=0o600)
    path.write_text(commands.as_yaml(document), encoding="utf-8")
    if user := os.environ.get("SUDO_UID"):
        os.chown(path, int(user), -1)


def _programs() -> list[Path]:
    """kubectl, its plugins and our programs: the folder of a virtual environment would bring a python along."""
    found = [path for pattern in _OF_THE_PROJECT for path in sorted(Path(sys.executable).parent.glob(pattern))]
    return [binaries.ensure(["kubectl"])["kubectl"], *found]


def _link(folder: str, targets: Iterable[tuple[str, Path]]) -> None:
    (record.home() / folder).mkdir()
    for name, target in targets:
        (record.home() / folder / name).symlink_to(target)


def _go_on_in_the_log() -> None:
    """The process that started this one ends, and its terminal may."""
    with (record.home() / "log").open("ab") as log:
        for stream in (sys.stdout, sys.stderr):
            os.dup2(log.fileno(), stream.fileno())
