"""Units vanish on a real node, and its kubelet starts again: no pod fails."""

import asyncio
from pathlib import Path

from e2e.control_plane.admin import Admin, Json
from e2e.node.announced import allocatable, card_units
from e2e.node.node_pods import PODS
from e2e.programs.plugin_process import DevicePluginProcess
from e2e.support.shared_node import (
    STANDARD_MIB,
    SharedNode,
    all_settled,
    lives,
    passing,
    pods,
    shared_pod,
    sharing,
)

# What a driver reserves may grow with its version.
_ADMITTED_AFTER_S = 8.0
_SHRUNK_MIB = tuple(mib - 1 for mib in STANDARD_MIB)


def exposed(name: str, units: int, number: int = 1) -> list[Json]:
    """Pods whose init container has ended: the kubelet looks at what they hold when it admits them again."""
    return [shared_pod(f"{name}-{k}", [sharing(units)], initContainers=[passing(units)]) for k in range(number)]


async def test_no_pod_fails_when_units_vanish_and_the_kubelet_starts_again(shared: SharedNode, on_node: Admin) -> None:
    """Every id is held, so those that would vanish are held too."""
    state = str(shared.node.device_plugins / "gpushare-ids")
    async with shared.instead(stateDir=state) as before:
        await before.ready()
        await shared.node_seen(on_node, lambda node: allocatable(node) == 110)
        async with pods(on_node, exposed("held", 5, 22)) as created:
            found = await all_settled(on_node, created)
            assert [pod["status"]["phase"] for pod in found] == ["Running"] * 22
            before.stop()
            with DevicePluginProcess(shared.node, shared.plugin.token, _SHRUNK_MIB, stateDir=state) as after:
                await after.ready()
                await shared.node_seen(on_node, lambda node: sum(card_units(node).values()) == 107)
                shared.node.stop_kubelet()
                shared.node.start_kubelet()
                await shared.node_seen(on_node, lambda node: allocatable(node) >= 107)
                await asyncio.sleep(_ADMITTED_AFTER_S)
                again = [(await on_node.get(f"{PODS}/{name}")).body for name in created]
                assert [pod["status"]["phase"] for pod in again] == ["Running"] * 22
                await shared.node_seen(on_node, lambda node: allocatable(node) == 110)
                assert [lives(pod) for pod in again] == [lives(pod) for pod in found]
                for name in created[:11]:
                    await on_node.delete(f"{PODS}/{name}", {"gracePeriodSeconds": 0})
                # The kubelet forgets what the dead held at its next allocation; then there is no more than 107.
                async with pods(on_node, [shared_pod("after", [sharing(5)])]) as (name,):
                    (late,) = await all_settled(on_node, [name])
                    assert late["status"]["phase"] == "Running"
                    await shared.node_seen(on_node, lambda node: allocatable(node) == 107)


async def test_a_kubelet_that_is_giving_ids_away_outlives_a_plugin_with_others(
    shared: SharedNode, on_node: Admin
) -> None:
    """What pods that are gone held is listed by the next plugin at first, and not any more once it knows its cards."""
    state = str(shared.node.folder / "state-other-ids")
    kubelet = Path(f"/proc/{shared.node.pids['kubelet']}/cmdline")
    async with shared.instead(stateDir=state, oldStyleIds=True) as before:
        await before.ready()
        async with pods(on_node, [shared_pod(f"gone-{k}", [sharing(25)]) for k in range(3)]) as created:
            assert [pod["status"]["phase"] for pod in await all_settled(on_node, created)] == ["Running"] * 3
        before.stop()
        come = [shared_pod(f"comes-{k}", [sharing(1)], nodeName=shared.node.name) for k in range(40)]
        with DevicePluginProcess(shared.node, shared.plugin.token, STANDARD_MIB, stateDir=state) as after:
            ready = asyncio.create_task(after.ready())
            for one in come:
                await on_node.create(PODS, one)
                await asyncio.sleep(0.05)
            assert await asyncio.to_thread(kubelet.read_bytes)
            await ready
            for one in come:
                await on_node.delete(f"{PODS}/{one['metadata']['name']}", {"gracePeriodSeconds": 0})
            async with pods(on_node, [shared_pod("then", [sharing(5)])]) as (name,):
                (then,) = await all_settled(on_node, [name])
                assert then["status"]["phase"] == "Running"
