"""What the section leaderElection accepts, and what goes together."""

import pytest
from pydantic import ValidationError

from config.settings.leader_election import LeaderElectionSection
from config.settings.scheduler import SchedulerConfiguration


def test_the_defaults_are_kube_schedulers() -> None:
    section = LeaderElectionSection()
    timing = (section.lease_duration_s, section.renew_deadline_s, section.retry_period_s)
    assert (section.leader_elect, timing) == (True, (15.0, 10.0, 2.0))


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
    assert message.startswith("expected less than leaderElection.leaseDuration less renewDeadline, 5s, found 5s")
    alone = {"bindTimeout": "1m", "leaderElection": {"leaderElect": False}}
    assert list(SchedulerConfiguration.model_validate(alone).contradictions()) == []
