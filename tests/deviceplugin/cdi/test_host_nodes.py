"""Device nodes of the host: what is seen of them decides, and what is not seen is neither there nor lacking."""

from pathlib import Path

import pytest

from deviceplugin.cdi.host_nodes import MIG_MINORS, HostNodes
from deviceplugin.driver.cards import DriverCard
from tests.support.nvidia.world import caps, mig_minors


@pytest.fixture
def host(tmp_path: Path) -> Path:
    """A driver's root and the host's /dev; links to /dev/null stand for character devices, which only root can make."""
    for folder, names in {
        "host/dev": ("nvidiactl", "nvidia-uvm", "nvidia0", "nvidia-modeset"),
        "driver/dev": ("nvidiactl", "nvidia-uvm", "nvidia-uvm-tools", "nvidia0", "nvidia1"),
    }.items():
        (tmp_path / folder / "nvidia-caps").mkdir(parents=True)
        for name in names:
            (tmp_path / folder / name).symlink_to("/dev/null")
    (tmp_path / "host/dev/nvidia7").write_text("a file")
    return tmp_path


def nodes(host: Path) -> HostNodes:
    return HostNodes(host / "host/dev", [str(host / "driver")], proc=host / "proc")


def cards(*minors: int | None) -> list[DriverCard]:
    return [
        DriverCard(index=place, uuid=f"GPU-{place}", model="M", memory_mib=1, minor=minor)
        for place, minor in enumerate(minors)
    ]


def instance(minor: int, gpu_instance: int, compute_instance: int = 0) -> DriverCard:
    place = gpu_instance, compute_instance
    uuid = f"MIG-{minor}-{gpu_instance}-{compute_instance}"
    return DriverCard(
        index=1000, uuid=uuid, model="M", memory_mib=1, minor=minor, parent=f"GPU-{minor}", instance=place
    )


def with_minors(host: Path, text: str) -> None:
    (host / "proc" / MIG_MINORS).parent.mkdir(parents=True)
    (host / "proc" / MIG_MINORS).write_text(text)


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        pytest.param("/dev/nvidia0", False, id="there"),
        pytest.param("/dev/nvidia1", True, id="missing"),
        pytest.param("/dev/nvidia7", True, id="a file"),
        pytest.param("/dev/nvidia-caps/nvidia-cap1", True, id="missing in a folder"),
        pytest.param("/dev/nvidia-fabric/0", False, id="a folder that is not seen"),
        pytest.param("{host}/driver/dev/nvidia1", False, id="of a driver in a container"),
        pytest.param("{host}/driver/dev/nvidia9", True, id="missing there"),
        pytest.param("/run/elsewhere/dev/nvidia0", False, id="a driver that is not seen"),
    ],
)
def test_a_node_is_lacking_where_its_folder_is_seen_without_it(path: str, expected: object, host: Path) -> None:
    assert nodes(host).lacks(path.format(host=host)) is expected


def test_where_the_hosts_dev_is_not_mounted_nothing_is_known(tmp_path: Path) -> None:
    unseen = HostNodes(tmp_path / "none", [])
    assert (unseen.lacks("/dev/nvidia0"), unseen.of_cards(cards(0))) == (False, {})


def test_the_nodes_of_cards_come_with_the_control_nodes_that_are_there(host: Path) -> None:
    names = ("nvidia0", "nvidiactl", "nvidia-uvm", "nvidia-modeset")
    assert nodes(host).of_cards(cards(0)) == {f"/dev/{name}": f"/dev/{name}" for name in names}


def test_nodes_of_a_driver_in_a_container_are_taken_from_its_root(host: Path) -> None:
    names = ("nvidia0", "nvidia1", "nvidiactl", "nvidia-uvm", "nvidia-uvm-tools")
    assert nodes(host).of_cards(cards(0, 1)) == {f"/dev/{name}": f"{host}/driver/dev/{name}" for name in names}


@pytest.mark.parametrize("minors", [[], [0, 5], [0, None]])
def test_without_the_node_of_each_card_there_is_none(minors: list[int | None], host: Path) -> None:
    assert nodes(host).of_cards(cards(*minors)) == {}


def test_a_path_that_cannot_be_looked_at_is_not_known_to_be_missing(tmp_path: Path) -> None:
    assert not HostNodes(tmp_path).lacks(f"/{'x' * 300}/dev/nvidia0")


def test_an_instance_has_the_two_nodes_that_the_kernel_module_lists_for_it(host: Path) -> None:
    with_minors(host, mig_minors(range(2)))
    for one, place in ((instance(0, 7), (0, 7, 0)), (instance(1, 1, 2), (1, 1, 2)), (instance(0, 1), (0, 1, 0))):
        assert nodes(host).caps(one) == tuple(f"/dev/nvidia-caps/nvidia-cap{minor}" for minor in caps(*place))
    assert caps(0, 7, 0) == (66, 67)
    assert nodes(host).caps(cards(0)[0]) == ()


@pytest.mark.parametrize("text", ["", "gpu0/gi7/access 66\n", "gpu0/gi7/access x\ngpu0/gi7/ci0/access 67\n"])
def test_nodes_that_are_not_listed_are_unknown(host: Path, text: str) -> None:
    with_minors(host, text)
    assert nodes(host).caps(instance(0, 7)) == ()


def test_an_instance_comes_with_its_parents_node_and_its_own_two(host: Path) -> None:
    with_minors(host, mig_minors(range(1)))
    wanted = ("nvidia0", "nvidia-caps/nvidia-cap66", "nvidia-caps/nvidia-cap67")
    for name in wanted[1:]:
        (host / "host/dev" / name).symlink_to("/dev/null")

    found = nodes(host).of_cards([instance(0, 7)])

    assert found.keys() == {f"/dev/{name}" for name in (*wanted, "nvidiactl", "nvidia-uvm", "nvidia-modeset")}


@pytest.mark.parametrize("listed", [True, False])
def test_without_its_own_nodes_an_instance_gets_none_of_its_parent(host: Path, listed: bool) -> None:  # noqa: FBT001 # a table
    if listed:
        with_minors(host, mig_minors(range(1)))
    assert nodes(host).of_cards([instance(0, 7)]) == {}
