"""Addresses and durations, and the section about leader election: what they accept."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from config.settings import duration
from config.settings.leader_election import LeaderElectionSection
from config.settings.scheduler import SchedulerConfiguration
from config.settings.schema import checked_address, host_and_port


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("10.0.0.1:10262", ("10.0.0.1", 10262)),
        ("[::1]:0", ("::1", 0)),
        (":80", ("", 80)),
        ("node-1:65535", ("node-1", 65535)),
    ],
)
def test_an_address_is_a_host_and_a_port(text: str, parts: tuple[str, int]) -> None:
    assert host_and_port(checked_address(text)) == parts


@pytest.mark.parametrize("text", ["10262", "::1:80", "h:65536", "h:", "h:1 ", "a b:1", "h:-1"])
def test_what_is_not_an_address_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="expected host:port"):
        checked_address(text)


@pytest.mark.parametrize(
    ("value", "seconds"),
    [
        ("4s", 4.0),
        ("500ms", 0.5),
        ("1m30s", 90.0),
        ("1h0m0.5s", 3600.5),
        ("250us", 0.00025),
        ("1.5h", 5400.0),
        (".5s", 0.5),
        pytest.param(4, 4.0, id="a number"),
        pytest.param(0.25, 0.25, id="part of a second"),
        pytest.param("4", 4.0, id="a number in the environment"),
        pytest.param("0", 0.0, id="nothing"),
    ],
)
def test_a_duration_is_gos_or_a_number_of_seconds(value: object, seconds: float) -> None:
    assert duration.seconds(value) == pytest.approx(seconds)


@pytest.mark.parametrize(
    "value",
    ["", "4 s", "s", "4y", "1m30", "-4s", "4s ", "٤s", "1e3s", "inf", -1, math.inf, math.nan, True, None, [4], 10**400],
)
def test_anything_else_is_refused_with_the_expected_form(value: object) -> None:
    with pytest.raises(ValueError, match="expected a duration such as 500ms"):
        duration.seconds(value)


@given(st.integers(0, 10**9))
def test_what_is_printed_is_read_back(millis: int) -> None:
    assert duration.seconds(duration.text(millis / 1000)) == pytest.approx(millis / 1000)


def test_the_largest_units_are_printed() -> None:
    assert [duration.text(s) for s in (0, 0.5, 4, 90, 3600)] == ["0s", "500ms", "4s", "1m30s", "1h"]


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"leaseDuration": "10s"}, "expected leaseDuration > renewDeadline > retryPeriod, found 10s, 10s, 2s"),
        ({"renewDeadline": "2s"}, "expected leaseDuration > renewDeadline > retryPeriod, found 15s, 2s, 2s"),
        ({"leaseDuration": "15.5s"}, "expected whole seconds, as a Lease has them, found 15s500ms"),
        ({"resourceLock": "endpoints"}, "leases"),
        ({"resourceName": "No Name"}, "String should match pattern"),
    ],
)
def test_what_contradicts_itself_is_refused(fields: dict[str, str], message: str) -> None:
    with pytest.raises(ValidationError, match=message):
        LeaderElectionSection.model_validate(fields)


def test_a_bind_request_has_to_end_before_others_may_take_the_lease() -> None:
    late = SchedulerConfiguration.model_validate({"bindTimeout": "5s"})
    ((place, message),) = late.contradictions()
    assert place == ("bindTimeout",)
    assert message.startswith("expected less than leaderElection.leaseDuration minus renewDeadline, 5s, found 5s")
    alone = {"bindTimeout": "1m", "leaderElection": {"leaderElect": False}}
    assert list(SchedulerConfiguration.model_validate(alone).contradictions()) == []
