"""MIG instances, read through NVIDIA's own binding from the stand-in of NVML."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pynvml  # type: ignore[import-untyped] # nvidia-ml-py has no annotations
import pytest

from deviceplugin.driver import nvml_instances
from deviceplugin.driver.cards import CardFailed, DriverCard, NoAnswer, Process, SourceFailed
from deviceplugin.driver.nvml import NvmlSource
from tests.support.nvidia import libraries
from tests.support.nvidia.world import VARIABLE, World, card, instance, pci_of, uuid_of

SPLIT, WHOLE = uuid_of(0), uuid_of(1)
SMALL, LARGE = instance(0, 9), instance(0, 3, profile="2g.20gb", memory_mib=19968)
SMALL_UUID, LARGE_UUID = str(SMALL["uuid"]), str(LARGE["uuid"])


@pytest.fixture
def world(library: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[World]:
    """A split card, with a gap between its instances, and a whole card."""
    made = World(tmp_path / "world", [card(0, mig=1, celsius=61, instances=[SMALL, None, LARGE]), card(1)])
    made.write()
    monkeypatch.setenv(VARIABLE, str(made.path))
    with libraries.pynvml_with(library):
        yield made


def split(source: NvmlSource) -> DriverCard:
    return source.describe(0)


def test_each_instance_is_a_card_with_its_own_name_memory_and_index(world: World, source: NvmlSource) -> None:
    found = split(source)

    assert (found.mig, found.memory_mib, found.absent) == (True, 0, ())
    assert [(one.index, one.uuid, one.memory_mib, one.instance) for one in found.instances] == [
        (1030, LARGE_UUID, 19968, (3, 0)),
        (1090, SMALL_UUID, 9856, (9, 0)),
    ]
    first = found.instances[0]
    assert first.model == "NVIDIA H100 80GB HBM3 MIG 2g.20gb"
    assert (first.parent, first.minor, first.pci, first.mig, first.limits) == (SPLIT, 0, pci_of(0), False, False)
    assert world.cards[1]["mig"] == 0
    assert source.describe(1).instances == ()


def test_the_index_of_an_instance_stays_when_others_come_and_go(world: World, source: NvmlSource) -> None:
    before = {one.uuid: one.index for one in split(source).instances}
    world.cards[0]["instances"] = [instance(0, 4), SMALL, instance(0, 5)]
    world.write()

    after = {one.uuid: one.index for one in split(source).instances}

    assert after[SMALL_UUID] == before[SMALL_UUID]
    assert len(set(after.values())) == 3


def test_compute_instances_of_one_gpu_instance_share_its_memory(world: World, source: NvmlSource) -> None:
    facts = {"profile": "1c.3g.40gb", "memory_mib": 40448}
    world.cards[0]["instances"] = [instance(0, 2, ci, **facts) for ci in range(2)]  # type: ignore[arg-type]
    world.write()
    assert [(one.instance, one.memory_mib) for one in split(source).instances] == [((2, 0), 20224), ((2, 1), 20224)]


def test_a_program_without_access_to_an_instance_still_learns_its_size(world: World, source: NvmlSource) -> None:
    denied = [f"fault {call} 0 {pynvml.NVML_ERROR_NO_PERMISSION}" for call in MEMORY]
    with world.planted(*denied):
        assert [one.memory_mib for one in split(source).instances] == [19968, 9856]


MEMORY = ("nvmlDeviceGetMemoryInfo", "nvmlDeviceGetMemoryInfo_v2")


def test_a_program_that_may_not_see_instances_sees_the_card_and_says_so(world: World, source: NvmlSource) -> None:
    with world.planted(f"fault nvmlDeviceGetMaxMigDeviceCount 0 {pynvml.NVML_ERROR_NO_PERMISSION}"):
        found = split(source)
        assert (found.mig, found.instances) == (True, ())
        assert found.absent == ("MigDevices: NVML returned 'Insufficient Permissions'",)
        assert source.read(SPLIT).instances == ()


@pytest.mark.parametrize(
    ("code", "kind"),
    [(pynvml.NVML_ERROR_UNKNOWN, CardFailed), (pynvml.NVML_ERROR_TIMEOUT, NoAnswer)],
)
@pytest.mark.parametrize("call", ["nvmlDeviceGetMigDeviceHandleByIndex", "nvmlDeviceGetGpuInstanceId"])
def test_instances_that_cannot_be_listed_are_never_taken_for_destroyed(
    world: World, source: NvmlSource, call: str, code: int, kind: type[SourceFailed]
) -> None:
    with world.planted(f"fault {call} 0 {code}"), pytest.raises(kind):
        split(source)


def test_a_reading_of_an_instance_has_its_own_use_and_the_cards_health(world: World, source: NvmlSource) -> None:
    world.cards[0] |= {
        "power_mw": 1000,
        "uncorrected_ecc": 3,
        "remap_pending": 1,
        "instances": [SMALL | {"used_mib": 700}, None, LARGE],
    }
    world.say("card 0 process 4711 650 in 0", "card 0 process 4712 9 in 2", "card 0 process 4713 9")
    found = split(source)

    reading = source.read(SPLIT)

    assert (reading.used_mib, reading.processes, reading.temperature_c) == (0, (), 61)
    assert tuple(one.card for one in reading.instances) == found.instances
    small = reading.instances[1].reading
    assert small is not None
    assert (small.used_mib, small.processes) == (700, (Process(4711, 650),))
    assert (small.temperature_c, small.uncorrected_ecc, small.remap_pending, small.power_w) == (61, 3, True, None)


def test_an_instance_that_cannot_be_read_is_named_without_a_reading(world: World, source: NvmlSource) -> None:
    split(source)
    with world.planted(*(f"fault {call} 0 {pynvml.NVML_ERROR_NO_PERMISSION}" for call in MEMORY)):
        assert [one.reading for one in source.read(SPLIT).instances] == [None, None]


@pytest.mark.parametrize(
    ("index", "place"), [(64, (0, 0)), (0, (100, 0)), (0, (0, 10))], ids=["card", "GPU instance", "compute instance"]
)
def test_a_place_without_an_index_is_rejected(index: int, place: tuple[int, int]) -> None:
    parent = DriverCard(index=0, uuid=SPLIT, model="M", memory_mib=0, mig=True)
    assert nvml_instances.index_of(parent, (99, 9)) == 1999
    with pytest.raises(CardFailed, match=r"no index for its instance \d+/\d+; expected a card below 64"):
        nvml_instances.index_of(replace(parent, index=index), place)
