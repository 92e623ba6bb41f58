"""The stand-in of CUDA's driver library fails where the real one does: what it needs are device nodes, made by root."""

import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import pytest

from tests.support.nvidia import libraries
from tests.support.nvidia.driver_root import CARDS_MAJOR, CONTROL, UVM_MAJOR, make_node
from tests.support.nvidia.world import DEVICES, VARIABLE, World, card, uuid_of

_NODES: Final = {"nvidia0": (CARDS_MAJOR, 0), "nvidia1": (CARDS_MAJOR, 1), **CONTROL}

# Device nodes are made by root.
pytestmark = pytest.mark.usefixtures("node_ready")


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The program that calls cuInit, beside the library."""
    folder = tmp_path_factory.mktemp("cuda")
    libraries.compile_cuda(folder)
    return libraries.compile_cuda_check(folder)


def said(program: Path, folder: Path, nodes: Mapping[str, tuple[int, int]], *lines: str) -> list[str]:
    """Lines that the program prints with these device nodes, on a machine with two cards."""
    devices, world = folder / "dev", World(folder / "world", [card(0), card(1)], [f"uvm_major {UVM_MAJOR}", *lines])
    devices.mkdir()
    for name, numbers in nodes.items():
        make_node(devices / name, numbers)
    world.write()
    settings = {"LD_LIBRARY_PATH": str(program.parent), VARIABLE: str(world.path), DEVICES: str(devices)}
    return subprocess.run([program], env=settings, capture_output=True, text=True, check=False).stdout.splitlines()


def without(*names: str) -> dict[str, tuple[int, int]]:
    """All nodes but these."""
    return {name: numbers for name, numbers in _NODES.items() if name not in names}


def test_with_every_node_both_cards_are_found(program: Path, tmp_path: Path) -> None:
    assert said(program, tmp_path, _NODES) == ["cuInit 0", f"device 0 {uuid_of(0)}", f"device 1 {uuid_of(1)}"]


def test_a_container_with_one_cards_node_finds_that_card(program: Path, tmp_path: Path) -> None:
    assert said(program, tmp_path, without("nvidia0")) == ["cuInit 0", f"device 0 {uuid_of(1)}"]


@pytest.mark.parametrize(
    ("nodes", "lines", "answer"),
    [
        pytest.param(without("nvidiactl"), (), 100, id="no nvidiactl"),
        pytest.param(without("nvidia0", "nvidia1"), (), 100, id="no card"),
        pytest.param(without("nvidia-uvm"), (), 999, id="no nvidia-uvm"),
        pytest.param({**_NODES, "nvidia-uvm": (UVM_MAJOR - 1, 0)}, (), 999, id="nvidia-uvm of an earlier boot"),
        pytest.param(_NODES, ("card 1 fabric_state 2",), 802, id="fabric manager not ready"),
    ],
)
def test_what_is_missing_has_the_error_of_the_real_library(
    program: Path, tmp_path: Path, nodes: dict[str, tuple[int, int]], lines: tuple[str, ...], answer: int
) -> None:
    assert said(program, tmp_path, nodes, *lines) == [f"cuInit {answer}"]
