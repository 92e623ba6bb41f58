"""The local cluster, and the process that holds it in the foreground.

    started --> takes the lock --> starts everything --> UP
    UP --a program dies--> it is started again --> UP
    UP --Ctrl-C, SIGTERM--> everything ended and removed

Says each step on standard output. Everything ends with it, also when it is killed: servers are tied to it, and
`e2e/node/node_keeper.py` and the sweepers clear what they leave.

A control plane, two nodes, the manifests, and both programs. These run as processes of this machine, since there is no
image of them, each with the rights that `deploy/manifests` gives its account; the scheduler's Deployment and the
plugin's DaemonSet are therefore left out.
"""

import asyncio
import base64
import fcntl
import itertools
import os
import shlex
import shutil
import signal
import sys
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from types import FrameType
from typing import Any, Final, NoReturn

from e2e.control_plane import binaries, cache, commands, pki, processes, readiness
from e2e.control_plane.admin import Admin, NotSeen, UnexpectedAnswer, done, seen
from e2e.control_plane.cluster import ControlPlane
from e2e.control_plane.processes import Child
from e2e.node.announced import allocatable
from e2e.node.local_node import LocalNode
from e2e.node.node_programs import NodeUnavailable
from e2e.programs import manifests, plugin_process
from e2e.programs.plugin_process import DevicePluginProcess
from e2e.programs.scheduler_process import SchedulerProcess
from scheduler.process.output import show_text

CONTEXT: Final = "gpushare-local"
# A program that ends at each start costs a start in this time, no more.
_LOOK_EVERY_S: Final = 3.0
_OF_THE_PROJECT: Final = ("kubectl-*", "kubectl_*", "gpushare-*")
CARDS_MIB: Final[Mapping[str, tuple[int, ...]]] = {"n1": (16_384, 16_384), "n2": (81_920,)}
_STEPS: Final = 4  # and one for each node
_READY_WITHIN_S: Final = 60.0
# As long as the certificates.
_LASTS_S: Final = 7 * 24 * 3600
# Elected, as an installed one is, for who asks the Lease; nobody was there before, so that its first wait may be short.
_SCHEDULER: Final[Mapping[str, Any]] = {
    "bindTimeout": "0s",
    "leaderElection": {"leaseDuration": "8s", "renewDeadline": "3s", "retryPeriod": "1s"},
}
_RUN_AS_PROCESSES: Final = frozenset({"Deployment", "DaemonSet"})
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


_NEXT: Final = """\

For another shell:

  {exports}

Then, in this folder:

  kubectl apply -f docs/examples/first-pod.yaml
  kubectl wait --for=condition=Ready pod/first-pod && kubectl logs first-pod     # the card that it has
  kubectl inspect gpushare -d                                                    # who holds how much of which card
  kubectl apply -f docs/examples/too-big.yaml && gpushare-scheduler explain too-big

Ctrl-C here ends the cluster; nothing of it stays.

More: docs/local-cluster.md
"""


def say(line: str) -> None:
    """Print it at once."""
    show_text(f"{line}\n")


def home() -> Path:
    """The folder in the user's cache; it is there while a cluster is."""
    return cache.folder() / "cluster"


def is_up() -> bool:
    """Whether a process holds a cluster."""
    with _lock() as ours:
        return not ours


@contextmanager
def _lock() -> Iterator[bool]:
    """Hold the lock of the cache folder. Yields False while another process holds it."""
    cache.folder().mkdir(parents=True, exist_ok=True)
    folder, ours = os.open(cache.folder(), os.O_RDONLY), False
    try:
        with suppress(BlockingIOError):
            fcntl.flock(folder, fcntl.LOCK_EX | fcntl.LOCK_NB)
            ours = True
        yield ours
    finally:
        os.close(folder)


def hold() -> int:
    """Hold a cluster until SIGINT or SIGTERM. Exit code 1: there is one already, or it does not start."""
    with _lock() as ours:
        if not ours:
            say("a cluster is up, or being started, already")
            return 1
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, _end)
        try:
            _until_interrupted()
        except KeyboardInterrupt:
            say("gone")
            return 0
        except EXPECTED as error:
            say(f"not started: {error}")
        finally:
            shutil.rmtree(home(), ignore_errors=True)
    return 1


def next_steps() -> str:
    """How to reach the cluster that is up."""
    kubeconfig, programs = (shlex.quote(str(home() / name)) for name in ("kubeconfig", "bin"))
    return _NEXT.format(exports=f"export KUBECONFIG={kubeconfig} PATH={programs}:$PATH")


def _until_interrupted() -> NoReturn:
    began_s = time.monotonic()
    say("starting:")
    # What is left of one that was killed.
    shutil.rmtree(home(), ignore_errors=True)
    home().mkdir()
    plane = ControlPlane(controller_manager=True, scheduler={}, kubelets=tuple(CARDS_MIB))
    nodes = [LocalNode(plane, name) for name in CARDS_MIB]
    with _started(plane, nodes) as (plugins, children):
        _write_kubeconfig(plane)
        # The folder of a virtual environment would bring a python along.
        ours = [path for pattern in _OF_THE_PROJECT for path in sorted(Path(sys.executable).parent.glob(pattern))]
        _link("bin", [(program.name, program) for program in (binaries.ensure(["kubectl"])["kubectl"], *ours)])
        _link("faults", [(plugin.node.name, plugin.control) for plugin in plugins])
        say(f"up after {time.monotonic() - began_s:.1f} s\n{next_steps()}")
        folders = (plane.folder, *(node.folder for node in nodes))
        say(f"Logs: {', '.join(map(str, folders))}")
        while True:
            time.sleep(_LOOK_EVERY_S)
            for child in children:
                if (exit_code := child.process.poll()) is not None:
                    say(f"{child.name} ended with exit code {exit_code}; starting it again")
                    child.start_again()


@contextmanager
def _started(
    plane: ControlPlane, nodes: Sequence[LocalNode]
) -> Iterator[tuple[list[DevicePluginProcess], list[Child]]]:
    """The cluster while the context lasts, from when pods can be scheduled to every node.

    Says a numbered line before each step. Yields the plugins, and every program in the order of the starts.
    """
    number = itertools.count(1)

    def begin(step: str) -> None:
        say(f"  {next(number)} of {_STEPS + len(nodes)}: {step}")

    with ExitStack() as running:
        begin("etcd, kube-apiserver, kube-controller-manager, kube-scheduler")
        running.enter_context(plane)
        for node in nodes:
            begin(f"node {node.name}: containerd, kubelet")
            running.enter_context(node)
        begin("deploy/manifests: rights, configuration, admission policies")
        of_scheduler, of_plugins = asyncio.run(_installed(plane, nodes))
        begin("gpushare-scheduler, and gpushare-device-plugin on each node")
        kubeconfig = plane.kubeconfig_for(of_scheduler, "gpushare-scheduler")
        scheduler = running.enter_context(SchedulerProcess(kubeconfig, plane.folder, _SCHEDULER))
        plugins = [
            running.enter_context(DevicePluginProcess(node, token, CARDS_MIB[node.name]))
            for node, token in zip(nodes, of_plugins, strict=True)
        ]
        begin("until both programs are ready and the cards are allocatable")
        asyncio.run(_ready(plane, nodes, [scheduler, *plugins]))
        # A plugin is among the programs of its node.
        of_nodes = [child for node in nodes for child in node.children]
        yield plugins, [*plane.children, *of_nodes, scheduler.child]


async def _installed(plane: ControlPlane, nodes: Sequence[LocalNode]) -> tuple[str, list[str]]:
    """(token of the scheduler's account, a token of the device plugin's account for each node)."""
    async with Admin(plane.access()) as admin:
        for file in manifests.installed():
            for document in manifests.documents(file):
                if document["kind"] not in _RUN_AS_PROCESSES:
                    await manifests.apply(admin, document)
        for node in nodes:
            done(await admin.patch(f"/api/v1/nodes/{node.name}", {"metadata": {"labels": {"gpushare": "true"}}}))
        of_plugins = [await plugin_process.token(admin, node.name, lasts_s=_LASTS_S) for node in nodes]
        return await manifests.token(admin, lasts_s=_LASTS_S), of_plugins


async def _ready(
    plane: ControlPlane, nodes: Sequence[LocalNode], programs: Sequence[SchedulerProcess | DevicePluginProcess]
) -> None:
    """A plugin is ready before its kubelet has made the cards allocatable; until then the node takes no pods."""
    await asyncio.gather(*(program.ready() for program in programs))
    async with Admin(plane.access()) as admin:
        for node in nodes:
            of_this = {"fieldSelector": f"metadata.name={node.name}"}
            await seen(admin, "/api/v1/nodes", lambda found: allocatable(found) > 0, of_this, within_s=_READY_WITHIN_S)


def _end(number: int, frame: FrameType | None) -> None:
    """Once: at a second signal the end is under way."""
    del number, frame
    for each in (signal.SIGTERM, signal.SIGINT):
        signal.signal(each, signal.SIG_IGN)
    say("ending the cluster")
    raise KeyboardInterrupt


def _write_kubeconfig(plane: ControlPlane) -> None:
    """Whole in one file, and of the user who asked for the cluster, so that kubectl takes no root."""
    document: dict[str, Any] = commands.kubeconfig(plane.url, plane.ca_file, {"token": plane.admin_token}, CONTEXT)
    authority = base64.b64encode(plane.ca_file.read_bytes()).decode()
    document["clusters"][0]["cluster"] = {"server": plane.url, "certificate-authority-data": authority}
    path = home() / "kubeconfig"
    path.touch(mode=0o600)
    path.write_text(commands.as_yaml(document), encoding="utf-8")
    if user := os.environ.get("SUDO_UID"):
        os.chown(path, int(user), -1)


def _link(folder: str, targets: Iterable[tuple[str, Path]]) -> None:
    (home() / folder).mkdir()
    for name, target in targets:
        (home() / folder / name).symlink_to(target)
