"""How cards come into containers on a real kubelet and containerd: by the CDI specs that are there, and never bare.

NVML is a double with two cards (`e2e.programs.with_nvml`); the specs are made up, with /dev/null for a card's node.
"""

import json
import re
from pathlib import Path
from typing import Final

from config.protocol import inventory, names
from e2e.control_plane.admin import Admin, Json, seen
from e2e.node.announced import allocatable, card_units
from e2e.node.node_pods import busybox
from e2e.support.shared_node import (
    SharedNode,
    all_settled,
    lives,
    pods,
    shared_pod,
    written_by,
)
from tests.support.repository import ROOT

_NVML: Final = ROOT / "e2e" / "programs" / "with_nvml"
_LIBRARY: Final = "/usr/lib/libcuda.so.580.95.05"
_LOOK: Final = f"echo NODES $(ls /dev/nvidia*) LIBRARY $(cat {_LIBRARY}) VISIBLE $NVIDIA_VISIBLE_DEVICES."
_EVENTS: Final = "/apis/events.k8s.io/v1/namespaces/default/events"


def spec(library: Path, kind: str = "k8s.device-plugin.nvidia.com/gpu") -> Json:
    """As NVIDIA's device plugin writes it; the node of a card is that of /dev/null under the card's path."""
    devices = [
        {
            "name": f"GPU-{number}",
            "containerEdits": {
                "deviceNodes": [{"path": f"/dev/nvidia{number}", "type": "c", "major": 1, "minor": 3}],
            },
        }
        for number in range(2)
    ]
    mounts = [{"hostPath": str(library), "containerPath": _LIBRARY, "options": ["ro", "bind"]}]
    return {"cdiVersion": "0.6.0", "kind": kind, "containerEdits": {"mounts": mounts}, "devices": devices}


async def test_a_node_shares_nothing_until_containers_can_have_driver_libraries_and_then_each_has_its_own_card(
    shared: SharedNode, on_node: Admin
) -> None:
    node = shared.node
    library, file = node.folder / "libcuda.so", node.cdi / "k8s.device-plugin.nvidia.com-gpu.json"
    library.write_text("the driver's library")
    async with shared.instead(simulate="", simulateControl="", modules=_NVML) as plugin:
        told = await plugin.said("notice", reason="GPUNotReady", within_s=30)
        assert "no way to bring cards into containers: card GPU-0 cannot be brought into a container" in told["note"]
        assert "no CDI spec of kind nvidia.com/gpu is there" in await plugin.readyz()
        await seen(on_node, _EVENTS, lambda _: True, {"fieldSelector": "reason=GPUNotReady"}, within_s=15)
        await shared.node_seen(
            on_node, lambda found: allocatable(found) == 0 and withheld(found) == inventory.NO_INJECTION
        )
        try:
            async with pods(
                on_node, [shared_pod("real", [container(1)]), shared_pod("other", [container(79)])]
            ) as made:
                file.write_text(json.dumps(spec(library)))
                await plugin.ready()
                assert (await plugin.said("mode"))["mode"] == "cdi"
                for found in await all_settled(on_node, made):
                    (card,) = json.loads(found["metadata"]["annotations"][names.CARDS]).values()
                    said, _ = written_by(node.container(found), re.compile("VISIBLE .*"))
                    minor = card.removeprefix("GPU-")
                    assert f"NODES /dev/nvidia{minor} LIBRARY the driver's library VISIBLE void." in said
                await shared.node_seen(on_node, lambda found: not withheld(found))
        finally:
            file.unlink(missing_ok=True)


def withheld(node: Json) -> str:
    """Why no new pod gets a card, as the node's inventory says."""
    return inventory.decode(node["metadata"]["annotations"][names.INVENTORY]).withheld


def container(units: int) -> Json:
    """Writes down which cards and which library it has."""
    return busybox(_LOOK, resources={"limits": {names.GPU_MEM: str(units)}})


async def test_a_node_that_loses_its_way_in_gives_nothing_away_until_there_is_one_and_keeps_what_is_held(
    shared: SharedNode, on_node: Admin
) -> None:
    node = shared.node
    library, file = node.folder / "libcuda.so.lost", node.cdi / "k8s.device-plugin.nvidia.com-gpu.json"
    library.write_text("the driver's library")
    file.write_text(json.dumps(spec(library)))
    try:
        async with shared.instead(simulate="", simulateControl="", modules=_NVML) as plugin:
            await plugin.ready()
            # Not what the kubelet still says of the plugin before.
            whole = allocatable(await shared.node_seen(on_node, _all_is_allocatable))
            async with pods(on_node, [shared_pod("stays", [container(2)])]) as made:
                (before,) = await all_settled(on_node, made)
                plugin.stop()
                file.unlink()
                plugin.start()
                await plugin.said("notice", reason="GPUNotReady", within_s=30)
                assert "no way to bring cards into containers" in await plugin.readyz()
                # Registered on the word of its records: what is held, and nothing free.
                await shared.node_seen(on_node, lambda found: allocatable(found) == 2)
                (after,) = await all_settled(on_node, made)
                assert lives(after) == lives(before)
                file.write_text(json.dumps(spec(library)))
                await plugin.ready()
                await shared.node_seen(on_node, lambda found: allocatable(found) == whole)
    finally:
        file.unlink(missing_ok=True)


def _all_is_allocatable(found: Json) -> bool:
    return allocatable(found) == sum(card_units(found).values()) > 2


async def test_a_spec_of_another_driver_brings_no_card_in(shared: SharedNode, on_node: Admin) -> None:
    del on_node
    file = shared.node.cdi / "nvidia.json"
    library = shared.node.folder / "libcuda.so.570"
    library.write_text("an older library")
    file.write_text(json.dumps(spec(library, "nvidia.com/gpu")).replace("libcuda.so.580.95.05", "libcuda.so.570.12"))
    try:
        async with shared.instead(simulate="", simulateControl="", modules=_NVML) as plugin:
            told = await plugin.said("notice", reason="GPUNotReady", within_s=30)
            assert "nvidia.json is of driver 570.12, the driver is 580.95.05 now; run nvidia-ctk" in told["note"]
    finally:
        file.unlink()
