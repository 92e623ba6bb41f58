"""The machine under test: its driver as the plugin asks it, CUDA programs on it, and the versions of what is there."""

import asyncio
import os
import platform
import shutil
import subprocess
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any, Final

import pynvml  # type: ignore[import-untyped] # nvidia-ml-py has no annotations

from config.settings.deviceplugin import DevicePluginConfiguration
from deviceplugin.backends import backend_for
from deviceplugin.driver.nvml_cards import text
from deviceplugin.driver.supervisor import SupervisedDriver

_PROGRAM: Final = (sys.executable, "-m", "tests.gpu.cuda_program")
_STEP_WITHIN_S: Final = 60.0
_PROGRAMS: Final = {"nvidia-ctk": "--version", "nvidia-container-runtime": "--version"}


def driver() -> SupervisedDriver:
    """Make the driver as the plugin does; inside the event loop."""
    return backend_for(DevicePluginConfiguration(node_name="test-gpu")).driver


class ProgramFailed(Exception):
    """The CUDA program answered with an error."""


class CudaProgram:
    """A process that holds memory of one card."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process
        self.pid = process.pid

    async def step(self, line: str) -> None:
        """Do one step. Raises ProgramFailed, TimeoutError."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(f"{line}\n".encode())
        async with asyncio.timeout(_STEP_WITHIN_S):
            said = (await self._process.stdout.readline()).decode().strip()
        if said != "done":
            raise ProgramFailed(said or "the program ended")

    async def end(self) -> None:
        """End it, and wait until it has ended."""
        if self._process.returncode is None:
            self._process.kill()
        await self._process.wait()


@asynccontextmanager
async def cuda_program(uuid: str) -> AsyncIterator[CudaProgram]:
    """A CUDA program that sees this card alone; ended with the context."""
    process = await asyncio.create_subprocess_exec(
        *_PROGRAM,
        env={**os.environ, "CUDA_VISIBLE_DEVICES": uuid},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    program = CudaProgram(process)
    try:
        yield program
    finally:
        await program.end()


def memory_limits(uuid: str) -> str:
    """The memory limits of a card for the root of cgroups, read only. Raises NVMLError."""
    limits: Any = pynvml.c_nvmlGetMemoryLimits_v1_t(nameSpace=b"/sys/fs/cgroup")
    pynvml.nvmlInit()
    try:
        pynvml.nvmlDeviceGetMemoryLimits_v1(pynvml.nvmlDeviceGetHandleByUUID(uuid), limits)
    except pynvml.NVMLError_NotFound:
        return "none set"
    finally:
        pynvml.nvmlShutdown()
    return f"soft {limits.softLimit}, hard {limits.hardLimit}, used {limits.currentUsed} bytes"


def versions() -> dict[str, str]:
    """Name -> version of what is on this machine."""
    found = {"kernel": platform.release(), "machine": platform.machine(), "Python": platform.python_version()}
    found |= {f"libc ({platform.libc_ver()[0] or 'unknown'})": platform.libc_ver()[1]}
    try:
        pynvml.nvmlInit()
        found["driver"] = text(pynvml.nvmlSystemGetDriverVersion())
        found["NVML"] = text(pynvml.nvmlSystemGetNVMLVersion())
        found["CUDA of the driver"] = str(_asked(pynvml.nvmlSystemGetCudaDriverVersion))
        pynvml.nvmlShutdown()
    except pynvml.NVMLError as error:
        found["driver"] = f"unknown: {error}"
    found |= {name: _said(name, flag) for name, flag in _PROGRAMS.items()}
    return found


def _asked(function: Callable[[], object]) -> object:
    try:
        return function()
    except pynvml.NVMLError as error:
        return f"unknown: {error}"


def _said(name: str, flag: str) -> str:
    path = shutil.which(name)
    if path is None:
        return "not installed"
    done = subprocess.run([path, flag], capture_output=True, text=True, check=False, timeout=10)
    return (done.stdout or done.stderr).strip().partition("\n")[0]
