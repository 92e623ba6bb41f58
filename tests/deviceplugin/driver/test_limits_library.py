"""Memory limits by cgroup in the stand-ins of NVML and CUDA, which the tests on a node rely on."""

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import pynvml  # type: ignore[import-untyped] # nvidia-ml-py has no annotations
import pytest

from deviceplugin.driver.cards import MemoryLimits
from deviceplugin.driver.nvml import NvmlSource
from deviceplugin.reconcile.cgroup_files import container_cgroups
from deviceplugin.reconcile.cgroups import Owner
from tests.support.nvidia import libraries
from tests.support.nvidia.memory import CGROUP, CGROUPS, MIB, NO_LIMIT
from tests.support.nvidia.world import VARIABLE, World, card, uuid_of

FIRST, SECOND = uuid_of(0), uuid_of(1)
_CONTEXT_MIB: Final = 300


@pytest.fixture(scope="module")
def programs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The stand-in of libcuda, and the program that takes memory."""
    folder = tmp_path_factory.mktemp("nvidia")
    libraries.compile_cuda(folder)
    return libraries.compile_cuda_memory(folder)


@pytest.fixture
def world(library: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[World]:
    """Two cards with limits on which CUDA starts, a third without limits, and the cgroups /pod/c and /pod/d."""
    cards = [card(0, memory_limits=1), card(1, memory_limits=1), card(2)]
    made = World(tmp_path / "world", cards, ["fault cuInit 0 0", "fault cuInit 1 0"])
    made.write()
    for name in ("c", "d"):
        (tmp_path / "cgroups" / "pod" / name).mkdir(parents=True)
    monkeypatch.setenv(VARIABLE, str(made.path))
    monkeypatch.setenv(CGROUPS, str(tmp_path / "cgroups"))
    with libraries.pynvml_with(library):
        pynvml.nvmlInit()
        yield made
        pynvml.nvmlShutdown()


def at(world: World, cgroup: str) -> Path:
    return world.path.parent / "cgroups" / cgroup.lstrip("/")


def set_limits(world: World, cgroup: str, soft_mib: int, hard: int, uuid: str = FIRST) -> None:
    """Set the limits of a cgroup on a card. hard: in MiB; NO_LIMIT for none."""
    hard = hard if hard == NO_LIMIT else hard * MIB
    wanted: Any = pynvml.c_nvmlSetMemoryLimits_v1_t(
        nameSpace=str(at(world, cgroup)).encode(), softLimit=soft_mib * MIB, hardLimit=hard
    )
    pynvml.nvmlDeviceSetMemoryLimits_v1(pynvml.nvmlDeviceGetHandleByUUID(uuid), wanted)


def got(world: World, cgroup: str, uuid: str = FIRST) -> tuple[int, int, int]:
    """Soft and hard limit and use of a cgroup on a card, in MiB."""
    found: Any = pynvml.c_nvmlGetMemoryLimits_v1_t(nameSpace=str(at(world, cgroup)).encode())
    pynvml.nvmlDeviceGetMemoryLimits_v1(pynvml.nvmlDeviceGetHandleByUUID(uuid), found)
    return found.softLimit // MIB, found.hardLimit // MIB, found.currentUsed // MIB


@contextmanager
def taking(program: Path, cgroup: str, *mib: int) -> Iterator[list[str]]:
    """The output of processes in the cgroup that take so much of the first card; they hold it in the context."""
    environment = {**os.environ, "LD_LIBRARY_PATH": str(program.parent), CGROUP: cgroup, "CUDA_VISIBLE_DEVICES": FIRST}
    argv = [str(program), "hold", *map(str, mib)]
    with subprocess.Popen(argv, env=environment, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        said = list(iter(lambda: process.stdout.readline().strip(), "END 0."))  # type: ignore[union-attr]
        yield [line.replace(f"{FIRST} ", "") for line in said]
        process.kill()


def test_limits_hold_for_one_cgroup_on_one_card(world: World) -> None:
    set_limits(world, "/pod/c", 0, 1000)
    assert got(world, "/pod/c") == (0, 1000, 0)
    for cgroup, uuid in (("/pod/c", SECOND), ("/pod/d", FIRST), ("/pod", FIRST)):
        with pytest.raises(pynvml.NVMLError_NotFound):
            got(world, cgroup, uuid)


def test_a_program_sees_its_own_limit_as_the_cards_size_and_gets_no_more(world: World, programs: Path) -> None:
    set_limits(world, "/pod/c", 0, 1000)
    with taking(programs, "/pod/c", 1000 - _CONTEXT_MIB + 1) as said:
        assert said == ["total 1000", "process 0 701 2"]
    with taking(programs, "/pod/c", 1000 - _CONTEXT_MIB) as said:
        assert said == ["total 1000", "process 0 700 0"]
        assert got(world, "/pod/c") == (0, 1000, 1000)
    assert got(world, "/pod/c") == (0, 1000, 0)


def test_all_processes_of_a_cgroup_share_its_limit(world: World, programs: Path) -> None:
    set_limits(world, "/pod/c", 0, 1000)
    with taking(programs, "/pod/c", 100, 200, 101) as said, taking(programs, "/pod/d", 5000) as other:
        # The third process has no room for its context.
        assert said == ["total 1000", "process 0 100 0", "process 1 200 0", "process 2 101 2"]
        assert other == ["total 81920", "process 0 5000 0"]
        assert got(world, "/pod/c") == (0, 1000, 900)
        handle = pynvml.nvmlDeviceGetHandleByUUID(FIRST)
        listed = [process.usedGpuMemory // MIB for process in pynvml.nvmlDeviceGetComputeRunningProcesses(handle)]
        assert sorted(listed) == [400, 500, 5300]
        assert pynvml.nvmlDeviceGetMemoryInfo(handle).used // MIB == 640 + 900 + 5300


def test_the_plugin_reads_the_use_of_a_container_with_several_processes(world: World, programs: Path) -> None:
    pod_uid, container_id = "0aa4a3c2-9a5e-4a0b-b0d5-6f1b8f4f2c11", "3f" * 32
    cgroup = f"/kubepods/burstable/pod{pod_uid}/{container_id}"
    at(world, cgroup).mkdir(parents=True)
    at(world, "cgroup.controllers").write_text("misc\n")
    set_limits(world, cgroup, 0, 4000)
    source = NvmlSource()
    source.open()
    assert [source.describe(index).limits for index in range(3)] == [True, True, False]
    paths = container_cgroups(at(world, "/"))
    assert set(paths) == {Owner(pod_uid, container_id)}
    own = paths[Owner(pod_uid, container_id)]
    with taking(programs, cgroup, 100, 200, 300), taking(programs, "/pod/d", 5000):
        assert source.memory_limits(FIRST, [own]) == {own: MemoryLimits(4000, 0, 600 + 3 * _CONTEXT_MIB)}
        assert source.memory_limits(SECOND, [own]) == {}
    at(world, cgroup).rmdir()
    assert source.memory_limits(FIRST, [own]) == {}
