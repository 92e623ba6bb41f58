"""MIG instances on a node with a real kubelet and NVIDIA's own toolkit: what containers get, and who is told of an end.

Driver and cards are stand-ins.
"""

import json
from typing import Final

import pytest

from config.protocol import names
from e2e.control_plane.admin import Json
from e2e.node.node_pods import note_of
from e2e.support.nvidia_site import UNITS, NvidiaNode, NvidiaSite
from e2e.support.shared_node import pods
from tests.support.nvidia.world import caps, instance, uuid_of

_PLACES: Final = ((9, 0), (3, 0))
_OF_INSTANCE: Final = 9856 // 1024  # units
_CONTROL: Final = {"/dev/nvidiactl", "/dev/nvidia-uvm", "/dev/nvidia-uvm-tools", "/dev/nvidia-modeset"}

pytestmark = pytest.mark.usefixtures("node_ready")


def uuid_at(place: tuple[int, int]) -> str:
    return str(instance(0, *place)["uuid"])


def nodes_at(place: tuple[int, int]) -> set[str]:
    """Device nodes of a container on this instance of the first card."""
    own = {f"/dev/nvidia-caps/nvidia-cap{minor}" for minor in caps(0, *place)}
    return {"/dev/nvidia0", *own, *_CONTROL}


def card_of(found: Json) -> str:
    """UUID of the pod's only card."""
    (uuid,) = json.loads(found["metadata"]["annotations"][names.CARDS]).values()
    return str(uuid)


def nodes_in(on: NvidiaNode, found: Json) -> set[str]:
    """NVIDIA's device nodes in the pod's container."""
    return set(on.node.container(found).execute("find", "/dev", "-type", "c", "-path", "*nvidia*").split())


def cuda_in(on: NvidiaNode, found: Json) -> str:
    """Answer of cuInit in the pod's container, and the digits of its only card."""
    answer, device = on.node.container(found).execute("cuda-check").splitlines()
    return f"{answer} {device.partition('GPU-')[2]}"


async def test_a_container_gets_its_instance_alone_and_its_pod_is_told_when_that_is_destroyed(
    nvidia: NvidiaSite,
) -> None:
    async with nvidia.node("uuid", "container", 2, instances=_PLACES) as on:
        wanted = [on.pod("whole", UNITS), *(on.pod(f"small-{number}", _OF_INSTANCE) for number in range(2))]
        async with pods(on.admin, wanted) as created:
            whole, *small = await on.settled(created)
            assert (card_of(whole), nodes_in(on, whole)) == (uuid_of(1), {"/dev/nvidia1", *_CONTROL})
            assert {card_of(pod): nodes_in(on, pod) for pod in small} == {
                uuid_at(place): nodes_at(place) for place in _PLACES
            }
            assert {cuda_in(on, pod) for pod in small} == {f"cuInit 0 {uuid_at(place)[4:]}" for place in _PLACES}

            # The administrator replaces the first instance; the toolkit's spec stays as it was.
            on.hardware.instances = (_PLACES[1], (5, 0))
            on.hardware.make_caps(on.node)
            on.hardware.world(on.node).write()

            destroyed = next(pod["metadata"]["name"] for pod in small if card_of(pod) == uuid_at(_PLACES[0]))
            await note_of(on.admin, "GPUInstanceDestroyed", destroyed, f"{uuid_at(_PLACES[0])} (card 1090) of card")
            async with pods(on.admin, [on.pod("later", _OF_INSTANCE)]) as later:
                (found,) = await on.settled(later)
                assert (card_of(found), nodes_in(on, found)) == (uuid_at((5, 0)), nodes_at((5, 0)))
