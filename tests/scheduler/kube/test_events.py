"""Events: their form, the names of objects that are made of other names, and when a repeated one is written again.

Events are the only objects whose names are made of others. Leases have theirs from the configuration, which is checked;
CDI specs and devices have theirs from a digest; bindings, evictions and reviews have the pod's own, or none.
Source of the rules: apimachinery, IsDNS1123Subdomain.
"""

import re
from dataclasses import replace
from typing import Final

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from scheduler.kube.events import QUIET_S, Regarding, RepeatedEvents, Reporter, SeriesUpdate, cut_note
from scheduler.kube.port import ApiRejected, EventRecord, EventSeries
from scheduler.testing.cluster.world import EventLog

POD: Final = Regarding("Pod", "ns", "p", "uid-p")
LABEL: Final = "[a-z0-9]([-a-z0-9]*[a-z0-9])?"
SUBDOMAIN: Final = re.compile(rf"{LABEL}(\.{LABEL})*", re.ASCII)
LONGEST: Final = 253

labels = st.from_regex(rf"\A{LABEL}\Z").filter(lambda label: len(label) <= 63)
# Long ones above all: what is cut may end anywhere.
names = st.lists(labels | st.just("a" * 62) | st.just("a-" * 20 + "a"), min_size=1, max_size=40).map(
    lambda parts: ".".join(parts)[:LONGEST].rstrip("-.")
)


def event(
    now_s: float = 1.0,
    note: str = "n",
    *,
    regarding: Regarding = POD,
    warning: bool = True,
    instance: str = "instance",
    now_ns: int | None = None,
) -> EventRecord:
    """now_ns: instead of now_s."""
    moment_ns = int(now_s * 1e9) if now_ns is None else now_ns
    reporter = Reporter("controller", instance)
    return reporter.event(regarding, warning=warning, reason="R", action="A", note=note, now_ns=moment_ns)


def about(name: str, kind: str = "Pod") -> Regarding:
    return Regarding(kind, "ns" if kind == "Pod" else "", name, "uid")


def test_an_event_says_what_it_is_about_and_who_writes_it() -> None:
    made = event(1.5)
    assert (made.kind, made.namespace, made.object_name, made.object_uid) == ("Pod", "ns", "p", "uid-p")
    assert (made.type, made.reason, made.action, made.note, made.time_s) == ("Warning", "R", "A", "n", 1.5)
    assert (made.reporting_controller, made.reporting_instance) == ("controller", "instance")
    assert made.name == f"p.{1_500_000_000:x}"
    assert event(1.5, warning=False).type == "Normal"


@pytest.mark.parametrize("instance", ["n" * 253, f"{'s' * 63}-{'h' * 64}-4711"])
def test_the_instance_is_cut_to_what_the_api_server_takes(instance: str) -> None:
    shown = event(instance=instance).reporting_instance

    assert (len(shown), instance.endswith(shown)) == (128, True)


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


def test_a_note_quotes_others_as_text_alone() -> None:
    assert event(1.0, "model A\x1b[2J\n\u202eb").note == "model A?[2J??b"


# Names


def is_valid(name: str) -> bool:
    return len(name) <= LONGEST and SUBDOMAIN.fullmatch(name) is not None


@given(names, st.sampled_from(["Pod", "Node"]), st.integers(1, 2**63 - 1))
@example("p" * 253, "Pod", 2**63 - 1)
@example("p" * 229 + "-" * 23 + "p", "Pod", 1)
@example("p" * 229 + ".p" * 12, "Node", 2**61)
def test_the_name_of_an_event_is_valid_and_begins_as_that_of_its_object(name: str, kind: str, now_ns: int) -> None:
    assert is_valid(name)
    made = event(regarding=about(name, kind), now_ns=now_ns)
    assert is_valid(made.name)
    assert made.name.rpartition(".")[0].startswith(name[:200])
    EventLog(lambda _: True).create(made)


@given(names)
def test_two_events_on_one_object_have_different_names(name: str) -> None:
    first, second = (event(regarding=about(name), now_ns=2**61 + late) for late in (0, 1))
    assert first.name != second.name


@pytest.mark.parametrize("name", ["", "P", "p..q", "p-.q", "-p", "p.", "p_q", "p" * 254])
def test_the_server_in_memory_refuses_what_is_not_valid(name: str) -> None:
    assert not is_valid(name)
    with pytest.raises(ApiRejected, match=r"metadata\.name"):
        EventLog(lambda _: True).create(replace(event(), name=name))


# Events that are repeated


def test_an_event_that_comes_again_is_written_as_a_series_now_and_then() -> None:
    repeated = RepeatedEvents()
    first = event(0.0, "3 free")
    assert repeated.next_write(first, ("free",), 0.0) is first
    assert repeated.next_write(event(1.0, "2 free"), ("free",), 1.0) is None
    assert repeated.next_write(event(QUIET_S, "1 free"), ("free",), QUIET_S) == SeriesUpdate(
        replace(event(QUIET_S, "1 free"), name=first.name), EventSeries(3, QUIET_S)
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
