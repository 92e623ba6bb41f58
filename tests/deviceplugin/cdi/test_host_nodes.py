"""Device nodes of the host: what is seen of them decides, and what is not seen is neither there nor lacking."""

from pathlib import Path

import pytest

from deviceplugin.cdi.host_nodes import HostNodes


@pytest.fixture
def host(tmp_path: Path) -> Path:
    """A driver's root and the host's /dev; links to /dev/null stand for character devices, which only root can make."""
    for folder, names in {
        "host/dev": ("nvidiactl", "nvidia-uvm", "nvidia0", "nvidia-modeset"),
        "driver/dev": ("nvidiactl", "nvidia-uvm", "nvidia-uvm-tools", "nvidia0", "nvidia1"),
    }.items():
        (tmp_path / folder).mkdir(parents=True)
        for name in names:
            (tmp_path / folder / name).symlink_to("/dev/null")
    (tmp_path / "host/dev/nvidia7").write_text("a file")
    return tmp_path


def nodes(host: Path) -> HostNodes:
    return HostNodes(host / "host/dev", [str(host / "driver")])


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        pytest.param("/dev/nvidia0", False, id="there"),
        pytest.param("/dev/nvidia1", True, id="missing"),
        pytest.param("/dev/nvidia7", True, id="a file"),
        pytest.param("/dev/nvidia-caps/nvidia-cap1", False, id="a folder that is not seen"),
        pytest.param("{host}/driver/dev/nvidia1", False, id="of a driver in a container"),
        pytest.param("{host}/driver/dev/nvidia9", True, id="missing there"),
        pytest.param("/run/elsewhere/dev/nvidia0", False, id="a driver that is not seen"),
    ],
)
def test_a_node_is_lacking_where_its_folder_is_seen_without_it(path: str, expected: object, host: Path) -> None:
    assert nodes(host).lacks(path.format(host=host)) is expected


def test_where_the_hosts_dev_is_not_mounted_nothing_is_known(tmp_path: Path) -> None:
    unseen = HostNodes(tmp_path / "none", [])
    assert (unseen.lacks("/dev/nvidia0"), unseen.of_cards([0])) == (False, {})


def test_the_nodes_of_cards_come_with_the_control_nodes_that_are_there(host: Path) -> None:
    names = ("nvidia0", "nvidiactl", "nvidia-uvm", "nvidia-modeset")
    assert nodes(host).of_cards([0]) == {f"/dev/{name}": f"/dev/{name}" for name in names}


def test_nodes_of_a_driver_in_a_container_are_taken_from_its_root(host: Path) -> None:
    names = ("nvidia0", "nvidia1", "nvidiactl", "nvidia-uvm", "nvidia-uvm-tools")
    assert nodes(host).of_cards([0, 1]) == {f"/dev/{name}": f"{host}/driver/dev/{name}" for name in names}


@pytest.mark.parametrize("minors", [[], [0, 5]])
def test_without_the_node_of_each_card_there_is_none(minors: list[int], host: Path) -> None:
    assert nodes(host).of_cards(minors) == {}


def test_a_path_that_cannot_be_looked_at_is_not_known_to_be_missing(tmp_path: Path) -> None:
    assert not HostNodes(tmp_path).lacks(f"/{'x' * 300}/dev/nvidia0")
