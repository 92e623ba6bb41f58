"""The circuit breaker keeps to its drawn states, whatever is answered."""

import random

import pytest

from scheduler.dispatch.breaker import NO_ANSWER, Breaker, Circuit, failure_kind
from scheduler.kube.port import ApiError, ApiFailed, ApiForbidden, ApiNotFound, ApiSilent, ApiThrottled, NotSent

NO_RIGHT = ApiForbidden('cannot create resource "pods/binding" in', 403)


@pytest.mark.parametrize(
    ("error", "opens"),
    [
        pytest.param(ApiSilent("x"), True, id="silence"),
        pytest.param(ApiFailed("x", 500), True, id="500"),
        pytest.param(ApiThrottled("x"), True, id="429"),
        pytest.param(ApiForbidden("Unauthorized", 401), True, id="credentials"),
        pytest.param(NO_RIGHT, True, id="a missing permission"),
        pytest.param(ApiForbidden("policy", 403), False, id="a policy"),
        pytest.param(ApiNotFound("x", 404), False, id="404"),
    ],
)
def test_a_failure_that_is_not_of_the_object_opens_the_circuit(error: ApiError, opens: bool) -> None:  # noqa: FBT001
    breaker = Breaker()
    assert breaker.ended(error) == opens
    assert breaker.state is (Circuit.OPEN if opens else Circuit.CLOSED)
    assert bool(breaker.why) == opens


@pytest.mark.parametrize("seed", range(20))
def test_each_outcome_leads_along_an_arrow_of_the_picture(seed: int) -> None:
    rng = random.Random(seed)  # noqa: S311 - repeatable
    breaker, failures = Breaker(), 0
    expected: Circuit
    outcomes = [None, ApiNotFound("x", 404), ApiSilent("x"), ApiFailed("y", 503), NotSent(), RuntimeError(), "over"]
    for outcome in rng.choices(outcomes, k=200):
        before, opens = breaker.state, False
        if isinstance(outcome, str):
            breaker.try_again()
            expected = Circuit.HALF_OPEN if before is Circuit.OPEN else before
        else:
            opens = breaker.ended(outcome)
            answered = outcome is None or isinstance(outcome, ApiNotFound)
            failed = isinstance(outcome, ApiError) and not answered and not isinstance(outcome, NotSent)
            expected = Circuit.CLOSED if answered else Circuit.OPEN if failed else before
            failures = 0 if answered else failures + (failed and before is not Circuit.OPEN)
        assert (breaker.state, breaker.failures, bool(breaker.why)) == (expected, failures, failures > 0)
        assert opens == (expected is Circuit.OPEN and before is not Circuit.OPEN)


def test_two_kinds_of_failures_that_alternate_are_told_as_the_first() -> None:
    breaker, told = Breaker(), list[str]()
    for error in (
        ApiFailed("down", 503),
        ApiSilent("no answer"),
        ApiFailed("down", 503),
        *[ApiSilent("no answer")] * 2,
    ):
        breaker.ended(error)
        breaker.try_again()
        told.append(failure_kind(breaker.why))
    assert told == ["failures", "failures", "failures", "failures", NO_ANSWER]
