"""The world of the stand-ins: the file from which they take every answer. nvml.c describes its format."""

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

VARIABLE: Final = "GPUSHARE_NVIDIA_WORLD"
# Folder that the stand-in for CUDA searches for device nodes instead of /dev.
DEVICES: Final = "GPUSHARE_NVIDIA_DEV"
DRIVER: Final = "580.95.05"
# Can limit memory by cgroup.
DRIVER_WITH_LIMITS: Final = "615.71.03"


def uuid_of(number: int) -> str:
    """Return the UUID of the card with this number."""
    return f"GPU-{number:08x}-0000-4000-8000-000000000000"


def pci_of(number: int) -> str:
    """Return the PCI address of the card with this number."""
    return f"0000:{number + 7:02x}:00.0"


def instance(
    number: int, gpu_instance: int, compute_instance: int = 0, *, profile: str = "1g.10gb", memory_mib: int = 9856
) -> dict[str, object]:
    """Return facts of a MIG instance of `card(number)`, for the card's fact `instances`. Its place gives its UUID."""
    return {
        "uuid": f"MIG-{number:08x}-{gpu_instance:04x}-{compute_instance:04x}-8000-000000000000",
        "gi": gpu_instance,
        "ci": compute_instance,
        "profile": profile,
        "memory_mib": memory_mib,
    }


def caps(minor: int, gpu_instance: int, compute_instance: int) -> tuple[int, int]:
    """Return minors of the two nodes in /dev/nvidia-caps that an instance needs, as NVIDIA's kernel module counts."""
    access = 3 + 135 * minor + 9 * gpu_instance
    return access, access + 1 + compute_instance


def mig_minors(cards: Iterable[int]) -> str:
    """Return the text of /proc/driver/nvidia-caps/mig-minors for cards with these minors."""
    rows = ["config 1", "monitor 2"]
    for minor in cards:
        for gpu_instance in range(15):
            rows.append(f"gpu{minor}/gi{gpu_instance}/access {caps(minor, gpu_instance, 0)[0]}")
            rows += [
                f"gpu{minor}/gi{gpu_instance}/ci{compute}/access {caps(minor, gpu_instance, compute)[1]}"
                for compute in range(8)
            ]
    return "\n".join([*rows, ""])


def card(number: int, **facts: object) -> dict[str, object]:
    """Return facts of an 80 GiB card with 640 MiB reserved. facts: overrides, None leaves one out."""
    usual = {
        "uuid": uuid_of(number),
        "name": "NVIDIA H100 80GB HBM3",
        "minor": number,
        "pci": pci_of(number),
        "total_mib": 81920,
        "reserved_mib": 640,
        "used_mib": 0,
        "mig": 0,
        "persistence": 1,
    }
    return {name: value for name, value in {**usual, **facts}.items() if value is not None}


@dataclass
class World:
    """The world. cards: facts by name, in index order; `instances`: facts of each MIG instance, None in a gap.

    lines: other lines, such as faults. `write` writes it.
    """

    path: Path
    cards: list[dict[str, object]] = field(default_factory=list)
    lines: list[str] = field(default_factory=list)
    driver: str = DRIVER

    def write(self) -> None:
        """Replace the file, so that every later call of a stand-in uses it."""
        facts = [
            f"card {index} {name} {str(value).replace(' ', '_')}"
            for index, one in enumerate(self.cards)
            for name, value in _flat(one)
        ]
        text = "\n".join([f"driver {self.driver}", *facts, *self.lines, ""])
        temporary = self.path.with_name(f".{self.path.name}.new")
        temporary.write_text(text, encoding="ascii")
        temporary.replace(self.path)

    def say(self, *lines: str) -> None:
        """Add permanent lines."""
        self.lines += lines
        self.write()

    @contextmanager
    def planted(self, *lines: str) -> Iterator[None]:
        """Add lines, such as `fault nvmlDeviceGetName 0 3`, while the context lasts."""
        self.say(*lines)
        try:
            yield
        finally:
            for line in lines:
                self.lines.remove(line)
            self.write()


def _flat(facts: Mapping[str, object]) -> Iterator[tuple[str, object]]:
    for name, value in facts.items():
        if not isinstance(value, list):
            yield name, value
            continue
        for place, part in enumerate(value):
            yield from ((f"instance {place} {own}", fact) for own, fact in (part or {}).items())
