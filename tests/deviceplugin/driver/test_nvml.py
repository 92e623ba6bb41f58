"""An NVIDIA driver comes late, reports errors and loses cards."""

import pynvml  # type: ignore[import-untyped] # nvidia-ml-py has no annotations
import pytest

from deviceplugin.driver.cards import CardFailed, NoAnswer, NotOpened, SourceFailed, Xid
from deviceplugin.driver.nvml import NvmlSource
from tests.support.node.nvml_double import NvmlDouble, card, xid

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


def test_a_card_touches_no_other() -> None:
    double, source = found(0)
    asked: list[str] = []
    other = card(1)
    other.answers |= {"nvmlDeviceGetMemoryInfo": lambda *_: asked.append("memory")}
    double.nvml_cards.append(other)
    source.read("GPU-0")
    source.wait("GPU-0", 0.0)
    assert asked == []


@pytest.mark.parametrize(
    ("error", "message"),
    [
        (pynvml.NVMLError_LibraryNotFound(), "is the driver installed on this node?"),
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


def test_a_driver_that_goes_fails_as_a_whole() -> None:
    double, source = found(0)
    double.broken = pynvml.NVMLError_Uninitialized()
    with pytest.raises(SourceFailed, match="NVML answered 'Uninitialized'") as caught:
        source.read("GPU-0")
    assert not isinstance(caught.value, CardFailed)


def test_nvml_on_this_machine_finds_cards_or_reports_no_driver() -> None:
    source = NvmlSource()
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError:
        with pytest.raises(NotOpened, match=r"the driver: NVML answered '.+': .*driver"):
            source.open()
    else:
        pynvml.nvmlShutdown()
        for index in range(source.open().count):
            assert source.read(source.describe(index).uuid).used_mib >= 0
