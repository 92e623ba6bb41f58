"""The scheduler needs exactly the rights that its configuration uses."""

from typing import Any

import pytest

from config.settings.scheduler import configuration_model
from scheduler.app import rights_needed
from scheduler.kube.rest.reviews import NEEDED, PREEMPTION, of_lease
from scheduler.plugins.registry import describe

MODEL = configuration_model(describe())
LEASE = of_lease("kube-system", "gpushare-scheduler")
OFF: dict[str, Any] = {"plugins": {"postFilter": {"disabled": [{"name": "DefaultPreemption"}]}}}


@pytest.mark.parametrize(
    ("configured", "expected"),
    [
        pytest.param({}, {*NEEDED, *LEASE}, id="by default"),
        pytest.param({"leaderElection": {"leaderElect": False}}, {*NEEDED}, id="no election"),
        pytest.param({"profiles": [OFF]}, {*NEEDED, *LEASE} - {PREEMPTION}, id="no preemption"),
        pytest.param(
            {"profiles": [OFF, {"schedulerName": "other"}]}, {*NEEDED, *LEASE}, id="one of two profiles preempts"
        ),
    ],
)
def test_what_no_profile_uses_is_not_asked_for(configured: dict[str, Any], expected: set[object]) -> None:
    assert set(rights_needed(MODEL.model_validate(configured))) == expected
