"""An NVIDIA driver comes late, reports errors, loses cards, goes and comes back."""

from collections.abc import Callable

import pynvml  # type: ignore[import-untyped] # nvidia-ml-py has no annotations
import pytest

from deviceplugin.driver.cards import Back, Lost, SourceFailed, Xid
from deviceplugin.driver.nvml import NvmlSource
from tests.support.nvml_double import NvmlDouble, card, xid

LOST = pynvml.NVMLError_GpuIsLost()
GONE = pynvml.NVMLError_DriverNotLoaded()


def found(*numbers: int) -> tuple[NvmlDouble, NvmlSource]:
    """A driver with these cards, and a source that has named them."""
    double = NvmlDouble(*(card(number) for number in numbers))
    source = NvmlSource(double)
    source.cards()
    return double, source


def test_nothing_happens_in_time() -> None:
    double, source = found(0)
    assert source.wait(5.0) == ()
    assert double.waited_ms == [2000, 2000, 1000]


def test_all_errors_are_reported_at_once() -> None:
    double, source = found(0, 1)
    double.events = [xid(double.handle(1), 31), xid(double.handle(0), 79), xid(double.handle(1), 31)]
    assert source.wait(60.0) == (Xid("GPU-1", 31), Xid("GPU-0", 79), Xid("GPU-1", 31))
    assert double.waited_ms == [2000, 0, 0, 0]
    assert source.wait(0.0) == ()


def test_an_error_of_no_card_in_particular_is_reported() -> None:
    double, source = found(0)
    double.events = [xid(double.handle(-1), 13)]
    assert source.wait(0.0) == (Xid("", 13),)


def test_an_error_of_a_card_that_no_longer_tells_its_uuid_names_it() -> None:
    double, source = found(0, 1)
    source.wait(0.0)
    double.events = [xid(double.handle(1), 79)]
    double.nvml_cards[1].answers["nvmlDeviceGetUUID"] = LOST
    assert source.wait(0.0) == (Xid("GPU-1", 79),)


def test_a_storm_of_errors_does_not_keep_others_waiting() -> None:
    double, source = found(0)
    double.events = [xid(double.handle(0), 94)] * 1000
    assert 0 < len(source.wait(0.0)) < 1000


def test_an_error_from_before_a_card_was_lost_is_reported() -> None:
    double, source = found(0, 1)
    source.wait(0.0)
    double.events = [xid(double.handle(1), 79), xid(double.handle(0), 31)]
    double.nvml_cards[1].lost = LOST
    assert source.wait(0.0) == (Xid("GPU-1", 79), Xid("GPU-0", 31), Lost("GPU-1"))


def test_a_card_without_events_is_watched_all_the_same() -> None:
    double = NvmlDouble(card(0, nvmlDeviceRegisterEvents=pynvml.NVMLError_NotSupported()), card(1))
    source = NvmlSource(double)
    source.cards()
    assert source.wait(0.0) == ()
    assert double.listening == ["GPU-1"]
    double.nvml_cards[0].lost = LOST
    assert source.wait(0.0) == (Lost("GPU-0"),)


def test_a_driver_without_events_is_not_asked_for_them_again_and_again() -> None:
    double = NvmlDouble(card(0, nvmlDeviceRegisterEvents=pynvml.NVMLError_NotSupported()))
    source = NvmlSource(double)
    source.cards()
    assert source.wait(0.01) == ()
    assert double.waited_ms == []


@pytest.mark.parametrize(
    "error",
    [
        pynvml.NVMLError_GpuIsLost(),
        pynvml.NVMLError_NotFound(),
        pynvml.NVMLError_Unknown(),
        pynvml.NVMLError_ResetRequired(),
        pynvml.NVMLError_InvalidArgument(),
    ],
    ids=lambda error: type(error).__name__,
)
def test_a_card_that_is_lost_and_comes_back_is_reported_once_each(error: Exception) -> None:
    double, source = found(0, 1)
    source.wait(0.0)
    double.nvml_cards[0].lost = error
    assert [source.wait(0.0), source.wait(0.0)] == [(Lost("GPU-0"),), ()]
    assert double.listening == ["GPU-1"]
    double.nvml_cards[0].lost = None
    assert [source.wait(0.0), source.wait(0.0)] == [(Back("GPU-0"),), ()]
    assert double.listening == ["GPU-1", "GPU-0"]


def test_a_card_that_is_lost_is_reported_at_once() -> None:
    double, source = found(0, 1)
    double.nvml_cards[0].lost = LOST
    assert source.wait(60.0) == (Lost("GPU-0"),)
    assert double.waited_ms == [0]


def test_a_card_that_could_not_be_listened_to_is_tried_again_when_it_is_back() -> None:
    double = NvmlDouble(card(0, nvmlDeviceRegisterEvents=LOST))
    source = NvmlSource(double)
    source.cards()
    source.wait(0.0)
    double.nvml_cards[0].lost = LOST
    source.wait(0.0)
    double.nvml_cards[0].lost = double.nvml_cards[0].answers["nvmlDeviceRegisterEvents"] = None
    assert source.wait(0.0) == (Back("GPU-0"),)
    assert double.listening == ["GPU-0"]


def test_a_card_whose_memory_cannot_be_asked_is_not_lost() -> None:
    double, source = found(0)
    double.nvml_cards[0].answers["nvmlDeviceGetMemoryInfo"] = pynvml.NVMLError_NotSupported()
    assert source.wait(0.0) == ()


def test_a_card_that_gives_a_handle_and_no_answers_is_not_back() -> None:
    double, source = found(0)
    memory = double.nvml_cards[0].answers["nvmlDeviceGetMemoryInfo"]
    double.nvml_cards[0].answers["nvmlDeviceGetMemoryInfo"] = LOST
    assert [source.wait(0.0), source.wait(0.0)] == [(Lost("GPU-0"),), ()]
    double.nvml_cards[0].answers["nvmlDeviceGetMemoryInfo"] = memory
    assert source.wait(0.0) == (Back("GPU-0"),)


def test_a_wait_that_fails_for_a_lost_card_reports_that_card() -> None:
    double, source = found(0, 1)
    source.wait(0.0)
    double.events = [LOST]
    double.nvml_cards[1].answers["nvmlDeviceGetMemoryInfo"] = _answers_once_then(LOST)
    assert source.wait(0.0) == (Lost("GPU-1"),)


def test_a_wait_that_fails_with_every_card_answering_is_a_failure() -> None:
    double, source = found(0)
    double.events = [pynvml.NVMLError_Unknown()]
    with pytest.raises(SourceFailed, match="events of the cards: NVML answered 'Unknown Error'"):
        source.wait(60.0)
    assert source.wait(0.0) == ()
    assert (double.event_sets, double.listening) == (2, ["GPU-0"])


def test_a_late_driver_is_found_and_owes_nothing() -> None:
    double = NvmlDouble(card(0))
    double.broken = GONE
    source = NvmlSource(double)
    with pytest.raises(SourceFailed, match="the cards: NVML answered 'Driver Not Loaded'"):
        source.cards()
    double.broken = None
    assert [one.uuid for one in source.cards().cards] == ["GPU-0"]
    assert source.wait(0.0) == ()


@pytest.mark.parametrize(
    "call",
    [
        pytest.param(lambda source: source.cards(), id="cards"),
        pytest.param(lambda source: source.wait(0.0), id="wait"),
        pytest.param(lambda source: source.reading("GPU-0"), id="reading"),
    ],
)
def test_every_card_is_back_after_a_driver_that_was_gone(call: Callable[[NvmlSource], object]) -> None:
    double, source = found(0, 1)
    double.broken = pynvml.NVMLError_Uninitialized()
    with pytest.raises(SourceFailed, match="NVML answered 'Uninitialized'"):
        source.wait(0.0)
    with pytest.raises(SourceFailed):
        call(source)
    double.broken = None
    source.cards()
    assert source.reading("GPU-1").used_mib == 1024
    assert source.wait(0.0) == (Back("GPU-0"), Back("GPU-1"))
    assert source.wait(0.0) == ()
    assert double.listening == ["GPU-0", "GPU-1"]


def test_an_error_that_was_heard_is_not_lost_with_the_driver() -> None:
    double, source = found(0)
    double.events = [xid(double.handle(0), 119), GONE]
    with pytest.raises(SourceFailed):
        source.wait(0.0)
    assert source.wait(0.0) == (Xid("GPU-0", 119), Back("GPU-0"))


def test_looking_for_a_lost_card_reopens_the_driver_and_keeps_its_errors() -> None:
    double, source = found(0, 1)
    double.nvml_cards[0].lost = LOST
    assert [source.wait(0.0), source.wait(0.0)] == [(Lost("GPU-0"),), ()]
    double.events = [xid(double.handle(1), 31)]
    assert [one.uuid for one in source.cards().cards] == ["GPU-1"]
    assert double.openings == 2
    assert source.wait(0.0) == (Xid("GPU-1", 31),)


def test_a_card_that_the_driver_stops_naming_is_lost() -> None:
    double, source = found(0, 1)
    gone = double.nvml_cards.pop()
    source.cards()
    assert source.wait(0.0) == (Lost("GPU-1"),)
    double.nvml_cards.append(gone)
    assert source.wait(0.0) == (Back("GPU-1"),)


def test_a_card_that_was_added_is_watched() -> None:
    double, source = found(0)
    double.nvml_cards.append(card(1))
    assert [one.uuid for one in source.cards().cards] == ["GPU-0", "GPU-1"]
    source.wait(0.0)
    assert double.listening == ["GPU-0", "GPU-1"]


def test_a_library_of_another_driver_is_reported_with_the_remedy() -> None:
    double, source = found(0)
    double.broken = pynvml.NVMLError_LibRmVersionMismatch()
    with pytest.raises(SourceFailed, match="restart the device plugin"):
        source.cards()


def test_closing_lets_go_of_the_driver_and_a_later_call_opens_it_again() -> None:
    double, source = found(0)
    source.close()
    source.close()
    assert not double.is_open
    assert source.wait(0.0) == ()
    assert (double.openings, double.is_open) == (2, True)


def test_closing_what_was_never_opened_does_nothing() -> None:
    double = NvmlDouble(card(0))
    NvmlSource(double).close()
    assert double.openings == 0


def test_nvml_on_this_machine_finds_cards_or_reports_no_driver() -> None:
    source = NvmlSource()
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError:
        with pytest.raises(SourceFailed, match=r"the cards: NVML answered '.+': .*driver"):
            source.cards()
    else:
        pynvml.nvmlShutdown()
        there = source.cards()
        assert there.driver
        assert all(source.reading(one.uuid).used_mib >= 0 for one in there.cards)
        assert source.wait(0.0) == ()
    finally:
        source.close()


def _answers_once_then(error: Exception) -> object:
    asked: list[object] = []

    def memory(_version: int | None = None) -> object:
        asked.append(None)
        if len(asked) > 1:
            raise error
        return object()

    return memory
