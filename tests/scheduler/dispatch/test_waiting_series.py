"""Metrics of waiting pods, from their messages."""

from collections.abc import Iterable

from msgspec.structs import replace
from prometheus_client.parser import text_string_to_metric_families

from scheduler.core.scheduling_cycle import NoFit
from scheduler.dispatch.pod_messages import PodMessage, PodMessages
from scheduler.dispatch.waiting_series import WaitingCopy
from scheduler.framework.diagnosis import Diagnosis, ReasonCount
from scheduler.metrics import series
from tests.support.builders import engine, pod

NOW_S = 1767225600.0  # 2026-01-01T00:00:00Z


def messages(*named: str, name: str = "p", created: str = "2025-12-31T23:59:00Z") -> PodMessages:
    pods = PodMessages(lambda _: True)
    pods.update(replace(pod(name, 3), created=created), PodMessage("Unschedulable", "m", named, 0.0, NOW_S, named))
    return pods


def shown(copy: WaitingCopy) -> dict[str, dict[str, float]]:
    """Metric -> plugin -> value."""
    families = text_string_to_metric_families(b"".join(copy.text()).decode())
    return {one.name: {sample.labels["plugin"]: sample.value for sample in one.samples} for one in families}


def copy_of(*pods: PodMessages, gone: Iterable[str] = ()) -> WaitingCopy:
    return WaitingCopy([one for some in pods for one in some.all()], lambda uid: uid not in gone, NOW_S)


def test_a_pod_counts_under_each_rule_that_objects_since_it_was_created() -> None:
    first, second = messages("cpu", "memory"), messages("cpu", name="q", created="2025-12-31T23:00:00Z")
    assert shown(copy_of(first, second)) == {
        series.WAITING.name: {"cpu": 2, "memory": 1},
        series.LONGEST_WAIT.name: {"cpu": 3600, "memory": 60},
    }


def test_a_pod_that_waits_no_more_does_not_count() -> None:
    assert shown(copy_of(messages("cpu"), gone=["uid-default-p"])) == {
        series.WAITING.name: {},
        series.LONGEST_WAIT.name: {},
    }


def test_a_pod_whose_age_is_not_known_waits_for_no_time() -> None:
    assert shown(copy_of(messages("cpu", created="")))[series.LONGEST_WAIT.name] == {"cpu": 0}


def test_what_is_counted_of_a_diagnosis_are_names_of_rules() -> None:
    counts = (
        ReasonCount("Insufficient example.com/secret", 2, rule="NodeResourcesFit"),
        ReasonCount("Insufficient cpu", 2, rule="NodeResourcesFit"),
        ReasonCount("cards are full", 1, rule="GpuShare"),
    )
    found = Diagnosis(3, counts, reserved="kept for default/other", tail="no victims")
    assert found.rules == ("GpuShare", "NodeResourcesFit")
    assert Diagnosis(3, rejected="the pod asks 'secret'").rules == ("EveryNode",)
    assert Diagnosis(0).rules == ("NoNodes",)


def test_an_attempt_that_finds_no_node_says_whose_reasons_it_has() -> None:
    built = engine(a=[16])
    with built.queries.placing() as placing:
        outcome = placing.attempt(pod("p", 17))
    assert isinstance(outcome, NoFit)
    assert outcome.diagnosis.rules == ("GpuShare",)
