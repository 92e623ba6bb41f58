"""An NVIDIA driver comes late, reports errors and loses cards; how its cards do."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pynvml  # type: ignore[import-untyped] # nvidia-ml-py has no annotations
import pytest

from deviceplugin.driver.cards import CardFailed, CardReading, NoAnswer, NotOpened, Process, SourceFailed, Xid
from deviceplugin.driver.nvml import NvmlSource
from tests.support.node.nvml_double import MIB, NvmlDouble, card, xid

LOST = pynvml.NVMLError_GpuIsLost()


def found(*numbers: int) -> tuple[NvmlDouble, NvmlSource]:
    """A driver with these cards, and a source that has described them."""
    double = NvmlDouble(*(card(number) for number in numbers))
    source = NvmlSource(double, sleep=lambda _: None)
    for index in range(source.open().count):
        source.describe(index)
    return double, source


def test_nothing_happens_in_time() -> None:
    double, source = found(0)
    assert source.wait("GPU-0", 5.0) == ()
    assert double.waited_ms == [5000]


def test_errors_of_about_one_moment_are_counted_together() -> None:
    double, source = found(0)
    double.events = [xid(double.handle(0), 31), xid(double.handle(0), 79), xid(double.handle(0), 31)]
    assert source.wait("GPU-0", 60.0) == (Xid("GPU-0", 31, times=2), Xid("GPU-0", 79))
    assert double.waited_ms == [60000, 0, 0, 0]
    assert source.wait("GPU-0", 0.0) == ()


def test_each_card_is_listened_to_for_itself() -> None:
    double, source = found(0, 1)
    double.nvml_cards[0].lost = LOST
    with pytest.raises(CardFailed, match="GPU is lost"):
        source.wait("GPU-0", 0.0)
    assert source.wait("GPU-1", 0.0) == ()
    double.nvml_cards[0].lost = None
    for uuid in ("GPU-0", "GPU-1", "GPU-0"):
        assert source.wait(uuid, 0.0) == ()
    assert [listened for listened in double.event_sets if listened] == [["GPU-1"], ["GPU-0"]]


def test_an_error_of_no_card_in_particular_is_reported() -> None:
    double, source = found(0)
    double.events = [xid(double.handle(-1), 13)]
    assert source.wait("GPU-0", 0.0) == (Xid("", 13),)


def test_an_error_of_a_card_that_no_longer_tells_its_uuid_names_it() -> None:
    double, source = found(0, 1)
    double.events = [xid(double.handle(1), 79)]
    double.nvml_cards[1].answers["nvmlDeviceGetUUID"] = LOST
    assert source.wait("GPU-1", 0.0) == (Xid("GPU-1", 79),)


def test_a_storm_of_errors_does_not_keep_others_waiting() -> None:
    double, source = found(0)
    double.events = [xid(double.handle(0), 94)] * 1000
    (heard,) = source.wait("GPU-0", 0.0) or ()
    assert 0 < heard.times < 1000


def test_a_card_without_events_is_not_waited_for() -> None:
    double = NvmlDouble(card(0, nvmlDeviceRegisterEvents=pynvml.NVMLError_NotSupported()))
    source = NvmlSource(double)
    source.open()
    source.describe(0)
    assert source.wait("GPU-0", 60.0) is None
    assert double.waited_ms == []


@pytest.mark.parametrize("mode", ["", "EXCLUSIVE_PROCESS", "PROHIBITED"])
def test_a_compute_mode_is_set_as_it_is_read(mode: str) -> None:
    double, source = found(0)
    answers = double.nvml_cards[0].answers
    answers["nvmlDeviceSetComputeMode"] = lambda number: answers.update(nvmlDeviceGetComputeMode=number)
    source.set_compute_mode("GPU-0", mode)
    assert source.read("GPU-0").compute_mode == mode


def test_a_compute_mode_that_may_not_be_set_says_nothing_of_the_card_or_the_driver() -> None:
    double, source = found(0)
    double.nvml_cards[0].answers["nvmlDeviceSetComputeMode"] = pynvml.NVMLError_NoPermission()
    with pytest.raises(NoAnswer, match="Insufficient Permissions"):
        source.set_compute_mode("GPU-0", "EXCLUSIVE_PROCESS")


@pytest.mark.parametrize(
    ("error", "message"),
    [
        (pynvml.NVMLError_DriverNotLoaded(), "is the driver's kernel module loaded on this node?"),
        (pynvml.NVMLError_LibRmVersionMismatch(), "the driver was replaced after this container was made"),
        (pynvml.NVMLError_NoPermission(), "Insufficient Permissions"),
        (pynvml.NVMLError_Unknown(), "Unknown Error"),
    ],
    ids=lambda value: type(value).__name__,
)
def test_a_driver_that_cannot_be_opened_is_reported_with_the_remedy(error: Exception, message: str) -> None:
    double = NvmlDouble(card(0))
    double.broken = error
    with pytest.raises(NotOpened, match=message.replace("?", r"\?")):
        NvmlSource(double).open()


NO_NVML = "libnvidia-ml.so.1: cannot open shared object file: No such file or directory"
NO_LIBDL = "libdl.so.2: cannot open shared object file: No such file or directory"


@pytest.mark.parametrize(
    ("said", "advice"),
    [
        (NO_NVML, "is the driver installed on this node? Does the NVIDIA runtime run this container?"),
        (NO_LIBDL, "the container's image lacks a library that NVML needs"),
        ("libnvidia-ml.so.1: file too short", "the library is damaged"),
    ],
)
def test_a_library_that_cannot_be_loaded_is_reported_as_the_loader_says(said: str, advice: str) -> None:
    def load(name: str) -> None:
        assert name == "libnvidia-ml.so.1"
        raise OSError(said)

    double = NvmlDouble()
    double.broken = pynvml.NVMLError_LibraryNotFound()
    with pytest.raises(NotOpened) as caught:
        NvmlSource(double, load=load).open()
    assert str(caught.value) == f"the driver: NVML cannot be loaded: {said}: {advice}"


def test_a_driver_that_goes_fails_as_a_whole() -> None:
    double, source = found(0)
    double.broken = pynvml.NVMLError_Uninitialized()
    with pytest.raises(SourceFailed, match="NVML returned 'Uninitialized'") as caught:
        source.read("GPU-0")
    assert not isinstance(caught.value, CardFailed)


def test_nvml_on_this_machine_finds_cards_or_reports_no_driver() -> None:
    source = NvmlSource()
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError:
        with pytest.raises(NotOpened, match=r"the driver: NVML (answered|cannot be loaded).*driver"):
            source.open()
    else:
        pynvml.nvmlShutdown()
        for index in range(source.open().count):
            assert source.read(source.describe(index).uuid).used_mib >= 0


UNSUPPORTED = pynvml.NVMLError_NotSupported()


def reading(**answers: object) -> CardReading:
    """Of a card that answers so."""
    described = card(0)
    source = NvmlSource(NvmlDouble(described), attached=Path("/nowhere"))
    source.open()
    source.describe(0)
    described.answers |= answers
    return source.read("GPU-0")


def process(pid: int, mib: int | None) -> object:
    """As NVML lists it."""
    return SimpleNamespace(pid=pid, usedGpuMemory=None if mib is None else mib * MIB)


def advice(value: int, answer: int = pynvml.NVML_SUCCESS) -> object:
    """The answer to a question for the recovery action."""

    def fields(ids: list[int]) -> list[object]:
        assert ids == [pynvml.NVML_FI_DEV_GET_GPU_RECOVERY_ACTION]
        return [SimpleNamespace(nvmlReturn=answer, value=SimpleNamespace(uiVal=value))]

    return fields


def test_a_card_that_supports_everything_is_read() -> None:
    def ecc(kind: int, counter: int) -> int:
        uncorrected = (pynvml.NVML_MEMORY_ERROR_TYPE_UNCORRECTED, pynvml.NVML_VOLATILE_ECC)
        return 2 if (kind, counter) == uncorrected else 99

    assert reading(
        nvmlDeviceGetComputeRunningProcesses_v3=[process(41, 512)],
        nvmlDeviceGetUtilizationRates=SimpleNamespace(gpu=97, memory=30),
        nvmlDeviceGetTemperature=lambda _sensor: 61,
        nvmlDeviceGetPowerUsage=423_500,
        nvmlDeviceGetRemappedRows=(0, 1, 1, 0),
        nvmlDeviceGetTotalEccErrors=ecc,
        nvmlDeviceGetFieldValues=advice(pynvml.NVML_GPU_RECOVERY_ACTION_GPU_RESET),
    ) == CardReading(
        used_mib=1024,
        processes=(Process(41, 512),),
        utilisation=97,
        temperature_c=61,
        power_w=423.5,
        remap_pending=True,
        uncorrected_ecc=2,
        recovery="reset",
    )


def test_what_a_card_does_not_support_is_none_and_not_0() -> None:
    assert reading() == CardReading(used_mib=1024)


def test_a_process_that_computes_and_draws_counts_once() -> None:
    both = reading(
        nvmlDeviceGetComputeRunningProcesses_v3=[process(9, 300), process(5, 100)],
        nvmlDeviceGetGraphicsRunningProcesses_v3=[process(9, 300), process(7, 20)],
    )
    assert both.processes == (Process(5, 100), Process(7, 20), Process(9, 300))


def test_a_process_of_unknown_memory_is_there_with_none() -> None:
    assert reading(nvmlDeviceGetComputeRunningProcesses_v3=[process(9, None)]).processes == (Process(9, 0),)


def test_an_older_driver_lists_processes_with_the_older_call() -> None:
    missing = pynvml.NVMLError_FunctionNotFound()
    old = reading(
        nvmlDeviceGetComputeRunningProcesses_v3=missing, nvmlDeviceGetComputeRunningProcesses_v2=[process(3, 8)]
    )
    assert old.processes == (Process(3, 8),)


def test_of_unified_memory_that_of_the_processes_is_used() -> None:
    listed = [process(1, 100), process(2, 200)]
    unified = reading(nvmlDeviceGetMemoryInfo=UNSUPPORTED, nvmlDeviceGetComputeRunningProcesses_v3=listed)
    assert unified.used_mib == 300


def test_a_driver_that_does_not_say_what_it_reserves_counts_it_as_used() -> None:
    def memory(version: int | None = None) -> object:
        if version:
            raise pynvml.NVMLError_FunctionNotFound
        return SimpleNamespace(total=16 * MIB, used=5 * MIB)

    assert reading(nvmlDeviceGetMemoryInfo=memory).used_mib == 5


def test_a_newer_driver_reads_the_temperature_with_the_newer_call() -> None:
    assert reading(nvmlDeviceGetTemperatureV=lambda sensor: 44 + sensor).temperature_c == 44


@pytest.mark.parametrize(
    ("answers", "pending"),
    [
        pytest.param({"nvmlDeviceGetRemappedRows": (7, 7, 0, 0)}, False, id="done"),
        pytest.param({"nvmlDeviceGetRemappedRows": (0, 0, 1, 0)}, True, id="waits"),
        pytest.param({"nvmlDeviceGetRemappedRows": (0, 0, 0, 1)}, True, id="failed"),
        pytest.param({"nvmlDeviceGetRetiredPagesPendingStatus": 1}, True, id="pages wait"),
        pytest.param({"nvmlDeviceGetRetiredPagesPendingStatus": 0}, False, id="no pages wait"),
        pytest.param(
            {"nvmlDeviceGetRemappedRows": (0, 0, 0, 0), "nvmlDeviceGetRetiredPagesPendingStatus": 1},
            False,
            id="rows come first",
        ),
    ],
)
def test_memory_that_waits_for_a_reset_is_seen(answers: dict[str, object], pending: bool) -> None:  # noqa: FBT001 # a table
    assert reading(**answers).remap_pending is pending


@pytest.mark.parametrize(
    ("value", "recovery"),
    [
        (0, ""),
        (1, "reset"),
        (2, "reboot"),
        (3, "drain"),
        (4, "drain-reset"),
        (6, "reset"),
        (7, "reboot"),
        (99, "drain"),
    ],
)
def test_the_drivers_advice_is_told(value: int, recovery: str) -> None:
    assert reading(nvmlDeviceGetFieldValues=advice(value)).recovery == recovery


def test_a_driver_that_does_not_know_the_field_advises_nothing() -> None:
    assert reading(nvmlDeviceGetFieldValues=advice(1, pynvml.NVML_ERROR_NOT_SUPPORTED)).recovery == ""


def test_a_card_that_the_driver_does_not_name_cannot_be_read() -> None:
    with pytest.raises(SourceFailed, match="card GPU-9: the driver does not list it"):
        NvmlSource(NvmlDouble(card(0))).read("GPU-9")


@pytest.mark.parametrize(
    ("state", "status", "fabric"),
    [
        (pynvml.NVML_GPU_FABRIC_STATE_NOT_SUPPORTED, 0, ""),
        (pynvml.NVML_GPU_FABRIC_STATE_NOT_STARTED, 0, "not-started"),
        (pynvml.NVML_GPU_FABRIC_STATE_IN_PROGRESS, 0, "in-progress"),
        (pynvml.NVML_GPU_FABRIC_STATE_COMPLETED, 0, ""),
        (pynvml.NVML_GPU_FABRIC_STATE_COMPLETED, pynvml.NVML_ERROR_UNKNOWN, "failed"),
        (9, 0, ""),
    ],
)
def test_a_fabric_that_is_not_ready_is_told(state: int, status: int, fabric: str) -> None:
    def fill(reference: Any) -> None:  # noqa: ANN401 # of ctypes
        info = reference._obj  # noqa: SLF001 # the only way from a reference back
        assert info.version == pynvml.nvmlGpuFabricInfo_v2
        info.state, info.status = state, status

    assert reading(nvmlDeviceGetGpuFabricInfoV=fill).fabric == fabric


@pytest.mark.parametrize(
    ("error", "lost"),
    [
        (pynvml.NVMLError_GpuIsLost(), True),
        (pynvml.NVMLError_ResetRequired(), True),
        (pynvml.NVMLError_NotFound(), True),
        (pynvml.NVMLError_Unknown(), False),
        (pynvml.NVMLError_InvalidArgument(), False),
    ],
    ids=lambda value: type(value).__name__,
)
def test_only_some_errors_say_that_the_card_is_gone(error: Exception, lost: bool) -> None:  # noqa: FBT001 # a table
    with pytest.raises(CardFailed) as caught:
        reading(nvmlDeviceGetMemoryInfo=error)
    assert caught.value.lost is lost


@pytest.mark.parametrize(
    ("mode", "said"), [(0, ""), (1, "EXCLUSIVE_THREAD"), (2, "PROHIBITED"), (3, "EXCLUSIVE_PROCESS"), (9, "9")]
)
def test_a_compute_mode_that_breaks_sharing_is_told(mode: int, said: str) -> None:
    assert reading(nvmlDeviceGetComputeMode=mode).compute_mode == said


def test_what_tells_a_reset_is_read(tmp_path: Path) -> None:
    double = NvmlDouble(card(0, nvmlDeviceGetTotalEnergyConsumption=77, nvmlDeviceGetPersistenceMode=1))
    source = NvmlSource(double, attached=tmp_path)
    source.open()
    entry = tmp_path / source.describe(0).pci
    assert source.read("GPU-0").attached is None
    entry.symlink_to("..")
    found = source.read("GPU-0")
    assert (found.energy_mj, found.persistent, found.attached) == (77, True, entry.lstat().st_ino)
