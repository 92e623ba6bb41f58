"""Every way of bringing NVIDIA cards into containers, on nodes with NVIDIA's own container toolkit.

The toolkit writes the CDI specs, or is the runtime. Driver and cards are stand-ins.
"""

import itertools
from pathlib import Path
from typing import Final

import pytest

from config.protocol import names
from e2e.control_plane.admin import Json
from e2e.node.node_pods import PODS, note_of, pod_seen
from e2e.node.nvidia_hardware import WORLD
from e2e.support.gpu_site import is_unschedulable
from e2e.support.nvidia_site import DRIVERS, UNITS, WAYS, NvidiaNode, NvidiaSite, misled
from e2e.support.shared_node import pods
from e2e.support.traces import left_of, mount_namespace

# Each value of each dimension; before and after a reboot is in every cell.
_BY_DAY: Final = (
    ("uuid", "container", 1),
    ("index", "/", 2),
    ("management", "container", 8),
    ("default runtime", "/", 16),
    ("runtime class", "container", 2),
)
_CELLS: Final = [
    pytest.param(*cell, marks=[] if cell in _BY_DAY else pytest.mark.nightly)
    for cell in itertools.product(WAYS, DRIVERS, (1, 2, 8, 16))
]
_NODES_OWN: Final = (
    "/dev/nvidiactl",
    "/dev/nvidia0",
    "/etc/cdi",
    "/etc/nvidia-container-runtime",
    "/usr/bin/nvidia-ctk",
)

pytestmark = pytest.mark.usefixtures("node_ready")


def wanted(on: NvidiaNode, when: str) -> list[Json]:
    """Two pods that share a card; where there are more, one on a card of its own and one on two.

    when: begin of their names: the scheduler keeps pods from the node where one of that name was rejected.
    """
    sharing = [on.pod(f"{when}-shares-{number}", UNITS // 2) for number in range(2)]
    alone = [on.pod(f"{when}-alone", UNITS)]
    on_two = [on.pod(f"{when}-on-two", 2 * UNITS, cards=2)]
    return [*sharing, *(alone if on.hardware.cards > 1 else []), *(on_two if on.hardware.cards > 3 else [])]


def all_wrong(on: NvidiaNode, found: list[Json]) -> list[str]:
    return [line for pod in found for line in on.wrong(pod)]


def files_of_the_machine() -> list[str]:
    """Files that a node has in folders of its own, and the machine may have too."""
    return [path for path in _NODES_OWN if Path(path).exists()]


@pytest.mark.parametrize(("way", "driver", "cards"), _CELLS)
async def test_containers_find_their_own_cards_also_after_a_reboot(
    nvidia: NvidiaSite, way: str, driver: str, cards: int
) -> None:
    async with nvidia.node(way, driver, cards) as on:
        assert (await on.plugin.said("mode"))["mode"] == WAYS[way].mode
        async with pods(on.admin, wanted(on, "before")) as created:
            before = await on.settled(created)
            assert all_wrong(on, before) == []
            await on.reboot()
            # The kubelet starts before the plugin, and fails pods whose devices nobody offers.
            after = [pod for pod in await on.settled_anew(before) if pod["status"]["phase"] == "Running"]
            assert all_wrong(on, after) == []
        async with pods(on.admin, wanted(on, "after")) as created:
            assert all_wrong(on, await on.settled(created)) == []


async def test_a_node_on_which_cuda_does_not_start_shares_nothing_until_it_does_and_leaves_nothing_behind(
    nvidia: NvidiaSite,
) -> None:
    machine = files_of_the_machine()
    async with nvidia.node("uuid", "/", 2) as on:
        namespace = mount_namespace(on.node.pids["kubelet"])
        world = on.hardware.world(on.node)
        assert world.path == on.node.root / WORLD.relative_to("/")
        with world.planted(f"uvm_major {on.hardware.uvm_major - 1}"):
            on.plugin.stop()
            on.plugin.start()
            await on.plugin.said("notice", reason="GPUNotReady", within_s=60)
            why = await on.plugin.readyz_until(lambda said: "CUDA does not start on any card" in said)
            assert "/dev/nvidia-uvm is missing or has the major number of an earlier boot" in why
            await note_of(on.admin, "GPUNotReady", on.node.name, "CUDA does not start on any card")
            await on.admin.create(PODS, on.pod("waits", 1))
            await pod_seen(on.admin, "waits", is_unschedulable)
        (found,) = await on.settled(["waits"])
        assert all_wrong(on, [found]) == []
    assert left_of(on.node.folder, namespace) == []
    assert files_of_the_machine() == machine


@pytest.mark.parametrize(
    ("written", "right"),
    [
        pytest.param("cuInit 0\ndevice 0 GPU-a\nEND 0.\n", True, id="its own"),
        pytest.param("cuInit 0\ndevice 0 GPU-b\nEND 0.\n", False, id="another"),
        pytest.param("cuInit 0\ndevice 0 GPU-a\ndevice 1 GPU-b\nEND 0.\n", False, id="another one too"),
        pytest.param("cuInit 100\nEND 1.\n", False, id="no device"),
        pytest.param("no libcuda: not found\nEND 2.\n", False, id="no library"),
    ],
)
def test_an_answer_is_right_if_it_names_the_chosen_cards_alone(written: str, right: bool) -> None:  # noqa: FBT001 - a table
    pod = {"metadata": {"name": "p", "annotations": {names.CARDS: '{"0": "GPU-a"}'}}}
    assert (misled(pod, written) == []) is right
