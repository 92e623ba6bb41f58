"""`make test-gpu` on the stand-ins of NVIDIA's libraries."""

import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.support.nvidia import libraries
from tests.support.nvidia.world import VARIABLE, World, card
from tests.support.repository import ROOT


@dataclass
class Machine:
    """folder: with the stand-ins, the world and the report."""

    folder: Path
    world: World

    def tested(self) -> tuple[int, str]:
        """Exit code, and the report."""
        report = self.folder / "report.md"
        environment = {**os.environ, "LD_LIBRARY_PATH": str(self.folder), VARIABLE: str(self.world.path)}
        argv = [sys.executable, "-m", "tests.gpu", str(report)]
        done = subprocess.run(argv, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
        assert f"report: {report}" in done.stdout, done.stderr
        return done.returncode, report.read_text()


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    """Two cards on which CUDA starts."""
    libraries.compile_nvml(tmp_path)
    libraries.compile_cuda(tmp_path)
    made = World(tmp_path / "world", [card(0), card(1)], ["fault cuInit 0 0", "fault cuInit 1 0"])
    made.write()
    return Machine(tmp_path, made)


def test_every_check_passes_or_names_why_it_is_skipped(machine: Machine) -> None:
    code, report = machine.tested()
    assert code == 0, report
    assert "7 passed, 0 failed, 1 skipped" in report
    assert "| memory limits | skipped | this driver has no memory limits: Not Supported |" in report
    assert (
        "used 0 MiB before, 300 with a context, 556 with 256 MiB allocated (556 MiB of it listed), 300 freed" in report
    )
    assert "| driver | 580.95.05 |" in report


def test_memory_limits_are_read_where_the_driver_has_them(machine: Machine) -> None:
    machine.world.cards[0]["memory_limits"] = machine.world.cards[1]["memory_limits"] = 1
    machine.world.write()
    _, report = machine.tested()
    assert "| memory limits | passed | card 0: none set" in report


def test_a_machine_without_a_card_fails(machine: Machine) -> None:
    machine.world.cards.clear()
    machine.world.write()
    code, report = machine.tested()
    assert (code, "| cards | failed | the driver names no card |" in report) == (1, True)
    assert "0 passed, 1 failed, 7 skipped" in report


def test_a_machine_without_a_driver_fails_with_the_loaders_words(machine: Machine) -> None:
    (machine.folder / libraries.NVML).unlink()
    code, report = machine.tested()
    assert (code, "libnvidia-ml.so.1: cannot open shared object file" in report) == (1, True)


def test_a_card_on_which_cuda_does_not_start_fails(machine: Machine) -> None:
    machine.world.lines[1] = "fault cuInit 1 999"
    machine.world.write()
    code, report = machine.tested()
    assert code == 1
    assert "| doctor | failed |" in report
    assert "cuInit returned 999: /dev/nvidia-uvm is missing" in report
