"""The identical POST until the outcome is known, and the effect of each answer of the API server."""

import asyncio
import random
from dataclasses import dataclass, field
from typing import Any

import pytest

from scheduler.dispatch.binding_cycle import SERVER_REQUEST_TIMEOUT_S, Binder
from scheduler.dispatch.sender import Sender
from scheduler.kube import objects, port
from scheduler.kube.bind_outcome import BindRejected
from scheduler.kube.port import (
    ApiConflict,
    ApiError,
    ApiFailed,
    ApiForbidden,
    ApiNotFound,
    ApiSilent,
    ApiThrottled,
    Binding,
    NotSent,
    PodKey,
)
from scheduler.kube.reflector import Backoff
from scheduler.process.clock import Clock
from tests.support.clocks.virtual_time import now_s

BINDING = Binding(PodKey("default", "p", "uid-1"), "n1", {"a": "1", "b": "2"})
BOUND = None
NOT_FOUND = ApiNotFound("no pod", 404)


def seen(node: str = "n1", uid: str = "uid-1", **annotations: str) -> objects.PodObject:
    meta = objects.ObjectMeta("p", "default", uid, annotations={"a": "1", "b": "2", "other": "x"} | annotations)
    return objects.PodObject(meta, objects.PodSpec(node_name=node))


@dataclass
class Script:
    """An API server that binds and reads pods, with scripted answers; also the tables and those that are told.

    gone_after: number of POSTs after which the watch shows that the pod was deleted. sent_s: time of each POST.
    """

    posts: list[ApiError | None]
    gets: list[objects.PodObject | ApiError | None] = field(default_factory=list)
    gone_after: int = 10**9
    sent: list[Binding] = field(default_factory=list)
    sent_s: list[float] = field(default_factory=list)
    retries: list[str] = field(default_factory=list)

    async def bind(self, binding: Binding, timeout_s: float) -> None:
        assert timeout_s == 4.0
        self.sent.append(binding)
        self.sent_s.append(now_s())
        # The last answer is repeated forever.
        answer = self.posts.pop(0) if len(self.posts) > 1 else self.posts[0]
        if answer is not None:
            raise answer

    async def pod(self, namespace: str, name: str) -> objects.PodObject | None:
        assert (namespace, name) == ("default", "p")
        answer = self.gets.pop(0)
        if isinstance(answer, ApiError):
            raise answer
        return answer

    def is_gone(self, _uid: str) -> bool:
        return len(self.sent) >= self.gone_after

    def bind_retried(self, _binding: Binding, _status: int, why: str) -> None:
        self.retries.append(why)

    def about(self, *_event: str) -> None:
        """Take the Event."""

    async def outcome(self) -> str:
        try:
            await self.bound()
        except BindRejected as refused:
            return "settled" if refused.settled else "refused"
        return "bound"

    async def bound(self) -> None:
        me: Any = self
        binder = Binder(
            cluster=me,
            sender=Sender(4, Backoff(random.Random(0)), asyncio.Event()),  # noqa: S311 - repeatable
            tables=me,
            observer=me,
            events=me,
            clock=Clock(now_s),
            timeout_s=4.0,
        )
        await binder.bind(BINDING)


@pytest.mark.parametrize(
    ("posts", "gets", "expected"),
    [
        pytest.param([BOUND], [], "bound", id="created"),
        pytest.param([ApiConflict("already", 409)], [seen()], "bound", id="already assigned as we said"),
        pytest.param([ApiConflict("already", 409)], [seen(node="n2")], "settled", id="assigned to another node"),
        pytest.param([ApiConflict("already", 409)], [seen(a="other")], "settled", id="our node, not our annotations"),
        pytest.param([ApiConflict("gated", 409)], [seen(node="")], "refused", id="409 and still without a node"),
        pytest.param([ApiConflict("uid", 409)], [seen(uid="uid-2")], "settled", id="another pod of that name"),
        pytest.param([ApiConflict("already", 409)], [None], "refused", id="409, then no pod"),
        pytest.param([ApiConflict("already", 409)], [ApiSilent("cut"), seen()], "bound", id="the GET is repeated too"),
        pytest.param([ApiNotFound("no pod", 404)], [], "refused", id="404"),
        pytest.param([ApiForbidden("no right", 403)], [], "refused", id="403"),
        pytest.param([port.ApiRejected("bad", 400)], [], "refused", id="another 4xx"),
        pytest.param([ApiThrottled("slow"), BOUND], [], "bound", id="429 is sent again"),
        pytest.param([ApiSilent("time-out"), BOUND], [], "bound", id="time-out without effect"),
        pytest.param(
            [ApiSilent("time-out"), ApiConflict("already", 409)], [seen()], "bound", id="time-out with effect"
        ),
        pytest.param([ApiFailed("etcd", 503), ApiFailed("x", 500), BOUND], [], "bound", id="5xx is sent again"),
        pytest.param([ApiFailed("bug", 500)], [seen()], "bound", id="500 for a minute, and it had taken effect"),
        pytest.param([ApiFailed("bug", 500)], [seen(node="")], "refused", id="500 for a minute, no effect"),
        pytest.param([ApiFailed("x", 500), NOT_FOUND], [seen(node="")], "refused", id="404 after a 500, no effect"),
        pytest.param([ApiFailed("x", 500), ApiForbidden("no", 403)], [seen()], "bound", id="403 after a 500, effect"),
        pytest.param(
            [ApiSilent("x"), ApiForbidden("policy", 403), ApiConflict("already", 409)],
            [seen()],
            "bound",
            id="a rejection after a silent POST with effect",
        ),
        pytest.param([ApiSilent("x"), NOT_FOUND], [seen()], "bound", id="404s after a silent POST with effect"),
        pytest.param([ApiSilent("x"), NOT_FOUND], [None, None, seen("")], "refused", id="and GETs that find nothing"),
        pytest.param([ApiSilent("x", 404), BOUND], [], "bound", id="404 of a load balancer"),
        pytest.param([NotSent(), NOT_FOUND], [], "refused", id="404 after one that was not sent"),
    ],
)
async def test_each_answer_leads_to_its_outcome(
    posts: list[ApiError | None], gets: list[objects.PodObject | ApiError | None], expected: str
) -> None:
    assert await Script(posts, gets).outcome() == expected


async def test_every_repeated_post_is_identical() -> None:
    script = Script([ApiSilent("a"), ApiFailed("b", 504), ApiThrottled("c"), BOUND])
    await script.outcome()
    assert script.sent == [BINDING] * 4
    assert len(script.retries) == 3


async def test_a_throttled_post_waits_as_long_as_the_server_asks() -> None:
    script = Script([ApiThrottled("slow", 17.0), BOUND])
    await script.outcome()
    assert now_s() == 17.0


async def test_a_get_decides_only_when_every_post_of_a_whole_minute_ended_with_500() -> None:
    script = Script([ApiFailed("bug", 500), ApiFailed("bug", 500), ApiSilent("x"), ApiFailed("bug", 500)], [seen("")])
    assert await script.outcome() == "refused"
    assert now_s() - script.sent_s[2] >= SERVER_REQUEST_TIMEOUT_S


async def test_a_pod_is_never_given_up_while_a_post_may_still_take_effect() -> None:
    script = Script([ApiSilent("x")] * 200 + [BOUND])
    assert await script.outcome() == "bound"
    assert len(script.sent) == 201


async def test_a_pod_that_went_elsewhere_after_a_silent_post_is_refused_at_once() -> None:
    script = Script([ApiSilent("x"), ApiConflict("already", 409)], [seen(node="n2")])
    assert await script.outcome() == "settled"
    assert len(script.sent) == 2


async def test_a_404_after_a_silent_post_frees_nothing_for_a_minute() -> None:
    script = Script([ApiSilent("x"), NOT_FOUND], [seen("")])
    assert await script.outcome() == "refused"
    assert now_s() >= SERVER_REQUEST_TIMEOUT_S


async def test_only_the_watch_ends_the_doubt_about_a_pod_that_nobody_finds() -> None:
    script = Script([ApiSilent("x"), NOT_FOUND], [None] * 1000, gone_after=100)
    assert await script.outcome() == "settled"
    assert len(script.sent) == 100


@pytest.mark.parametrize(
    "answer",
    [
        pytest.param(ApiForbidden("denied by policy x", 403), id="a policy"),
        pytest.param(port.ApiRejected("invalid", 422), id="a policy of another status"),
        pytest.param(ApiForbidden('u cannot create resource "pods/binding" in', 403), id="the right to bind"),
        pytest.param(ApiForbidden("Unauthorized", 401), id="credentials"),
        pytest.param(NOT_FOUND, id="404"),
    ],
)
async def test_a_binding_that_is_rejected_is_most_likely_rejected_again(answer: ApiError) -> None:
    with pytest.raises(BindRejected) as raised:
        await Script([answer]).bound()
    assert raised.value.lasting
