"""A node with shared simulated cards, run by our scheduler and device plugin as installed, with the same rights.

Compares the scheduler's annotations on a pod with the facts that each of its containers finds inside itself.
"""

import asyncio
import json
import os
import re
import secrets
import signal
import time
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from config.protocol import environment, names
from e2e.control_plane.admin import Admin, Json, seen
from e2e.control_plane.cluster import ControlPlane
from e2e.node.announced import allocatable
from e2e.node.containers import LocalContainer, NoSuchContainer
from e2e.node.local_node import LocalNode
from e2e.node.node_pods import PODS, busybox, pod
from e2e.programs import manifests
from e2e.programs.plugin_process import DevicePluginProcess, token
from e2e.programs.scheduler_process import SchedulerProcess
from e2e.support import policy_site

NODE: Final = "/api/v1/nodes"
GIB: Final = 1024
STANDARD_MIB: Final = (15 * GIB, 15 * GIB, 80 * GIB)
SOON_S: Final = 40.0
# An ended container cannot be inspected, so each writes down its facts.
LOOK: Final = "env; echo CARDS $(ls /run/gpushare/cards 2>/dev/null)."
_CARDS: Final = re.compile(r"^CARDS ?(.*)\.$", re.MULTILINE)
_LOOK_EVERY_S: Final = 0.02


@dataclass(frozen=True, slots=True)
class SharedNode:
    """The node with both programs on it."""

    node: LocalNode
    scheduler: SchedulerProcess
    plugin: DevicePluginProcess

    async def read(self, admin: Admin) -> Json:
        """The node object."""
        return (await admin.get(f"{NODE}/{self.node.name}")).body

    async def node_seen(self, admin: Admin, wanted: Any, *, within_s: float = SOON_S) -> Json:  # noqa: ANN401 - as seen
        """Wait for the node object to be as wanted. Raises NotSeen."""
        query = {"fieldSelector": f"metadata.name={self.node.name}"}
        return await seen(admin, NODE, wanted, query, within_s=within_s)

    def mismatches(self, found: Json, *, by_cdi: bool = True) -> list[str]:
        """Return each difference between a running pod's containers and the scheduler's annotations."""
        wrong = []
        for field, key in (("containers", names.ALLOCATION), ("initContainers", names.INIT_ALLOCATION)):
            allocation = json.loads(found["metadata"]["annotations"].get(key, "{}"))
            for index, container in enumerate(found["spec"].get(field, [])):
                expected = expected_inside(found, allocation.get(str(index), {}), by_cdi=by_cdi)
                inside = what_is_inside(self.node.container(found, container["name"]))
                if inside != expected:
                    name = f"{found['metadata']['name']}/{container['name']}"
                    wrong.append(f"{name} has {inside}; the scheduler chose {expected}")
        return wrong

    def kill_container(self, found: Json) -> None:
        """End the only container of a running pod, as a crash does."""
        os.kill(self.node.container(found).pid, signal.SIGKILL)

    async def forget_health(self) -> None:
        """Restart the plugin without its memory of unhealthy cards: waiting for them to recover takes longer."""
        self.plugin.stop()
        (self.node.device_plugins / "gpushare" / "health.json").unlink()
        self.plugin.start()
        await self.plugin.ready()

    @asynccontextmanager
    async def instead(
        self,
        cards_mib: Sequence[int] = STANDARD_MIB,
        **configuration: Any,  # noqa: ANN401 - as DevicePluginProcess
    ) -> AsyncIterator[DevicePluginProcess]:
        """Run another plugin while the context lasts, with other cards or settings and a separate state."""
        self.plugin.stop()
        state = {"stateDir": str(self.node.folder / f"state-{secrets.token_hex(4)}")}
        try:
            with DevicePluginProcess(self.node, self.plugin.token, cards_mib, **state | configuration) as other:
                yield other
        finally:
            self.plugin.start()
            await self.plugin.ready()


def healths(found: Json) -> list[str]:
    """Return the health of every announced card, by index; [] if the node announces none."""
    inventory = json.loads(found["metadata"].get("annotations", {}).get(names.INVENTORY, '{"cards":[]}'))
    return [f"{card['health']} {card.get('reason', '')}".strip() for card in inventory["cards"]]


def expected_inside(found: Json, shares: Mapping[str, int], *, by_cdi: bool = True) -> dict[str, str]:
    """Return the facts that one container has to find. shares: card index -> units, as the scheduler wrote it."""
    uuids = json.loads(found["metadata"]["annotations"].get(names.CARDS, "{}"))
    if not shares:
        return {"cards": ""}
    by_index = sorted((int(index), units) for index, units in shares.items())
    cards = [uuids[str(index)] for index, _ in by_index]
    return {
        "cards": " ".join(sorted(cards)) if by_cdi else "",
        environment.CARD_UUIDS: ",".join(cards),
        environment.VISIBLE_DEVICES: environment.VISIBLE_NONE if by_cdi else ",".join(cards),
        names.MEM_IDX: str(by_index[0][0]),
        names.MEM_POD: str(sum(units for _, units in by_index)),
        environment.MEM_CONTAINER: str(by_index[0][1]),
        names.MEM_DEV: found["metadata"]["annotations"][names.MEM_DEV],
    }


_LOOKED_AT: Final = (
    environment.CARD_UUIDS,
    environment.VISIBLE_DEVICES,
    names.MEM_IDX,
    names.MEM_POD,
    environment.MEM_CONTAINER,
    names.MEM_DEV,
)


def written_by(container: LocalContainer, wanted: re.Pattern[str]) -> tuple[str, re.Match[str]]:
    """Return (all output of the container, the wanted match), once it exists: a container may run before it writes."""
    give_up_at_s = time.monotonic() + SOON_S
    while not (found := wanted.search(written := container.output())):
        if time.monotonic() > give_up_at_s:
            message = f"container {container.id} has not written {wanted.pattern!r}: {written!r}"
            raise NoSuchContainer(message)
        time.sleep(_LOOK_EVERY_S)
    return written, found


def what_is_inside(container: LocalContainer) -> dict[str, str]:
    """Return the facts that the container, created by `sharing`, writes down when it starts."""
    written, found = written_by(container, _CARDS)
    variables = dict(line.split("=", 1) for line in written.splitlines() if "=" in line)
    return {"cards": found.group(1), **{name: variables[name] for name in _LOOKED_AT if name in variables}}


def sharing(units: int, *, name: str = "c", **fields: object) -> Json:
    """Return a container that requests this many units, writes down its facts, and waits; with 0 units, no request."""
    limits = {"resources": {"limits": {names.GPU_MEM: str(units)}}} if units else {}
    return busybox(LOOK, name=name, **limits, **fields)


def passing(units: int, *, name: str = "init") -> Json:
    """Return an init container that requests units, writes down its facts, and ends."""
    return sharing(units, name=name) | {"command": ["sh", "-c", LOOK]}


def shared_pod(
    name: str, containers: Sequence[Json], *, metadata: Mapping[str, Any] | None = None, **spec: object
) -> Json:
    """Return a pod for our scheduler."""
    wanted = pod(name, containers, schedulerName=names.SCHEDULER_NAME, **spec)
    wanted["metadata"] |= dict(metadata or {})
    return wanted


@asynccontextmanager
async def pods(admin: Admin, wanted: Sequence[Json]) -> AsyncIterator[list[str]]:
    """Create all pods at once; they are removed at the end, from the kubelet too."""
    created = [one["metadata"]["name"] for one in wanted]
    await asyncio.gather(*(admin.create(PODS, one) for one in wanted))
    try:
        yield created
    finally:
        await asyncio.gather(*(admin.delete(f"{PODS}/{name}", {"gracePeriodSeconds": 0}) for name in created))


def lives(found: Json) -> list[tuple[str, int]]:
    """Return ID and restart count of each container of the pod; other status fields may vary."""
    return [(status["containerID"], status["restartCount"]) for status in found["status"]["containerStatuses"]]


def settled(found: Json) -> bool:
    """Return whether the pod runs with all of its containers, or has failed permanently."""
    status = found["status"]
    statuses = status.get("containerStatuses", [])
    running = len(statuses) == len(found["spec"]["containers"]) and all("running" in one["state"] for one in statuses)
    return status.get("phase") == "Failed" or (status.get("phase") == "Running" and running)


async def all_settled(admin: Admin, created: Sequence[str], *, within_s: float = 120.0) -> list[Json]:
    """Wait until each of the pods runs or has failed; return their state then. Raises NotSeen."""
    waits = (
        seen(admin, PODS, settled, {"fieldSelector": f"metadata.name={name}"}, within_s=within_s) for name in created
    )
    return list(await asyncio.gather(*waits))


@contextmanager
def shared_node(node: LocalNode, cards_mib: Sequence[int] = STANDARD_MIB, **configuration: Any) -> Iterator[SharedNode]:  # noqa: ANN401 - as DevicePluginProcess
    """Install both programs from the manifests and start them; yield once pods can be scheduled to the node."""
    kubeconfig = asyncio.run(installed(node.cluster))
    of_plugin = asyncio.run(_plugin_token(node))
    with (
        SchedulerProcess(kubeconfig, node.folder) as scheduler,
        DevicePluginProcess(node, of_plugin, cards_mib, **configuration) as plugin,
    ):
        made = SharedNode(node, scheduler, plugin)
        asyncio.run(_ready(made, sum(mib // GIB for mib in cards_mib)))
        yield made


async def installed(cluster: ControlPlane) -> Path:
    """Install both programs' rights and policies from the manifests; return the kubeconfig of the scheduler."""
    async with Admin(cluster.access()) as admin:
        await manifests.apply(admin, *manifests.documents("rbac.yaml", "device-plugin-rbac.yaml"))
        await policy_site.apply(admin, policy_site.policies())
        return cluster.kubeconfig_for(await manifests.token(admin), "scheduler")


async def _plugin_token(node: LocalNode) -> str:
    async with Admin(node.cluster.access()) as admin:
        return await token(admin, node.name)


async def _ready(made: SharedNode, units: int) -> None:
    await asyncio.gather(made.scheduler.ready(), made.plugin.ready())
    async with Admin(made.node.cluster.access()) as admin:
        await made.node_seen(admin, lambda found: allocatable(found) == units)
