"""Both ways of changing the mode, on a real kubelet: pods of before keep their cards, and their way in."""

from contextlib import AsyncExitStack
from pathlib import Path

from config.protocol import environment
from deviceplugin.allocation.recorded import device_names
from deviceplugin.kubelet import checkpoint
from e2e.control_plane.admin import Admin, Json
from e2e.node.node_pods import has_restarted, pod_seen
from e2e.programs.plugin_process import DevicePluginProcess
from e2e.support.shared_node import (
    STANDARD_MIB,
    SharedNode,
    all_settled,
    lives,
    pods,
    shared_pod,
    sharing,
    what_is_inside,
)


def specs(shared: SharedNode, pod: Json) -> list[Path]:
    """The CDI specs of the pod's container, by the kubelet's record; none without a CDI device of ours."""
    text = (shared.node.device_plugins / "kubelet_internal_checkpoint").read_bytes()
    (entry,) = (one for one in checkpoint.parse(text) if one.pod_uid == pod["metadata"]["uid"])
    return [shared.node.cdi / f"gpushare-{name}.json" for name in device_names(entry)]


async def restarted(shared: SharedNode, on_node: Admin, pod: Json) -> Json:
    """Kill the pod's container, and wait until the kubelet has started it again; the pod as it is then."""
    shared.kill_container(pod)
    return await pod_seen(on_node, pod["metadata"]["name"], has_restarted)


async def test_from_the_environment_to_cdi(shared: SharedNode, on_node: Admin) -> None:
    async with AsyncExitStack() as outliving:
        async with shared.instead(mode="environment") as plugin:
            await plugin.ready()
            await outliving.enter_async_context(pods(on_node, [shared_pod("by-environment", [sharing(2)])]))
            (before,) = await all_settled(on_node, ["by-environment"])
            assert shared.mismatches(before, by_cdi=False) == []
        # The plugin of before is back: by CDI.
        found = await restarted(shared, on_node, before)
        assert (lives(found)[0][1], shared.mismatches(found, by_cdi=False)) == (1, [])
        assert specs(shared, found) == []


async def test_from_cdi_to_the_environment(shared: SharedNode, on_node: Admin) -> None:
    async with pods(on_node, [shared_pod("by-cdi", [sharing(2)])]):
        (before,) = await all_settled(on_node, ["by-cdi"])
        (file,) = specs(shared, before)
        async with shared.instead(mode="environment") as plugin:
            await plugin.ready()
            file.unlink()
            found = await restarted(shared, on_node, before)
            assert shared.mismatches(found) == []
            assert file.exists()
            inside = what_is_inside(shared.node.container(found))
            assert inside[environment.VISIBLE_DEVICES] == environment.VISIBLE_NONE


async def test_registered_by_records_of_the_other_mode_it_gives_cards_by_the_mode_of_now(
    shared: SharedNode, on_node: Admin
) -> None:
    state = str(shared.node.folder / "state-of-both-modes")
    async with AsyncExitStack() as outliving, shared.instead(stateDir=state) as before:
        await before.ready()
        await outliving.enter_async_context(pods(on_node, [shared_pod("of-before", [sharing(2)])]))
        (old,) = await all_settled(on_node, ["of-before"])
        before.stop()
        with DevicePluginProcess(
            shared.node, shared.plugin.token, STANDARD_MIB, stateDir=state, mode="environment"
        ) as after:
            await after.ready()
            await after.said("mode")
            events = [line["event"] for line in after.lines()]
            assert events.index("registered") < events.index("mode")
            async with pods(on_node, [shared_pod("of-now", [sharing(3)])]) as made:
                (new,) = await all_settled(on_node, made)
                assert shared.mismatches(new, by_cdi=False) == []
                found = await restarted(shared, on_node, old)
                assert shared.mismatches(found) == []
