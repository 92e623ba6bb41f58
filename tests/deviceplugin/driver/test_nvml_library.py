"""NVML through NVIDIA's own binding, down to a library with NVIDIA's own interface.

The stand-in is compiled against nvml.h: names, structs and versions are NVIDIA's. Its answers are ours.
"""

from collections.abc import Iterator
from pathlib import Path

import pynvml  # type: ignore[import-untyped] # nvidia-ml-py has no annotations
import pytest

from deviceplugin.driver.cards import Xid
from deviceplugin.driver.nvml import NvmlSource
from tests.support.nvidia import libraries
from tests.support.nvidia.world import VARIABLE, World, card, pci_of, uuid_of

FIRST, SECOND = uuid_of(0), uuid_of(1)


@pytest.fixture
def world(library: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[World]:
    """Two cards."""
    made = World(tmp_path / "world", [card(0), card(1)])
    made.write()
    monkeypatch.setenv(VARIABLE, str(made.path))
    with libraries.pynvml_with(library):
        yield made


def test_a_card_is_described_from_nvidias_own_structs(world: World, source: NvmlSource) -> None:
    world.cards[0] |= {"numa": 1, "links": 18}
    world.say(f"card 0 link 0 {pci_of(1)}", f"card 1 link 0 {pci_of(0)}")
    world.cards[1] |= {"links": 18}
    world.write()

    found = [source.describe(index) for index in range(2)]

    assert [(one.index, one.uuid, one.minor, one.pci, one.memory_mib) for one in found] == [
        (0, FIRST, 0, pci_of(0), 81280),
        (1, SECOND, 1, pci_of(1), 81280),
    ]
    assert (found[0].model, found[0].numa, found[1].numa) == ("NVIDIA H100 80GB HBM3", 1, None)
    assert source.links([FIRST, SECOND]) == {FIRST: {"1": "NV1"}, SECOND: {"0": "NV1"}}


def test_a_reading_is_taken_from_nvidias_own_structs(world: World, source: NvmlSource) -> None:
    facts = {"used_mib": 3000, "utilization": 61, "celsius": 55, "power_mw": 350500, "uncorrected_ecc": 2}
    world.cards[0] |= {**facts, "remap_pending": 1, "recovery": 2, "energy_mj": 7}
    world.say("card 0 process 4711 2900")
    source.describe(0)

    reading = source.read(FIRST)

    assert (reading.used_mib, reading.utilisation, reading.temperature_c, reading.power_w) == (3000, 61, 55, 350.5)
    assert [(one.pid, one.used_mib) for one in reading.processes] == [(4711, 2900)]
    assert (reading.uncorrected_ecc, reading.remap_pending, reading.recovery) == (2, True, "reboot")
    assert (reading.energy_mj, reading.persistent, reading.absent) == (7, True, ())


def test_errors_of_a_card_are_reported_once(world: World, source: NvmlSource) -> None:
    source.describe(0)
    assert source.wait(FIRST, 0.0) == ()

    world.say("card 0 xid 79 1", "card 1 xid 48 2")

    assert source.wait(FIRST, 1.0) == (Xid(FIRST, 79),)
    assert source.wait(FIRST, 0.0) == ()


def test_a_card_in_mig_mode_is_described_as_such_though_its_memory_is_denied(world: World, source: NvmlSource) -> None:
    """Drivers deny questions about a parent card to programs that see only its instances."""
    world.cards[0] |= {"mig": 1}
    world.say(f"fault nvmlDeviceGetNumaNodeId 0 {pynvml.NVML_ERROR_NO_PERMISSION}")

    found = source.describe(0)

    assert (found.uuid, found.mig, found.memory_mib) == (FIRST, True, 0)
