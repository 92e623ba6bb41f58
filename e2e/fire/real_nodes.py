"""Real nodes under fire: two kubelets, each with containerd and our device plugin, whose programs are killed.

    real_nodes ──▶ [RealNode: LocalNode + plugin with its own rights] ──end──▶ gone

Several on one machine: `e2e.node.local_node`. Containers go on whichever of the programs is away.
"""

import asyncio
import random
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from typing import Final

from e2e.control_plane.admin import Admin, Json
from e2e.control_plane.cluster import ControlPlane
from e2e.fire import workload
from e2e.fire.beside import beside
from e2e.fire.on_cards import OnCards
from e2e.fire.site import Site
from e2e.node.local_node import LocalNode
from e2e.programs import manifests
from e2e.programs.plugin_process import DevicePluginProcess, token
from e2e.suites import policy_site
from e2e.suites.shared_node import GIB, passing, shared_pod, sharing

_LOOK_EVERY_S: Final = 0.3
_READING: Final = "1s"
_MOST_PODS: Final = 500


@dataclass(slots=True)
class RealNode:
    """programs: held by whoever stops one of them."""

    node: LocalNode
    plugin: DevicePluginProcess
    programs: asyncio.Lock = field(default_factory=asyncio.Lock)

    @property
    def faults(self) -> dict[str, Callable[[], None]]:
        """What can be done to its programs: each is killed or stopped, and started again at once. They block."""
        return {
            "SIGKILL of the kubelet": self._kubelet_killed,
            "SIGTERM of the kubelet": self._kubelet_stopped,
            "SIGKILL of the device plugin": self._plugin_killed,
            "SIGTERM of the device plugin": self.restart_plugin,
            "SIGKILL of containerd": self._containerd_killed,
            "SIGKILL of kubelet and device plugin": self._both_killed,
        }

    async def suffer(self, site: Site, rng: random.Random) -> None:
        """One of them."""
        what, fault = rng.choice(sorted(self.faults.items()))
        async with self.programs:
            site.say(f"{what} of {self.node.name}")
            await beside(fault)
            site.say(f"{self.node.name} is back")

    def _kubelet_killed(self) -> None:
        self.node.kill_kubelet()
        self.node.start_kubelet()

    def _kubelet_stopped(self) -> None:
        self.node.stop_kubelet()
        self.node.start_kubelet()

    def restart_plugin(self) -> None:
        """Told to stop; the next one does not ask the scheduler to wait for it (docs/decisions/0020)."""
        self.plugin.stop()
        self.plugin.start()

    def _plugin_killed(self) -> None:
        self.plugin.kill()
        self.plugin.start()

    def _containerd_killed(self) -> None:
        self.node.kill_containerd()
        self.node.start_containerd()

    def _both_killed(self) -> None:
        self.node.kill_kubelet()
        self.plugin.kill()
        self.plugin.start()
        self.node.start_kubelet()


@asynccontextmanager
async def real_nodes(cluster: ControlPlane, admin: Admin, names: list[str]) -> AsyncIterator[list[RealNode]]:
    """Nodes of these names, each with cards as those of `workload`, and the admission policies as installed."""
    for document in manifests.documents("device-plugin-rbac.yaml"):
        await manifests.apply(admin, document)
    await policy_site.apply(admin, policy_site.policies())
    async with AsyncExitStack() as stack:
        made = []
        for name in names:
            node = LocalNode(cluster, name, kubelet={"maxPods": _MOST_PODS})
            await beside(node.__enter__)
            stack.push_async_callback(beside, _leaving(node))
            cards = [workload.UNITS * GIB] * workload.CARDS
            plugin = DevicePluginProcess(node, await token(admin, name), cards, readingInterval=_READING)
            await beside(plugin.start)
            await plugin.ready()
            made.append(RealNode(node, plugin))
        yield made
    await policy_site.remove(admin, policy_site.policies())


def _leaving(node: LocalNode) -> Callable[[], None]:
    return lambda: node.__exit__(None, None, None)


def pod(name: str, rng: random.Random) -> Json:
    """A pod as `workload.pod`, whose containers run, and write down what they find."""
    units = rng.randint(1, workload.UNITS // 2)
    containers, inits = [sharing(units, name="app")], []
    metadata: Json = {}
    match rng.randrange(8):
        case 0:
            inits = [sharing(1, name="side", restartPolicy="Always")]
        case 1:
            inits = [passing(rng.randint(1, workload.UNITS // 2))]
        case 2:
            containers = [sharing(2 * units, name="app"), sharing(0, name="beside")]
            metadata = {"labels": {"aliyun.com/gpu-count": "2"}}
    # One second: the pod is gone from the API server when its containers are gone.
    return shared_pod(
        name,
        containers,
        metadata=metadata,
        initContainers=inits,
        terminationGracePeriodSeconds=1,
        restartPolicy="Always",
    )


async def watch_cards(site: Site, nodes: list[RealNode], on_cards: OnCards) -> None:
    """Look again and again, until cancelled."""
    while True:
        running = [one for each in nodes for one in await asyncio.to_thread(each.node.running)]
        on_cards.look(running, {uid: seen.pod for uid, seen in site.witness.pods.items()})
        await asyncio.sleep(_LOOK_EVERY_S)
