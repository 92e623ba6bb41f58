"""What the local cluster consists of: a control plane, two nodes, the manifests, and both programs.

The programs run as processes of this machine, since there is no image of them, each with the rights that
`deploy/manifests` gives its account; the scheduler's Deployment and the plugin's DaemonSet are therefore left out.
"""

import asyncio
import itertools
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any, Final

from e2e.control_plane.admin import Admin, Json, done, seen
from e2e.control_plane.cache import Say
from e2e.control_plane.cluster import ControlPlane
from e2e.control_plane.processes import Child
from e2e.node.announced import allocatable
from e2e.node.local_node import LocalNode
from e2e.programs import manifests, plugin_process
from e2e.programs.plugin_process import DevicePluginProcess
from e2e.programs.scheduler_process import SchedulerProcess

CARDS_MIB: Final[Mapping[str, tuple[int, ...]]] = {"n1": (16_384, 16_384), "n2": (81_920,)}
_STEPS: Final = 4  # and one for each node
_ALLOCATABLE_WITHIN_S: Final = 60.0
# As long as the certificates.
_LASTS_S: Final = 7 * 24 * 3600
# Elected, as an installed one is, for who asks the Lease; nobody was there before, so that its first wait may be short.
_SCHEDULER: Final[Mapping[str, Any]] = {
    "bindTimeout": "0s",
    "leaderElection": {"leaseDuration": "8s", "renewDeadline": "3s", "retryPeriod": "1s"},
}
_RUN_AS_PROCESSES: Final = frozenset({"Deployment", "DaemonSet"})
_LABELLED: Final = {"metadata": {"labels": {"gpushare": "true"}}}


def parts() -> tuple[ControlPlane, list[LocalNode]]:
    """One cluster, with ports and folders of its own; `started` starts it."""
    plane = ControlPlane(controller_manager=True, scheduler={}, kubelets=tuple(CARDS_MIB))
    return plane, [LocalNode(plane, name) for name in CARDS_MIB]


@contextmanager
def started(
    plane: ControlPlane, nodes: Sequence[LocalNode], say: Say
) -> Iterator[tuple[list[DevicePluginProcess], list[Child]]]:
    """The cluster while the context lasts, from when pods can be scheduled to every node.

    say: gets a numbered line before each step. Yields the plugins, and every program in the order of the starts. Raises
    what entering a ControlPlane, a LocalNode and a ServerProcess raises.
    """
    begin = _steps(say, _STEPS + len(nodes))
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


def _steps(say: Say, count: int) -> Say:
    """Says each step with its number, of `count`."""
    number = itertools.count(1)
    return lambda step: say(f"  {next(number)} of {count}: {step}")


async def _installed(plane: ControlPlane, nodes: Sequence[LocalNode]) -> tuple[str, list[str]]:
    """(token of the scheduler's account, a token of the device plugin's account for each node)."""
    async with Admin(plane.access()) as admin:
        for file in manifests.installed():
            for document in manifests.documents(file):
                if document["kind"] not in _RUN_AS_PROCESSES:
                    await manifests.apply(admin, document)
        for node in nodes:
            done(await admin.patch(f"/api/v1/nodes/{node.name}", _LABELLED))
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
            await seen(admin, "/api/v1/nodes", _gives_units, of_this, within_s=_ALLOCATABLE_WITHIN_S)


def _gives_units(node: Json) -> bool:
    return allocatable(node) > 0
