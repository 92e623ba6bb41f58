"""Reviews as they go over the wire: of tokens, of the rights of users, and of those that the scheduler needs itself."""

import json
from typing import Any

import pytest

from config.settings.scheduler import configuration_model
from scheduler.app import rights_needed
from scheduler.kube import port
from scheduler.kube.rest.client import KubeCluster
from scheduler.kube.rest.reviews import NEEDED, PREEMPTION, User, of_lease
from scheduler.plugins.registry import describe
from tests.support.servers.api_server import ApiServer, Json, ok, status

ANN = User("ann", "7", ("devs", "system:authenticated"), {"scopes": ("a", "b")})


MODEL = configuration_model(describe())
LEASE = of_lease("kube-system", "gpushare-scheduler")
OFF: dict[str, Any] = {"plugins": {"postFilter": {"disabled": [{"name": "DefaultPreemption"}]}}}


def token_review(**found: object) -> Json:
    return {"kind": "TokenReview", "status": found}


def access_review(**found: object) -> Json:
    return {"kind": "SubjectAccessReview", "status": found}


async def test_a_token_is_sent_in_the_body_and_answered_by_a_user(api: ApiServer, cluster: KubeCluster) -> None:
    user = {"username": "ann", "uid": "7", "groups": ["devs", "system:authenticated"], "extra": {"scopes": ["a", "b"]}}
    api.script = [ok(token_review(authenticated=True, user=user))]
    assert await cluster.reviews.user_of("s3cret") == ANN
    (sent,) = api.seen
    assert (sent.method, sent.path) == ("POST", "/apis/authentication.k8s.io/v1/tokenreviews")
    assert json.loads(sent.body)["spec"] == {"token": "s3cret"}


@pytest.mark.parametrize(
    "found", [{"authenticated": False, "error": "expired"}, {}, {"authenticated": True, "user": {"username": ""}}]
)
async def test_a_token_that_is_not_accepted_is_nobodys(api: ApiServer, cluster: KubeCluster, found: Json) -> None:
    api.script = [ok(token_review(**found))]
    assert await cluster.reviews.user_of("s3cret") is None


async def test_a_user_is_asked_about_with_everything_that_is_known_of_them(
    api: ApiServer, cluster: KubeCluster
) -> None:
    api.script = [ok(access_review(allowed=True)), ok(access_review(allowed=True)), ok(access_review(allowed=True))]
    assert await cluster.reviews.may_get_url(ANN, "/gpushare")
    assert await cluster.reviews.may_list_pods(ANN, "team-a")
    assert await cluster.reviews.may_list_pods(ANN, "")
    specs = [json.loads(sent.body)["spec"] for sent in api.seen]
    ann = {"user": "ann", "uid": "7", "groups": ["devs", "system:authenticated"], "extra": {"scopes": ["a", "b"]}}
    assert specs == [
        ann | {"nonResourceAttributes": {"verb": "get", "path": "/gpushare"}},
        ann | {"resourceAttributes": {"verb": "list", "resource": "pods", "version": "v1", "namespace": "team-a"}},
        ann | {"resourceAttributes": {"verb": "list", "resource": "pods", "version": "v1"}},
    ]


@pytest.mark.parametrize("found", [{}, {"allowed": False}, {"allowed": True, "denied": True}])
async def test_what_is_not_allowed_clearly_is_not_allowed(api: ApiServer, cluster: KubeCluster, found: Json) -> None:
    api.script = [ok(access_review(**found))]
    assert not await cluster.reviews.may_list_pods(ANN, "team-a")


async def test_a_refusal_and_an_answer_that_is_none_are_errors(api: ApiServer, cluster: KubeCluster) -> None:
    api.script = [status(403, "tokenreviews is forbidden"), ok(token_review(authenticated="perhaps"))]
    with pytest.raises(port.ApiForbidden):
        await cluster.reviews.user_of("s3cret")
    with pytest.raises(port.ApiFailed, match="cannot be decoded") as failed:
        await cluster.reviews.user_of("s3cret")
    assert "s3cret" not in str(failed.value)


# The scheduler's own rights


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
