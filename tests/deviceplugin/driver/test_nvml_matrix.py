"""Every call of NVML that the plugin makes, failing or hanging for one of three cards: the others are unharmed."""

import asyncio
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pynvml  # type: ignore[import-untyped] # nvidia-ml-py has no annotations
import pytest

from config.protocol.inventory import Health
from deviceplugin.driver.cards import CardReading, DriverCards, NoAnswer, SourceFailed
from deviceplugin.driver.nvml import NvmlSource
from deviceplugin.driver.processes import DriverLimits
from deviceplugin.driver.supervisor import SupervisedDriver
from deviceplugin.health.rules import classes
from deviceplugin.health.states import CardStates
from tests.support.nvidia import libraries
from tests.support.nvidia.sessions import threads
from tests.support.nvidia.world import VARIABLE, World, card, pci_of, uuid_of
from tests.support.repository import ROOT

CARDS: Final = tuple(uuid_of(number) for number in range(3))
FIRST, BAD, LAST = CARDS
OTHERS: Final = {FIRST, LAST}
HEALTHY: Final = (Health.HEALTHY, "")
# Calls that describing a card makes, and those that a reading makes.
DESCRIBES: Final = (
    "nvmlDeviceGetHandleByIndex_v2",
    "nvmlDeviceGetUUID",
    "nvmlDeviceGetMigMode",
    "nvmlDeviceGetName",
    "nvmlDeviceGetMinorNumber",
    "nvmlDeviceGetPciInfo_v3",
    "nvmlDeviceGetNumaNodeId",
    "nvmlDeviceGetMemoryAffinity",
    "nvmlDeviceGetMemoryInfo_v2",
    "nvmlDeviceGetMemoryLimits_v1",
)
READS: Final = (
    "nvmlDeviceGetMemoryInfo_v2",
    "nvmlDeviceGetComputeRunningProcesses_v3",
    "nvmlDeviceGetGraphicsRunningProcesses_v3",
    "nvmlDeviceGetUtilizationRates",
    "nvmlDeviceGetPowerUsage",
    "nvmlDeviceGetComputeMode",
    "nvmlDeviceGetTemperature",
    "nvmlDeviceGetTotalEnergyConsumption",
    "nvmlDeviceGetPersistenceMode",
    "nvmlDeviceGetRemappedRows",
    "nvmlDeviceGetTotalEccErrors",
    "nvmlDeviceGetFieldValues",
    "nvmlDeviceGetGpuFabricInfoV",
)
# Links only help to choose; whatever they answer, the card is shared.
LINKS: Final = (
    "nvmlDeviceGetNvLinkState",
    "nvmlDeviceGetNvLinkRemoteDeviceType",
    "nvmlDeviceGetNvLinkRemotePciInfo_v2",
    "nvmlDeviceGetTopologyCommonAncestor",
)
# Made only where another call is not supported.
FALLBACKS: Final = {
    "nvmlDeviceGetMemoryInfo": "nvmlDeviceGetMemoryInfo_v2",
    "nvmlDeviceGetComputeRunningProcesses_v2": "nvmlDeviceGetComputeRunningProcesses_v3",
    "nvmlDeviceGetGraphicsRunningProcesses_v2": "nvmlDeviceGetGraphicsRunningProcesses_v3",
    "nvmlDeviceGetTemperatureV": "nvmlDeviceGetTemperature",
    "nvmlDeviceGetRetiredPagesPendingStatus": "nvmlDeviceGetRemappedRows",
}
# Tested elsewhere: they open the library, look a card up by name, set its mode, or wait for its errors.
ELSEWHERE: Final = frozenset(
    {
        "nvmlDeviceGetCount",
        "nvmlDeviceGetHandleByPciBusId",
        "nvmlDeviceGetHandleByUUID",
        "nvmlDeviceGetIndex",
        "nvmlDeviceRegisterEvents",
        "nvmlDeviceSetComputeMode",
        # Of MIG instances: test_nvml_instances.
        "nvmlDeviceGetAttributes_v2",
        "nvmlDeviceGetComputeInstanceId",
        "nvmlDeviceGetGpuInstanceId",
        "nvmlDeviceGetMaxMigDeviceCount",
        "nvmlDeviceGetMigDeviceHandleByIndex",
    }
)
# No reading waits for them: the second handle is looked up by address, and links between cards are asked once for all.
NO_READING: Final = frozenset({"nvmlDeviceGetHandleByIndex_v2", "nvmlDeviceGetTopologyCommonAncestor"})
ALL: Final = tuple(dict.fromkeys((*DESCRIBES, *READS, *LINKS, *FALLBACKS)))
# Without these a card cannot be shared: it has no name, or no memory.
IDENTITY: Final = ("nvmlDeviceGetHandleByIndex_v2", "nvmlDeviceGetUUID")
MEMORY: Final = ("nvmlDeviceGetMemoryInfo_v2", "nvmlDeviceGetMemoryInfo")

UNSUPPORTED: Final = {
    "NotSupported": pynvml.NVML_ERROR_NOT_SUPPORTED,
    "FunctionNotFound": pynvml.NVML_ERROR_FUNCTION_NOT_FOUND,
}
DENIED: Final = {"NoPermission": pynvml.NVML_ERROR_NO_PERMISSION, "Unknown": pynvml.NVML_ERROR_UNKNOWN}
FAULTS: Final = {**UNSUPPORTED, **DENIED, "GpuIsLost": pynvml.NVML_ERROR_GPU_IS_LOST}


@pytest.fixture
def world(library: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[World]:
    """Three cards of a machine with NVLink and a fabric that is ready."""
    facts = {"numa": 1, "links": 18, "fabric_state": 3, "celsius": 40, "power_mw": 1000, "utilization": 1}
    made = World(tmp_path / "world", [card(number, **facts) for number in range(3)])
    made.lines = [f"card {a} link 0 {pci_of(b)}" for a, b in ((0, 1), (1, 0))]
    made.write()
    monkeypatch.setenv(VARIABLE, str(made.path))
    with libraries.pynvml_with(library):
        yield made


def opened() -> NvmlSource:
    made = NvmlSource()
    made.open()
    return made


def lines(call: str, fault: int) -> list[str]:
    """The fault, and what makes the call be made."""
    before = FALLBACKS.get(call)
    return [
        f"fault {call} 1 {fault}",
        *([f"fault {before} * {pynvml.NVML_ERROR_NOT_SUPPORTED}"] if before else []),
    ]


def described(source: NvmlSource) -> DriverCards:
    found = []
    for index in range(3):
        try:
            found.append(source.describe(index))
        except SourceFailed:
            continue
    return DriverCards("580", tuple(found))


def answer(source: NvmlSource, uuid: str) -> CardReading | SourceFailed:
    try:
        return source.read(uuid)
    except SourceFailed as error:
        return error


def test_no_call_of_the_plugin_is_missing_here() -> None:
    text = "".join(path.read_text() for path in (ROOT / "deviceplugin" / "driver").glob("nvml*.py"))
    made = set(re.findall(r"library\.(nvmlDevice\w+)", text))
    assert {re.sub(r"_v\d$", "", name) for name in made} == {re.sub(r"_v\d$", "", name) for name in (*ALL, *ELSEWHERE)}


def missing(call: str, fault: str) -> bool:
    """Whether a card of which nothing was known before is left out."""
    if call in IDENTITY:
        return True
    if fault == "GpuIsLost":
        return call not in LINKS and (call in DESCRIBES or call in MEMORY)
    return call in MEMORY and fault in DENIED


def state(call: str, fault: str) -> tuple[Health, str]:
    """The state of the card, which was known before, after a minute."""
    made = call in READS or call in FALLBACKS
    if made and (fault == "GpuIsLost" or (call in MEMORY and fault == "Unknown")):
        return Health.UNHEALTHY, "lost"
    return (Health.SUSPECT, "silent") if call in MEMORY and fault in DENIED else HEALTHY


@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize("call", ALL)
def test_a_call_that_fails_for_one_card_changes_that_card_alone(
    world: World, source: NvmlSource, call: str, fault: str
) -> None:
    states = CardStates(classes((), ()))
    states.found(described(source), forget=True)
    with world.planted(*lines(call, FAULTS[fault])):
        for now_s in range(0, 60, 10):
            states.answered({uuid: answer(source, uuid) for uuid in CARDS}, float(now_s))
        found = described(opened())

    assert {card.uuid for card in found.cards} == OTHERS | (set() if missing(call, fault) else {BAD})
    assert states.announced() == {FIRST: HEALTHY, BAD: state(call, fault), LAST: HEALTHY}


@pytest.mark.parametrize("fault", DENIED)
@pytest.mark.parametrize("call", [call for call in ALL if call not in {*IDENTITY, *MEMORY, *LINKS}])
def test_an_optional_fact_that_is_denied_is_reported(world: World, source: NvmlSource, call: str, fault: str) -> None:
    with world.planted(*lines(call, DENIED[fault])):
        states = CardStates(classes((), ()))
        states.found(described(source), forget=True)
        states.answered({uuid: answer(source, uuid) for uuid in CARDS}, 0.0)
    assert [bool(absent) for absent in states.absent().values()] == [False, True, False]


LIMITS: Final = DriverLimits(answer_s=0.6, patience_s=0.01, stuck_s=60, hung_s=60)


@pytest.mark.parametrize("call", ALL)
async def test_a_call_that_hangs_for_one_card_keeps_no_other_waiting(world: World, call: str) -> None:
    driver = SupervisedDriver(threads, LIMITS)
    driver.remember(described(opened()).cards)
    fallback = lines(call, 0)[1:]
    with world.planted(f"hang {call} 1", *fallback):
        began_s = asyncio.get_running_loop().time()
        found = await driver.cards()
        answers = await driver.readings(CARDS)
        took_s = asyncio.get_running_loop().time() - began_s
    for uuid in OTHERS:
        assert isinstance(answers[uuid], CardReading)
    assert {card.uuid for card in found.cards} >= OTHERS
    assert isinstance(answers[BAD], CardReading if call in NO_READING else NoAnswer)
    # One call lists the cards, one their links, one reads: docs/develop/device-plugin.md has the limit of each.
    assert took_s < 3 * LIMITS.answer_s + 2.0
    await driver.close()
