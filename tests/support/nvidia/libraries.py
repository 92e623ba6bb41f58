"""Compiles the stand-ins of NVIDIA's libraries, and makes pynvml use the NVML one."""

import ctypes
import shutil
import subprocess
import sysconfig
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import pynvml  # type: ignore[import-untyped] # nvidia-ml-py has no annotations

NVML: Final = "libnvidia-ml.so.1"
CUDA: Final = "libcuda.so.1"
# A program that tells whether CUDA starts in a container.
CUDA_CHECK: Final = "cuda-check"
# A program that takes memory in several processes.
CUDA_MEMORY: Final = "cuda-memory"

_SOURCES: Final = Path(__file__).parent
_FLAGS: Final = ("-std=gnu11", "-O1", "-Wall", "-Wextra", "-Werror")


def nvml_header() -> Path:
    """Return the folder of NVIDIA's nvml.h, from the package nvidia-nvml-dev."""
    found = sorted(Path(sysconfig.get_path("purelib")).glob("nvidia/*/include/nvml.h"))
    if not found:
        message = "nvml.h is missing: expected the package nvidia-nvml-dev of requirements/dev.txt; run make setup"
        raise FileNotFoundError(message)
    return found[-1].parent


def compile_nvml(folder: Path) -> Path:
    """Compile the stand-in for NVML into this folder. Raises RuntimeError with the compiler's output."""
    return _library(folder / NVML, "nvml.c", f"-I{nvml_header()}")


def compile_cuda(folder: Path) -> Path:
    """Compile the stand-in for CUDA's driver library into this folder."""
    return _library(folder / CUDA, "cuda.c")


def compile_cuda_check(folder: Path) -> Path:
    """Compile a program that prints the answer of cuInit and the cards that it finds."""
    return _compiled(folder / CUDA_CHECK, "cuda_check.c")


def compile_cuda_memory(folder: Path) -> Path:
    """Compile a program that takes memory of every card in one process after another; see cuda_memory.c."""
    return _compiled(folder / CUDA_MEMORY, "cuda_memory.c")


@contextmanager
def pynvml_with(library: Path) -> Iterator[None]:
    """Make pynvml call this library in this process."""
    before, functions = pynvml.nvmlLib, dict(_functions())
    pynvml.nvmlLib = ctypes.CDLL(str(library))
    _functions().clear()
    try:
        yield
    finally:
        pynvml.nvmlLib = before
        _functions().clear()
        _functions().update(functions)


def _functions() -> dict[str, object]:
    found: dict[str, object] = pynvml._nvmlGetFunctionPointer_cache  # noqa: SLF001 # it has no other way
    return found


def _library(output: Path, source: str, *flags: str) -> Path:
    return _compiled(output, source, "-fPIC", "-shared", f"-Wl,-soname,{output.name}", *flags, "-lpthread")


def _compiled(output: Path, source: str, *flags: str) -> Path:
    compiler = shutil.which("gcc")
    if compiler is None:
        message = "gcc is missing: the stand-ins of NVIDIA's libraries are written in C"
        raise RuntimeError(message)
    output.parent.mkdir(parents=True, exist_ok=True)
    argv = [compiler, *_FLAGS, "-o", str(output), str(_SOURCES / source), *flags, "-ldl"]
    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    if done.returncode:
        message = f"gcc cannot compile {source}: {done.stderr}"
        raise RuntimeError(message)
    return output
