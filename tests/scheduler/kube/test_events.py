"""The form of Events, and when a repeated one is written again."""

import pytest

from scheduler.kube.events import QUIET_S, Regarding, RepeatedEvents, Reporter, SeriesUpdate, cut_note
from scheduler.kube.port import EventRecord, EventSeries

POD = Regarding("Pod", "ns", "p", "uid-p")


def event(now_s: float, note: str = "n", *, regarding: Regarding = POD, warning: bool = True) -> EventRecord:
    reporter = Reporter("controller", "instance")
    return reporter.event(regarding, warning=warning, reason="R", action="A", note=note, now_ns=int(now_s * 1e9))


def test_an_event_says_what_it_is_about_and_who_writes_it() -> None:
    made = event(1.5)
    assert (made.kind, made.namespace, made.object_name, made.object_uid) == ("Pod", "ns", "p", "uid-p")
    assert (made.type, made.reason, made.action, made.note, made.time_s) == ("Warning", "R", "A", "n", 1.5)
    assert (made.reporting_controller, made.reporting_instance) == ("controller", "instance")
    assert event(1.5, warning=False).type == "Normal"


@pytest.mark.parametrize("instance", ["n" * 253, f"{'s' * 63}-{'h' * 64}-4711"])
def test_the_instance_is_cut_to_what_the_api_server_takes(instance: str) -> None:
    about = Regarding("Pod", "default", "p", "uid")
    event = Reporter("c", instance).event(about, warning=False, reason="R", action="A", note="", now_ns=1)

    assert (len(event.reporting_instance), instance.endswith(event.reporting_instance)) == (128, True)


def test_the_name_is_that_of_the_object_and_the_moment_and_fits() -> None:
    assert event(1.5).name == f"p.{1_500_000_000:x}"
    assert len(event(2e9, regarding=Regarding("Pod", "ns", "p" * 253, "u")).name) <= 253


@pytest.mark.parametrize(
    ("note", "cut"),
    [
        pytest.param("x" * 1024, "x" * 1024, id="one that fits"),
        pytest.param("x" * 1025, "x" * 1021 + "…", id="one byte too many"),
        pytest.param("ü" * 513, "ü" * 510 + "…", id="never within a character"),
    ],
)
def test_a_note_has_at_most_1024_bytes(note: str, cut: str) -> None:
    assert cut_note(note) == cut == event(1.0, note).note
    assert len(cut.encode()) <= 1024


def test_an_event_that_comes_again_is_written_as_a_series_now_and_then() -> None:
    repeated = RepeatedEvents()
    first = event(0.0, "3 free")
    assert repeated.next_write(first, ("free",), 0.0) is first
    assert repeated.next_write(event(1.0, "2 free"), ("free",), 1.0) is None
    assert repeated.next_write(event(QUIET_S, "1 free"), ("free",), QUIET_S) == SeriesUpdate(
        first, EventSeries(3, QUIET_S)
    )


def test_a_series_that_has_not_gone_on_for_long_is_over_and_forgotten() -> None:
    repeated = RepeatedEvents()
    for number in range(100):
        repeated.next_write(event(0.0), (f"{number}",), 0.0)
    assert repeated.next_write(event(1.9 * QUIET_S), ("0",), 1.9 * QUIET_S) is not None
    anew = event(3.8 * QUIET_S)
    assert repeated.next_write(anew, ("1",), 3.8 * QUIET_S) is anew
    assert isinstance(repeated.next_write(event(3.8 * QUIET_S), ("0",), 3.8 * QUIET_S), SeriesUpdate)
    assert len(repeated) == 2


def test_another_text_or_object_is_an_event_of_its_own() -> None:
    repeated = RepeatedEvents()
    repeated.next_write(event(0.0), ("a",), 0.0)
    for again, text in ((event(1.0), "b"), (event(1.0, regarding=Regarding("Pod", "ns", "p", "other")), "a")):
        assert repeated.next_write(again, (text,), 1.0) is again
