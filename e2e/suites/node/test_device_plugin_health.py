"""Cards that fail and come back on a real node: what is announced, what the scheduler does, what neighbours notice."""

import asyncio
import sys
from pathlib import Path

import pytest

from config.protocol import names
from deviceplugin.line_socket import Refusal
from e2e.control_plane.admin import Admin
from e2e.node.announced import allocatable, card_units
from e2e.node.node_pods import PODS, note_of, pod_seen, runs
from e2e.support.gpu_site import is_unschedulable
from e2e.support.shared_node import (
    SOON_S,
    SharedNode,
    all_settled,
    healths,
    lives,
    pods,
    shared_pod,
    sharing,
)
from tests.support.repository import ROOT

_BACK_WITHIN_S = 90.0
_WELL = ["healthy"] * 3


@pytest.mark.parametrize("forgets", [True, pytest.param(False, marks=pytest.mark.nightly)], ids=["forgets", "recovers"])
async def test_a_card_with_a_hardware_error_is_out_until_it_was_reset(
    shared: SharedNode, on_node: Admin, *, forgets: bool
) -> None:
    """forgets: the plugin forgets the error, instead of half a minute of good readings."""
    first, second, _ = card_units(await shared.read(on_node))
    there = [
        shared_pod(f"there-{number}", [sharing(2)], metadata={"annotations": {names.CARD_UUIDS: uuid}})
        for number, uuid in enumerate((first, second))
    ]
    async with pods(on_node, there) as created:
        before = await all_settled(on_node, created)
        await shared.plugin.happens(card=0, xid=79)
        seen_unhealthy = await shared.node_seen(on_node, lambda node: healths(node)[0] == "unhealthy xid-79")
        assert healths(seen_unhealthy)[1:] == ["healthy"] * 2
        await shared.node_seen(on_node, lambda node: allocatable(node) == 95)
        assert "xid-79" in await note_of(on_node, "GPUUnhealthy", shared.node.name, first)
        # Only that card would do, so the pod waits; when the card is back, it starts there.
        only = shared_pod("only", [sharing(1)], metadata={"annotations": {names.CARD_UUIDS: first}})
        async with pods(on_node, [only]) as (name,):
            await pod_seen(on_node, name, is_unschedulable, within_s=SOON_S)
            await shared.plugin.happens(card=0, back=True)
            await shared.node_seen(on_node, lambda node: healths(node)[0] == "unhealthy recovering")
            if forgets:
                await shared.forget_health()
            await shared.node_seen(on_node, lambda node: healths(node) == _WELL, within_s=_BACK_WITHIN_S)
            assert shared.mismatches(await runs(on_node, name)) == []
        after = [(await on_node.get(f"{PODS}/{name}")).body for name in created]
        assert [lives(pod) for pod in after] == [lives(pod) for pod in before]


async def test_a_driver_that_hangs_stops_new_pods_and_disturbs_no_other(shared: SharedNode, on_node: Admin) -> None:
    async with pods(on_node, [shared_pod("there", [sharing(1)])]) as created:
        (before,) = await all_settled(on_node, created)
        await shared.plugin.happens(hang=True)
        hung = await shared.node_seen(
            on_node, lambda node: healths(node) == ["suspect silent"] * 3, within_s=_BACK_WITHIN_S
        )
        assert allocatable(hung) == 110
        async with pods(on_node, [shared_pod("new", [sharing(1)])]) as (name,):
            await pod_seen(on_node, name, is_unschedulable, within_s=SOON_S)
            await shared.plugin.happens(hang=False)
            await shared.node_seen(on_node, lambda node: healths(node) == _WELL, within_s=_BACK_WITHIN_S)
            assert shared.mismatches(await runs(on_node, name)) == []
        after = (await on_node.get(f"{PODS}/there")).body
        assert lives(after) == lives(before)


async def test_an_unhealthy_card_outlives_a_restart_until_an_operator_clears_it(
    shared: SharedNode, on_node: Admin
) -> None:
    await shared.plugin.happens(card=1, xid=95)
    await shared.node_seen(on_node, lambda node: healths(node)[1] == "unhealthy xid-95")
    shared.plugin.stop()
    shared.plugin.start()
    await shared.plugin.ready()
    assert healths(await shared.read(on_node))[1] == "unhealthy xid-95"
    await on_node.patch(f"/api/v1/nodes/{shared.node.name}", {"metadata": {"annotations": {names.CLEAR_HEALTH: "1"}}})
    await shared.node_seen(
        on_node,
        lambda node: (
            healths(node)[1] == "unhealthy recovering" and names.CLEAR_HEALTH not in node["metadata"]["annotations"]
        ),
    )
    await shared.forget_health()
    await shared.node_seen(on_node, lambda node: healths(node) == _WELL)


async def test_a_reset_is_refused_until_the_card_is_released_and_seen_then(shared: SharedNode, on_node: Admin) -> None:
    path = f"/api/v1/nodes/{shared.node.name}"
    await shared.plugin.happens(card=0, xid=48)
    await shared.node_seen(on_node, lambda node: healths(node)[0] == "unhealthy xid-48")
    with pytest.raises(Refusal, match="cannot be reset"):
        await shared.plugin.happens(card=0, reset=True)
    await on_node.patch(path, {"metadata": {"annotations": {names.RELEASE: "0,1"}}})
    await shared.node_seen(on_node, lambda node: healths(node) == ["unhealthy xid-48", "suspect released", "healthy"])
    await shared.plugin.happens(card=0, reset=True)
    await on_node.patch(path, {"metadata": {"annotations": {names.RELEASE: None}}})
    await shared.node_seen(on_node, lambda node: healths(node) == ["unhealthy recovering", "healthy", "healthy"])
    await shared.forget_health()
    await shared.node_seen(on_node, lambda node: healths(node) == _WELL)


async def test_the_command_releases_a_card_and_takes_it_back(shared: SharedNode, on_node: Admin) -> None:
    code, said = await _release(shared, "0")
    assert (code, "is released until" in said) == (0, True), said
    await shared.node_seen(on_node, lambda node: healths(node) == ["suspect released", "healthy", "healthy"])
    code, said = await _release(shared, "0", "--done")
    assert code == 0, said
    await shared.node_seen(on_node, lambda node: healths(node) == _WELL)


async def _release(shared: SharedNode, *arguments: str) -> tuple[int, str]:
    """Exit code and output of the command, as on the node."""
    log = shared.node.folder / "release.log"
    line = [sys.executable, "-m", "deviceplugin.cli", "release", *arguments]
    child = shared.node.enter("release", line, {"PYTHONPATH": str(ROOT)})
    return await asyncio.to_thread(child.process.wait, 30), log.read_text()


@pytest.mark.skipif(Path("/proc/driver/nvidia/version").exists(), reason="this machine has an NVIDIA driver")
async def test_a_node_without_a_driver_has_a_plugin_that_waits_for_one_and_says_so(shared: SharedNode) -> None:
    """The real NVML, on a machine that has none."""
    async with shared.instead(simulate="", simulateControl="") as plugin:
        failed = await plugin.said("driver.failed")
        assert "NVML" in failed["reason"]
        assert failed["reason"] in await plugin.readyz()
        plugin.child.check_alive()
