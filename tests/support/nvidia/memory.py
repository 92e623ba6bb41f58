"""Reads the files of the folder `WORLD.memory`, in which the stand-ins keep limits; cgroup_memory.h has the format."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

# Variables: a folder that stands for /sys/fs/cgroup, and the cgroup of a process that uses CUDA.
CGROUPS: Final = "GPUSHARE_NVIDIA_CGROUPS"
CGROUP: Final = "GPUSHARE_NVIDIA_CGROUP"
NO_LIMIT: Final = 2**64 - 1
MIB: Final = 1024 * 1024


@dataclass(frozen=True, slots=True)
class Limits:
    """Limits of one cgroup on one card, in bytes. hard: NO_LIMIT for none."""

    soft: int
    hard: int


def limits(world: Path) -> dict[tuple[str, str], Limits]:
    """Return the limits by UUID of the card and path within the tree of cgroup v2.

    Limits of cgroups that have gone remain until the next call that sets limits.
    """
    return {(uuid, path): Limits(int(soft), int(hard)) for uuid, _, path, soft, hard in _lines(world, "limits")}


def reserved(world: Path) -> dict[tuple[str, str], int]:
    """Return the bytes that each cgroup reserves for soft limits set below it, by UUID and path."""
    return {(uuid, path): int(size) for uuid, path, size in _lines(world, "reserved")}


def folder_of(world: Path) -> Path:
    """Return the folder; it exists once limits were set or CUDA was used."""
    return world.with_name(f"{world.name}.memory")


def _lines(world: Path, name: str) -> Iterator[list[str]]:
    path = folder_of(world) / name
    yield from (line.split() for line in path.read_text().splitlines()) if path.exists() else ()
