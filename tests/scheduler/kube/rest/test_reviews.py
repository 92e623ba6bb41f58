"""TokenReview and SubjectAccessReview as they go over the wire."""

import json

import pytest

from scheduler.kube import port
from scheduler.kube.rest.client import KubeCluster
from scheduler.kube.rest.reviews import User
from tests.support.servers.api_server import ApiServer, Json, ok, status

ANN = User("ann", "7", ("devs", "system:authenticated"), {"scopes": ("a", "b")})


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
