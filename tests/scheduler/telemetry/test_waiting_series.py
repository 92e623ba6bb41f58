"""Pods that wait, by what they were told."""

from collections.abc import Iterable

from msgspec.structs import replace
from prometheus_client.parser import text_string_to_metric_families

from scheduler.framework.diagnosis import Diagnosis, ReasonCount
from scheduler.telemetry import series
from scheduler.telemetry.told import ToldPods, Word
from scheduler.telemetry.waiting_series import WaitingCopy, nobody_waits
from tests.support.builders import pod

NOW_S = 1767225600.0  # 2026-01-01T00:00:00Z


def told(*named: str, name: str = "p", created: str = "2025-12-31T23:59:00Z") -> ToldPods:
    pods = ToldPods(lambda _: True)
    pods.hear(replace(pod(name, 3), created=created), Word("Unschedulable", "m", named, NOW_S, named))
    return pods


def shown(copy: WaitingCopy) -> dict[str, dict[str, float]]:
    """Metric -> reason -> value."""
    families = text_string_to_metric_families(b"".join(copy.text()).decode())
    return {one.name: {sample.labels["reason"]: sample.value for sample in one.samples} for one in families}


def copy_of(*pods: ToldPods, gone: Iterable[str] = ()) -> WaitingCopy:
    return WaitingCopy([one for some in pods for one in some.all()], lambda uid: uid not in gone, NOW_S)


def test_a_pod_counts_under_each_of_its_reasons_since_it_was_created() -> None:
    first, second = told("cpu", "memory"), told("cpu", name="q", created="2025-12-31T23:00:00Z")
    assert shown(copy_of(first, second)) == {
        series.WAITING.name: {"cpu": 2, "memory": 1},
        series.LONGEST_WAIT.name: {"cpu": 3600, "memory": 60},
    }


def test_a_pod_that_waits_no_more_does_not_count() -> None:
    assert shown(copy_of(told("cpu"), gone=["uid-default-p"])) == {
        series.WAITING.name: {},
        series.LONGEST_WAIT.name: {},
    }
    assert shown(nobody_waits()) == {series.WAITING.name: {}, series.LONGEST_WAIT.name: {}}


def test_a_pod_whose_age_is_not_known_waits_for_no_time() -> None:
    assert shown(copy_of(told("cpu", created="")))[series.LONGEST_WAIT.name] == {"cpu": 0}


def test_the_reasons_of_fewest_pods_are_one() -> None:
    """Authors of pods write into some reasons."""
    many = [told("cpu", name=f"c{number}") for number in range(2)]
    rare = [told(f"asks {number}", name=f"r{number}") for number in range(100)]
    pods = shown(copy_of(*many, *rare))[series.WAITING.name]
    assert len(pods) == series.MOST_REASONS + 1
    assert (pods["cpu"], pods["other"]) == (2, 100 - series.MOST_REASONS + 1)


def test_a_reason_may_hold_anything() -> None:
    reason = 'one "quoted"\nline \\'
    assert shown(copy_of(told(reason)))[series.WAITING.name] == {reason: 1}


def test_what_is_counted_of_a_diagnosis_is_what_rules_say() -> None:
    counts = (ReasonCount("Insufficient cpu", 2), ReasonCount("cards are full", 1))
    assert Diagnosis(3, counts, reserved="kept for default/other", tail="no victims").names == (
        "Insufficient cpu",
        "cards are full",
    )
    assert Diagnosis(3, rejected="asks too much").names == ("asks too much",)
    assert Diagnosis(0).names == ("no nodes available to schedule pods",)
