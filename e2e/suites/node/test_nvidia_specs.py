"""CDI specs that NVIDIA's own toolkit writes of a node, and what a container gets of them.

`nvidia-ctk` is built from NVIDIA's source, and asks NVML as on a real node. Driver, cards and nodes are stand-ins.
"""

import os
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import pytest

from deviceplugin.cdi.edits import Edits
from deviceplugin.cdi.nvidia_spec import NvidiaSpec, nvidia_spec, real_cards
from deviceplugin.cdi.spec import CdiError
from deviceplugin.driver.cards import DriverCard
from e2e.control_plane import binaries
from e2e.node.nvidia_hardware import compile_driver
from tests.support.nvidia.driver_root import LIBRARIES, make_caps, make_nodes
from tests.support.nvidia.world import DRIVER, VARIABLE, World, caps, card, instance, mig_minors, uuid_of

_CONTROL: Final = ("/dev/nvidia-modeset", "/dev/nvidia-uvm", "/dev/nvidia-uvm-tools", "/dev/nvidiactl")
_BY_UUID: Final = "--device-name-strategy=uuid"
# The toolkit reads the kernel module's list of nodes of /dev/nvidia-caps from here.
_WITH_MINORS: Final = """\
mount -t tmpfs driver /proc/driver && mkdir /proc/driver/nvidia-caps &&
cp "$MINORS" /proc/driver/nvidia-caps/mig-minors && exec "$@"
"""
_MANAGEMENT: Final = ("--mode=management", "--vendor=management.nvidia.com")

# Device nodes are made by root.
pytestmark = pytest.mark.usefixtures("node_ready")


def driver_card(number: int) -> DriverCard:
    """Card as the device plugin knows it."""
    return DriverCard(index=number, uuid=uuid_of(number), model="M", memory_mib=81280, minor=number)


@dataclass(frozen=True)
class DriverInAContainer:
    """A node whose driver has its root in a folder. ctk: nvidia-ctk."""

    root: Path
    world: World
    ctk: Path

    @property
    def minors(self) -> Path:
        """The list of nodes of MIG instances; without the file, the machine has no such card."""
        return self.world.path.with_name("mig-minors")

    def spec(self, *options: str) -> NvidiaSpec:
        """The spec that nvidia-ctk writes with these options."""
        found = nvidia_spec("nvidia.yaml", self.written(*options))
        assert found is not None
        return found

    def written(self, *options: str) -> str:
        """Text of that spec."""
        argv = [str(self.ctk), "cdi", "generate", f"--driver-root={self.root}", f"--dev-root={self.root}", *options]
        environment = os.environ | {VARIABLE: str(self.world.path)}
        if self.minors.exists():
            argv = ["unshare", "--mount", "sh", "-c", _WITH_MINORS, "sh", *argv]
            environment["MINORS"] = str(self.minors)
        done = subprocess.run(argv, env=environment, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        return done.stdout


@pytest.fixture(scope="module")
def driver_root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Libraries of the driver, in a folder."""
    return compile_driver(tmp_path_factory.mktemp("driver"))


@pytest.fixture
def node(driver_root: Path, tmp_path: Path) -> DriverInAContainer:
    """A node with eight cards; its device nodes are made by the tests."""
    world = World(tmp_path / "world", [card(number) for number in range(8)])
    world.write()
    shutil.rmtree(driver_root / "dev", ignore_errors=True)
    return DriverInAContainer(driver_root, world, binaries.ensure(binaries.OF_NVIDIA)["nvidia-ctk"])


def nodes(edits: Edits) -> dict[str, str]:
    """Path in the container -> path on the host."""
    listed = edits.wire()["deviceNodes"]
    assert isinstance(listed, list)
    assert not [entry for entry in listed if "major" in entry or "minor" in entry]
    return {entry["path"]: entry["hostPath"] for entry in listed}


@pytest.mark.parametrize(
    "options",
    [
        pytest.param((_BY_UUID,), id="by UUID"),
        pytest.param(("--device-name-strategy=index",), id="by index"),
        pytest.param(("--device-name-strategy=index", _BY_UUID), id="by both"),
        pytest.param(_MANAGEMENT, id="management"),
    ],
)
@pytest.mark.parametrize("cards", [(0,), (7,), (2, 5), tuple(range(8))], ids=str)
def test_a_container_gets_its_cards_and_all_control_nodes_from_where_the_driver_has_them(
    node: DriverInAContainer, options: tuple[str, ...], cards: tuple[int, ...]
) -> None:
    make_nodes(node.root / "dev", range(8))

    edits = real_cards([driver_card(number) for number in cards], [node.spec(*options)], driver=DRIVER)

    paths = {*_CONTROL, *(f"/dev/nvidia{number}" for number in cards)}
    assert nodes(edits) == {path: f"{node.root}{path}" for path in paths}
    mounts = edits.wire()["mounts"]
    assert isinstance(mounts, list)
    libraries = {mount["containerPath"]: mount["hostPath"] for mount in mounts}
    library = f"/{LIBRARIES}/libcuda.so.{DRIVER}"
    assert libraries[library] == f"{node.root}{library}"


@pytest.mark.parametrize(
    "options", [pytest.param((_BY_UUID,), id="by UUID"), pytest.param(_MANAGEMENT, id="management")]
)
def test_a_spec_that_was_written_before_nvidia_uvm_was_loaded_is_not_used(
    node: DriverInAContainer, options: tuple[str, ...]
) -> None:
    make_nodes(node.root / "dev", range(8), control=("nvidiactl",))

    with pytest.raises(CdiError, match=r"does not inject /dev/nvidia-uvm: run nvidia-modprobe -u -c=0"):
        real_cards([driver_card(0)], [node.spec(*options)], driver=DRIVER)


def test_a_spec_of_another_driver_is_not_used(node: DriverInAContainer) -> None:
    make_nodes(node.root / "dev", range(8))

    with pytest.raises(CdiError, match=rf"was written for driver {DRIVER}; the driver is now 595\.10"):
        real_cards([driver_card(0)], [node.spec(_BY_UUID)], driver="595.10")


_PLACES: Final = ((9, 0), (3, 0), (5, 1))


def instance_card(place: tuple[int, int]) -> DriverCard:
    """Instance of the second card as the device plugin knows it."""
    uuid = str(instance(1, *place)["uuid"])
    return DriverCard(index=2000, uuid=uuid, model="M", memory_mib=9856, minor=1, parent=uuid_of(1), instance=place)


@pytest.mark.parametrize(
    "options",
    [
        pytest.param((_BY_UUID,), id="by UUID"),
        pytest.param(("--device-name-strategy=index",), id="by index"),
        pytest.param(_MANAGEMENT, id="management"),
    ],
)
def test_a_container_gets_the_nodes_of_its_instance_and_of_no_other(
    node: DriverInAContainer, options: tuple[str, ...]
) -> None:
    node.world.cards[1] |= {"mig": 1, "monitor": 1, "instances": [instance(1, *place) for place in _PLACES]}
    node.world.write()
    node.minors.write_text(mig_minors(range(8)))
    make_nodes(node.root / "dev", range(8))
    own = {place: [f"/dev/nvidia-caps/nvidia-cap{minor}" for minor in caps(1, *place)] for place in _PLACES}
    make_caps(node.root / "dev", [minor for place in _PLACES for minor in caps(1, *place)])
    spec = node.spec(*options)

    for place in _PLACES:
        edits = real_cards(
            [instance_card(place)], [spec], driver=DRIVER, caps=lambda card: own[card.instance or (0, 0)]
        )
        paths = {*_CONTROL, "/dev/nvidia1", *own[place]}
        assert nodes(edits) == {path: f"{node.root}{path}" for path in paths}
    assert nodes(real_cards([driver_card(0)], [spec], driver=DRIVER)).keys() == {*_CONTROL, "/dev/nvidia0"}
    names = {device.name for device in spec.devices}
    assert options != (_BY_UUID,) or names >= {instance_card(place).uuid for place in _PLACES}
