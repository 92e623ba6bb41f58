"""Two real kubelets under fire: pods in waves, while kubelets, device plugins, containerd and the scheduler are killed.

The witness sees every state of the store, and whoever looks into the containers sees what runs on which card. Both
nodes are on this machine (`e2e.node.local_node`), each with our device plugin and its own rights; containers go on
whichever of the programs is away. `NIGHTLY_SEED` repeats a run.
"""

import asyncio
import os
import random
import sys
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Final

import pytest

from e2e.control_plane.admin import Admin, Json
from e2e.control_plane.cluster import ControlPlane
from e2e.fire import server_faults, site, workload
from e2e.fire.beside import beside
from e2e.fire.on_cards import OnCards
from e2e.fire.site import AT_ONCE, Site, tolerant
from e2e.node.local_node import LocalNode
from e2e.programs import manifests
from e2e.programs.plugin_process import DevicePluginProcess, token
from e2e.support import policy_site
from e2e.support.shared_node import GIB, passing, shared_pod, sharing

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
        """Told to stop; the next one does not ask the scheduler to wait for it (docs/develop/decisions/0020)."""
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
    await manifests.apply(admin, *manifests.documents("device-plugin-rbac.yaml"))
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


_NODES: Final = ["n1", "n2"]
_PODS: Final = "/api/v1/namespaces/default/pods"
_ALL_RUN_S: Final = 120.0
# A pod that still fits nowhere when nodes have come back says why after 5 minutes.
_SETTLES_S: Final = 400.0


@dataclass(frozen=True, slots=True)
class Plan:
    """waves: of so many pods each, of which the older half goes before the next one. Seconds between the others."""

    waves: int
    pods: int
    every_s: float
    node_faults: tuple[float, float]
    kills: tuple[float, float]


SHORT: Final = Plan(waves=2, pods=15, every_s=5.0, node_faults=(1.0, 2.0), kills=(3.0, 5.0))
LONG: Final = Plan(waves=10, pods=30, every_s=15.0, node_faults=(3.0, 9.0), kills=(10.0, 25.0))


@pytest.fixture
def cluster(node_ready: None) -> Iterator[ControlPlane]:  # noqa: ARG001 - asked for its skip
    with ControlPlane(controller_manager=True) as started:
        yield started


@pytest.mark.nightly
@pytest.mark.parametrize("plan", [pytest.param(SHORT, id="short"), pytest.param(LONG, id="long")])
async def test_every_container_has_the_cards_of_its_pod_and_no_card_more_than_its_size(
    cluster: ControlPlane, admin: Admin, tmp_path: Path, plan: Plan
) -> None:
    seed = int(os.environ.get("NIGHTLY_SEED", random.SystemRandom().randrange(2**32)))
    sys.stdout.write(f"NIGHTLY_SEED={seed}, {plan}\n")
    on_cards, began_s = OnCards(workload.UNITS), time.monotonic()
    async with (
        real_nodes(cluster, admin, _NODES) as nodes,
        site.fire(cluster, admin, "default", tmp_path, seed=seed, nodes=0, replicas=2) as under_fire,
    ):
        looking = asyncio.create_task(watch_cards(under_fire, nodes, on_cards))
        replaced = await _waves(under_fire, nodes, plan)
        for each in nodes:
            # A plugin that was killed again and again keeps pods away for up to ten minutes.
            await beside(each.restart_plugin)
        await _all_run(under_fire, replaced, within_s=_ALL_RUN_S)
        wrong = await under_fire.settled(_SETTLES_S)
        looking.cancel()
        await asyncio.wait({looking})
        running = [one.pod for one in under_fire.witness.pods.values() if one.node and not one.gone]
        wrong += [f"{pod['metadata']['name']} does not run" for pod in running if not _runs(pod)]
        wrong += on_cards.faults

    done = [line.partition(": ")[2].partition(" of n")[0] for line in under_fire.said]
    counts = {what: done.count(what) for what in sorted(set(done)) if "SIG" in what}
    sys.stdout.write(
        f"{under_fire}, {len(on_cards.looked)} containers looked into, at most "
        f"{max(on_cards.most.values(), default=0)} of {workload.UNITS} units of a card in use, "
        f"{len(replaced)} pods rejected by a kubelet and replaced, {counts}, {time.monotonic() - began_s:.0f} s\n"
    )
    assert wrong == [], "\n".join(wrong)
    assert len(on_cards.looked) >= plan.pods


async def _waves(under_fire: Site, nodes: list[RealNode], plan: Plan) -> list[str]:
    """What a kubelet has rejected, and was replaced, a line each."""
    rng, enough, replaced = under_fire.rng("pauses"), asyncio.Event(), list[str]()
    suffers = under_fire.rng("nodes")
    faults = [
        (plan.kills, partial(_kill, under_fire, under_fire.rng("away"))),
        *((plan.node_faults, partial(each.suffer, under_fire, suffers)) for each in nodes),
        ((0.0, 2 * _LOOK_EVERY_S), partial(_replace, under_fire, replaced)),
    ]
    async with asyncio.TaskGroup() as tasks:
        for pause, once in faults:
            tasks.create_task(site.again(random.Random(rng.random()), pause, once, enough))  # noqa: S311 - of one seed
        for number in range(plan.waves):
            await _wave(under_fire, number, plan.pods)
            await asyncio.sleep(plan.every_s)
        enough.set()
    return replaced


async def _kill(under_fire: Site, rng: random.Random) -> None:
    await server_faults.kill_scheduler(under_fire, rng.uniform(0.0, 1.0), rng.choice(under_fire.replicas))


async def _wave(under_fire: Site, number: int, count: int) -> None:
    there = [one.pod["metadata"]["name"] for one in under_fire.witness.pods.values() if one.node and not one.gone]
    going = [name for name in there if not name.startswith("device-plugin")][: len(there) // 2]
    under_fire.say(f"{len(going)} pods go, {count} come")
    for name in going:
        await tolerant(under_fire.admin.delete(f"{_PODS}/{name}"))
    rng = under_fire.rng(f"wave {number}")
    await under_fire.admin.create_all(_PODS, (pod(f"wave-{number}-{k}", rng) for k in range(count)))


async def _replace(under_fire: Site, replaced: list[str]) -> None:
    """As a controller does: one that a kubelet has rejected goes, and another one comes."""
    failed = [one.pod for one in under_fire.witness.pods.values() if not one.gone and _has_failed(one.pod)]
    for pod in failed:
        name = pod["metadata"]["name"]
        await tolerant(under_fire.admin.delete(f"{_PODS}/{name}", AT_ONCE))
        replaced.append(f"{name}: {pod['status'].get('reason')}")
        metadata = {"name": f"{name}-again", "labels": pod["metadata"].get("labels") or {}}
        await tolerant(under_fire.admin.post(_PODS, {"metadata": metadata, "spec": pod["spec"] | {"nodeName": None}}))


async def _all_run(under_fire: Site, replaced: list[str], *, within_s: float) -> None:
    """Return when every pod with a node runs, or the time is over."""
    until_s = time.monotonic() + within_s
    while time.monotonic() < until_s:
        there = [one.pod for one in under_fire.witness.pods.values() if one.node and not one.gone]
        if all(map(_runs, there)):
            return
        await _replace(under_fire, replaced)
        await asyncio.sleep(_LOOK_EVERY_S)


def _has_failed(pod: Json) -> bool:
    return bool(pod.get("status", {}).get("phase") == "Failed")


def _runs(pod: Json) -> bool:
    return bool(pod.get("status", {}).get("phase") == "Running")
