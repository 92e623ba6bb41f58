"""A node whose first card is split and repartitioned under load: NVML's stand-in, health, announcement and injection.

The second card is whole. After each look, a container gets exactly the nodes of its instance or none, the whole card is
as it was, and every pod whose instance was destroyed is reported.
"""

import asyncio
import json
from collections.abc import Iterator
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Final

import pytest

from config.protocol import allocation
from config.protocol.allocation import Allocation, LegacyFields
from config.protocol.inventory import Card, Health
from deviceplugin.cdi.host_nodes import CONTROL, MIG_MINORS, HostNodes
from deviceplugin.cdi.nvidia_edits import NvidiaEdits
from deviceplugin.cdi.spec import CdiError
from deviceplugin.driver.processes import DriverLimits
from deviceplugin.driver.supervisor import SupervisedDriver
from deviceplugin.health.states import CardStates
from scheduler.kube.port import Changed
from scheduler.process.clock import Clock
from tests.support.builders import wire_pod
from tests.support.node.announcing import Rig, announcing
from tests.support.nvidia import libraries
from tests.support.nvidia.sessions import threads
from tests.support.nvidia.world import DRIVER, VARIABLE, World, caps, card, instance, mig_minors, uuid_of

SPLIT, WHOLE = uuid_of(0), uuid_of(1)
UNITS: Final = 81280 // 1024
HISTORIES: Final = 200
STEPS: Final = 8
# How often the kernel module's list of nodes can be read.
SHOWN: Final = 0.8
MOST: Final = 7
CONTROL_NODES: Final = {f"/dev/{name}" for name in CONTROL}


def nodes_of(place: tuple[int, int]) -> set[str]:
    """Two nodes of an instance of the first card."""
    return {f"/dev/nvidia-caps/nvidia-cap{number}" for number in caps(0, *place)}


@dataclass
class Node:
    """The node. folder: of its device nodes, specs and /proc. pods: name -> UUID of its card.

    spec: name of a device of NVIDIA's spec -> its nodes. reported: pods whose instance was destroyed. started:
    containers that got their instance.
    """

    folder: Path
    world: World
    chance: Random
    rig: Rig
    driver: SupervisedDriver
    pods: dict[str, str] = field(default_factory=dict)
    reported: int = 0
    started: int = 0
    minors_shown: bool = False
    spec: dict[str, frozenset[str]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        nodes = HostNodes(self.folder / "dev", [], proc=self.folder / "proc")
        (self.folder / "dev" / "nvidia-caps").mkdir(parents=True)
        for name in ("nvidia0", "nvidia1", *CONTROL):
            (self.folder / "dev" / name).symlink_to("/dev/null")
        (self.folder / "cdi").mkdir()
        (self.folder / "proc" / MIG_MINORS).parent.mkdir(parents=True)
        self.edits = NvidiaEdits(
            self.states.named,
            [self.folder / "cdi"],
            self.folder / "state" / "nvidia.json",
            "none",
            nodes,
            clock=Clock(),
        )
        self.repartition()
        self.refresh_specs()

    @property
    def states(self) -> CardStates:
        return self.rig.cards.states

    @property
    def instances(self) -> dict[str, tuple[int, int]]:
        """UUID -> place of each instance that exists."""
        listed = self.world.cards[0]["instances"]
        assert isinstance(listed, list)
        return {str(one["uuid"]): (int(one["gi"]), int(one["ci"])) for one in listed if one}

    def repartition(self) -> None:
        """Replace some instances, or all, which leaves gaps; the card may leave MIG mode and come back."""
        chance = self.chance
        kept = [one for one in self.world.cards[0].get("instances", []) if one and chance.random() < 0.5]  # type: ignore[attr-defined]
        taken = {one["gi"] for one in kept}
        free = [gi for gi in range(1, 15) if gi not in taken]
        spare = chance.sample(sorted({f"MIG-{n}" for n in range(2 * MOST)} - {str(one["uuid"]) for one in kept}), MOST)
        places = chance.sample(free, chance.randint(0, MOST - len(kept)))
        fresh = [self._fresh(gi, uuid) for gi, uuid in zip(places, spare, strict=False)]
        listed = [*kept, *fresh, *[None] * (MOST - len(kept) - len(fresh))]
        chance.shuffle(listed)
        self.world.cards[0]["instances"] = listed
        self.world.write()
        for left in (self.folder / "dev" / "nvidia-caps").iterdir():
            left.unlink()
        for place in self.instances.values():
            for path in nodes_of(place):
                (self.folder / path.removeprefix("/")).symlink_to("/dev/null")

    def _fresh(self, gpu_instance: int, spare: str) -> dict[str, object]:
        """Instances get the UUID of their place, as from NVIDIA, or one that was elsewhere before."""
        found = instance(0, gpu_instance, memory_mib=self.chance.choice((4864, 9856, 19968)))
        return found if self.chance.random() < 0.5 else found | {"uuid": spare}

    def refresh_specs(self) -> None:
        """NVIDIA's toolkit writes its spec again, named by UUID or by index."""
        by_uuid = self.chance.random() < 0.5
        parts = {
            uuid if by_uuid else f"0:{at}": ["/dev/nvidia0", *sorted(nodes_of(place))]
            for at, (uuid, place) in enumerate(self.instances.items())
        }
        self.spec = {name: frozenset(paths) for name, paths in parts.items()}
        devices = {**parts, WHOLE if by_uuid else "1": ["/dev/nvidia1"]}
        spec = {
            "cdiVersion": "0.6.0",
            "kind": "nvidia.com/gpu",
            "containerEdits": {
                "mounts": [{"hostPath": "/l", "containerPath": f"/usr/lib/libcuda.so.{DRIVER}"}],
                "deviceNodes": [{"path": path} for path in sorted(CONTROL_NODES)],
            },
            "devices": [
                {"name": name, "containerEdits": {"deviceNodes": [{"path": path} for path in paths]}}
                for name, paths in devices.items()
            ],
        }
        (self.folder / "cdi" / "nvidia.json").write_text(json.dumps(spec))

    def show_minors(self) -> None:
        """The plugin's container may hide or show the kernel module's list of nodes."""
        self.minors_shown = self.chance.random() < SHOWN
        text = mig_minors(range(2)) if self.minors_shown else ""
        (self.folder / "proc" / MIG_MINORS).write_text(text)

    def bind(self) -> None:
        """The scheduler binds a pod to a card as announced."""
        shared = [one for one in self.rig.cards.view.cards if one.units]
        if shared:
            self.run_on(self.chance.choice(shared))

    def run_on(self, chosen: Card) -> None:
        name = f"p{len(self.pods)}"
        written = allocation.encode(
            Allocation({0: {chosen.index: 1}}, {}, {chosen.index: chosen.uuid}), LegacyFields(1, chosen.units, 1024)
        )
        self.rig.pods.apply([Changed(wire_pod(name, 1, uid=f"uid-{name}", annotations=written, node="n"))])
        self.rig.cards.view.asking()  # the plugin decides at the pod's first sight
        self.pods[name] = chosen.uuid

    async def look(self) -> None:
        """Read the cards, and list them again if one has other instances: what CardKeeper does every few seconds."""
        self.states.answered(await self.driver.readings([SPLIT, WHOLE]), 0.0)
        if self.driver.grown():
            self.states.found(await self.driver.cards(), forget=False)
        self.rig.changed.clear()
        self.rig.cards.moved.set()
        async with asyncio.timeout(5):
            await self.rig.changed.wait()

    def check(self) -> None:
        shown = {one.uuid: one for one in self.rig.cards.view.cards}
        assert shown.keys() == {SPLIT, WHOLE, *self.instances}
        assert (shown[WHOLE].units, shown[WHOLE].health, shown[WHOLE].reason) == (UNITS, Health.HEALTHY, "")
        assert (shown[SPLIT].units, shown[SPLIT].reason) == (0, "mig")
        assert len({one.index for one in shown.values()}) == len(shown)
        for uuid, place in self.instances.items():
            assert (shown[uuid].parent, shown[uuid].health) == (SPLIT, Health.HEALTHY)
            expected = frozenset({"/dev/nvidia0"} | nodes_of(place))
            # A spec of a time without instances does not tell where the parent's node is.
            covered = self.minors_shown and bool(self.spec) and self.spec.get(uuid, expected) == expected
            assert self.nodes(uuid) == (expected if covered else None)
            self.started += covered
        assert self.nodes(WHOLE) == frozenset({"/dev/nvidia1"})
        told = {one.pod.name for one in self.rig.notices if one.pod and one.reason == "GPUInstanceDestroyed"}
        destroyed = {name for name, uuid in self.pods.items() if uuid not in shown}
        assert destroyed <= told <= self.pods.keys() - {name for name, uuid in self.pods.items() if uuid == WHOLE}
        assert {one.reason for one in self.rig.notices} <= {"GPUInstanceDestroyed"}
        self.reported = len(told)

    def nodes(self, uuid: str) -> frozenset[str] | None:
        """Device nodes of a container with this card, without the control nodes; None if it cannot start."""
        try:
            listed = self.edits.edits([uuid]).wire()["deviceNodes"]
        except CdiError:
            return None
        assert isinstance(listed, list)
        return frozenset(one["path"] for one in listed) - CONTROL_NODES


async def lived(folder: Path, seed: int) -> Node:
    """Live one history, checked after each look."""
    chance = Random(seed)  # noqa: S311 - nothing secret
    world = World(folder / "world", [card(0, mig=1), card(1)])
    world.write()
    driver = SupervisedDriver(threads, DriverLimits())
    async with AsyncExitStack() as stack:
        rig = await stack.enter_async_context(announcing(folder, found=False))
        node = Node(folder, world, chance, rig, driver)
        node.show_minors()
        node.states.found(await driver.cards(), forget=False)
        for _ in range(STEPS):
            await node.look()
            node.check()
            for happening in (node.bind, node.bind, node.repartition, node.refresh_specs, node.show_minors):
                if chance.random() < 0.6:
                    happening()
    await driver.close()
    return node


@pytest.fixture
def _libraries(library: Path) -> Iterator[None]:
    with libraries.pynvml_with(library):
        yield


@pytest.mark.usefixtures("_libraries")
@pytest.mark.parametrize("tenth", [0, *(pytest.param(number, marks=pytest.mark.nightly) for number in range(1, 10))])
async def test_no_history_gives_a_container_another_instance_or_harms_the_whole_card(
    tenth: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    reported = started = 0
    for seed in range(tenth, HISTORIES, 10):
        folder = tmp_path / str(seed)
        folder.mkdir()
        monkeypatch.setenv(VARIABLE, str(folder / "world"))
        node = await lived(folder, seed)
        reported, started = reported + node.reported, started + node.started
    assert reported
    assert started
