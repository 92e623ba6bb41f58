"""Reviews of the scheduler's own rights, as they go over the wire."""

from typing import Any

import pytest

from config.settings.scheduler import configuration_model
from scheduler.app import rights_needed
from scheduler.kube import port
from scheduler.kube.rest.client import KubeCluster
from scheduler.kube.rest.reviews import NEEDED, PREEMPTION, of_lease
from scheduler.plugins.registry import describe
from tests.support.servers.api_server import ApiServer, ok, status

MODEL = configuration_model(describe())
LEASE = of_lease("kube-system", "gpushare-scheduler")
OFF: dict[str, Any] = {"plugins": {"postFilter": {"disabled": [{"name": "DefaultPreemption"}]}}}


async def test_the_rights_that_are_missing_are_named(api: ApiServer, cluster: KubeCluster) -> None:
    answers = [ok({"kind": "SelfSubjectAccessReview", "status": {"allowed": True}})] * len(NEEDED)
    answers[-1] = ok({"kind": "SelfSubjectAccessReview", "status": {"allowed": False}})
    answers[0] = ok({"kind": "SelfSubjectAccessReview", "status": {"allowed": False, "reason": "no role"}})
    api.script = answers

    missing = await cluster.missing_rights()

    asked = [seen.json["spec"]["resourceAttributes"] for seen in api.seen]
    assert len(missing) == 2
    assert {"verb": "create", "resource": "pods", "subresource": "binding"} in asked
    assert {"verb": "list", "resource": "configmaps", "namespace": "kube-system"} in asked
    assert {"verb": "patch", "resource": "events", "group": "events.k8s.io"} in asked


@pytest.mark.parametrize(
    "words",
    [
        pytest.param("list pods", id="plain"),
        pytest.param("list configmaps in namespace kube-system", id="one namespace"),
        pytest.param("create pods/binding", id="subresource"),
        pytest.param("create events.events.k8s.io", id="group"),
    ],
)
def test_a_right_reads_like_a_sentence(words: str) -> None:
    assert words in {str(right) for right in NEEDED}


async def test_a_review_that_is_refused_is_an_error(api: ApiServer, cluster: KubeCluster) -> None:
    api.script = [status(403, "may not ask")] * len(NEEDED)

    with pytest.raises(port.ApiForbidden, match="may not ask"):
        await cluster.missing_rights()


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
