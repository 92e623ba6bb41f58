"""Since when a request is not served: what readiness, metrics and the log are told."""

import pytest
from prometheus_client import CollectorRegistry

from scheduler.process.contact import Contact, ContactCollector


class Told:
    """A Contact of two watches whose clock is set by hand."""

    def __init__(self) -> None:
        self.now_s = 100.0
        self.contact = Contact(("nodes", "pods"), lambda: self.now_s)

    def after(self, seconds: float) -> Contact:
        self.now_s += seconds
        return self.contact


@pytest.fixture
def told() -> Told:
    return Told()


def test_what_fails_is_a_problem_only_after_a_while(told: Told) -> None:
    told.contact.failed("pods", "connection refused")

    assert told.after(30.0).problem(30.0) == ""
    assert told.after(1.0).problem(30.0) == "the API server has not served pods for 31 s: connection refused"


def test_the_time_is_that_of_the_first_failure_and_the_reason_that_of_the_last(told: Told) -> None:
    told.contact.failed("pods", "connection refused")
    told.after(40.0).failed("pods", "Unauthorized")

    assert told.after(1.0).problem(30.0) == "the API server has not served pods for 41 s: Unauthorized"


def test_several_failures_are_one_problem_with_each_reason_once(told: Told) -> None:
    for request, reason in (("pods", "Unauthorized"), ("nodes", "Unauthorized"), ("bindings", "expired")):
        told.contact.failed(request, reason)

    said = told.after(60.0).problem(30.0)

    assert said == "the API server has not served bindings, nodes, pods for 60 s: Unauthorized; expired"


def test_what_works_again_is_no_problem(told: Told) -> None:
    told.contact.failed("pods", "lost")
    told.after(60.0).recovered("pods")

    assert told.contact.problem(0.0) == ""


def test_an_answer_in_the_middle_of_a_list_is_no_recovery(told: Told) -> None:
    told.contact.failed("pods", "lost")
    told.after(60.0).answered("pods")

    assert told.contact.problem(30.0) == "the API server has not served pods for 60 s: lost"
    assert ("pods", 0.0, 60.0) in told.contact.ages_s()


def test_a_reason_is_new_once_until_the_recovery(told: Told) -> None:
    reasons = ["a", "b", "a", "b"]

    assert [told.contact.failed("pods", reason) for reason in reasons] == [True, True, False, False]
    told.contact.recovered("pods")
    assert told.contact.failed("pods", "a")


def test_reasons_that_all_differ_are_not_told_for_ever(told: Told) -> None:
    assert sum(told.contact.failed("pods", f"port {number}") for number in range(10_000)) == 16


def test_the_metrics_say_how_long_by_request(told: Told) -> None:
    registry = CollectorRegistry()
    registry.register(ContactCollector("x_", told.contact))
    told.after(10.0).answered("nodes")
    told.contact.failed("pods", "lost")
    told.now_s += 5.0

    def value(name: str, request: str) -> float | None:
        return registry.get_sample_value(name, {"request": request})

    assert [value("x_api_last_answer_age_seconds", kind) for kind in ("nodes", "pods")] == [5.0, 15.0]
    assert [value("x_api_failing_seconds", kind) for kind in ("nodes", "pods")] == [0.0, 5.0]
