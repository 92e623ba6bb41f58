"""Requests that a fault hits, and each fault as the client and the cluster see it."""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress

import pytest

from scheduler.kube.leases import LeaseSpec
from scheduler.kube.objects import PodCondition
from scheduler.kube.port import (
    PODS,
    ApiConflict,
    ApiError,
    ApiFailed,
    ApiForbidden,
    ApiNotFound,
    ApiRejected,
    ApiSilent,
    ApiThrottled,
    EventSeries,
    NodeForClaim,
    VolumeForClaim,
    WantedLease,
)
from scheduler.testing.cluster.cluster import MemoryCluster
from scheduler.testing.cluster.faults import (
    Break,
    Effect,
    Fail,
    Faults,
    Overtaken,
    Refuse,
    Request,
    RequestFault,
    Silence,
    Slow,
    Stranger,
    Throttle,
    Verb,
    WatchBreaks,
)
from scheduler.testing.cluster.world import World
from tests.scheduler.testing.cluster.builders import (
    binding,
    client,
    next_names,
    node_of,
    passes,
    pod,
    told,
    watched,
    world,
)
from tests.support.builders import event_record


def bind_request(about: str) -> Request:
    return Request(Verb.BIND, about)


def test_a_rule_hits_as_often_as_its_count_says() -> None:
    faults = Faults()
    rule = faults.add(Verb.BIND, Throttle(), count=2)

    hits = [faults.hitting(bind_request("ns/a")) is not None for _ in range(4)]

    assert (hits, rule.hits) == ([True, True, False, False], 2)


def test_a_rule_hits_only_what_its_predicate_names() -> None:
    faults = Faults()
    faults.add(Verb.BIND, Throttle(), when=lambda request: request.about == "ns/b")

    assert faults.hitting(bind_request("ns/a")) is None
    assert faults.hitting(bind_request("ns/b")) == Throttle()
    assert faults.hitting(Request(Verb.READ_POD, "ns/b")) is None


def test_chance_repeats_with_its_seed_and_keeps_its_share() -> None:
    def drawn(seed: int) -> list[bool]:
        faults = Faults(seed)
        faults.add(Verb.BIND, Throttle(), probability=0.25)
        return [faults.hitting(bind_request("ns/a")) is not None for _ in range(1000)]

    assert drawn(7) == drawn(7) != drawn(8)
    assert 180 < sum(drawn(7)) < 320


def test_the_first_rule_that_applies_decides() -> None:
    faults = Faults()
    first = faults.add(Verb.BIND, Throttle(), count=1)
    faults.add(Verb.BIND, Fail())

    assert [faults.hitting(bind_request("ns/a")) for _ in range(2)] == [Throttle(), Fail()]
    faults.remove(first)
    faults.clear()
    assert faults.hitting(bind_request("ns/a")) is None


@pytest.mark.parametrize(
    ("verb", "fault"),
    [
        pytest.param(Verb.BIND, WatchBreaks(Break.LOST), id="a bind has no stream to break"),
        pytest.param(Verb.WATCH, Overtaken(), id="nobody overtakes a watch"),
    ],
)
def test_a_fault_that_cannot_happen_to_a_verb_is_an_error(verb: Verb, fault: RequestFault) -> None:
    with pytest.raises(ValueError, match="cannot happen to"):
        Faults().add(verb, fault)


async def bind_under(fault: RequestFault, of: World) -> MemoryCluster:
    """Bind pod `a` once while the fault holds; raises what the client gets."""
    cluster = client(of)
    cluster.faults.add(Verb.BIND, fault, count=1)
    await cluster.bind(binding(of, "a"), 4.0)
    return cluster


@pytest.mark.parametrize(
    ("fault", "error", "node"),
    [
        pytest.param(Throttle(), ApiThrottled, "", id="429"),
        pytest.param(Refuse(403), ApiForbidden, "", id="403"),
        pytest.param(Refuse(404), ApiNotFound, "", id="404"),
        pytest.param(Refuse(409), ApiConflict, "", id="409"),
        pytest.param(Refuse(422), ApiRejected, "", id="422"),
        pytest.param(Fail(500), ApiFailed, "", id="500 without effect"),
        pytest.param(Fail(503), ApiFailed, "", id="503 without effect"),
        pytest.param(Fail(500, Effect.AT_ONCE), ApiFailed, "node-a", id="500 with effect"),
        pytest.param(Stranger(404), ApiSilent, "", id="404 of something else"),
        pytest.param(Stranger(200, Effect.AT_ONCE), ApiSilent, "node-a", id="200 without the object, with effect"),
        pytest.param(Silence(after_s=0.0), ApiSilent, "", id="reset without effect"),
        pytest.param(Silence(Effect.AT_ONCE, after_s=0.0), ApiSilent, "node-a", id="reset with effect"),
        pytest.param(Silence(Effect.LATER, after_s=0.0), ApiSilent, "", id="reset with effect later"),
    ],
)
async def test_a_fault_decides_what_the_client_hears_and_whether_the_pod_is_bound(
    fault: RequestFault, error: type[ApiError], node: str
) -> None:
    of = world("a")

    with pytest.raises(error) as raised:
        await bind_under(fault, of)

    assert type(raised.value) is error
    assert node_of(of, "a") == node


async def test_a_throttled_client_is_told_when_to_retry() -> None:
    with pytest.raises(ApiThrottled) as raised:
        await bind_under(Throttle(retry_after_s=7.0), world("a"))

    assert (raised.value.retry_after_s, raised.value.status) == (7.0, 429)


async def test_a_time_out_lasts_as_long_as_the_client_waits() -> None:
    of = world("a")
    cluster = client(of)
    cluster.faults.add(Verb.BIND, Silence(Effect.AT_ONCE))
    request = asyncio.create_task(cluster.bind(binding(of, "a"), 4.0))

    await passes(3.5)
    assert (request.done(), node_of(of, "a")) == (False, "node-a")
    await passes(0.5)

    with pytest.raises(ApiSilent, match="no answer within 4 s"):
        await request


async def late(of: World, late_s: float | None = None) -> MemoryCluster:
    """A client whose bind of pod `a` to node-a is still on its way although the client has given up."""
    cluster = client(of)
    cluster.faults.add(Verb.BIND, Silence(Effect.LATER, after_s=0.0, late_s=late_s), count=1)
    with pytest.raises(ApiSilent):
        await cluster.bind(binding(of, "a", cards="0"), 4.0)
    return cluster


async def test_a_late_bind_takes_effect_when_it_is_delivered() -> None:
    of = world("a")
    cluster = await late(of)

    assert (cluster.late_requests, cluster.deliver_late(), cluster.late_requests) == (1, 1, 0)
    assert node_of(of, "a") == "node-a"
    assert cluster.deliver_late() == 0


async def test_a_late_bind_takes_effect_by_itself_after_its_time() -> None:
    of = world("a")
    await late(of, late_s=5.0)

    await passes(4.5)
    before = node_of(of, "a")
    await passes(0.5)

    assert (before, node_of(of, "a")) == ("", "node-a")


def made_again(of: World) -> None:
    of.pods.delete("ns", "a")
    of.pods.create(pod("a"))


@pytest.mark.parametrize(
    ("meanwhile", "node"),
    [
        pytest.param(lambda of: of.pods.bind("ns", "a", "node-b"), "node-b", id="bound by another"),
        pytest.param(made_again, "", id="another pod of that name"),
    ],
)
async def test_a_late_bind_is_judged_by_what_is_true_when_it_arrives(
    meanwhile: Callable[[World], object], node: str
) -> None:
    of = world("a")
    cluster = await late(of)

    meanwhile(of)

    assert cluster.deliver_late() == 0
    assert node_of(of, "a") == node


async def test_the_same_post_sent_again_is_overtaken_by_nothing_of_its_own() -> None:
    of = world("a")
    cluster = await late(of)

    await cluster.bind(binding(of, "a", cards="0"), 4.0)

    assert cluster.deliver_late() == 0
    assert node_of(of, "a") == "node-a"


@pytest.mark.parametrize(
    ("fault", "node"),
    [
        pytest.param(Overtaken("node-b", {"cards": "other"}), "node-b", id="to another node"),
        pytest.param(Overtaken(), "node-a", id="to the same node"),
    ],
)
async def test_another_scheduler_binds_the_same_pod_a_moment_earlier(fault: Overtaken, node: str) -> None:
    of = world("a")

    with pytest.raises(ApiConflict, match=f'already assigned to node "{node}"'):
        await bind_under(fault, of)

    assert of.pods.collection.existing("ns", "a").metadata.annotations == fault.annotations


async def test_a_slow_answer_comes_after_the_watch_event() -> None:
    of = world("a")
    cluster = client(of)
    cluster.faults.add(Verb.BIND, Slow(before_s=1.0, after_s=2.0))
    async with watched(cluster, PODS, since=str(of.version)) as events:
        request = asyncio.create_task(cluster.bind(binding(of, "a"), 4.0))
        await passes(1.0)

        assert told(await anext(events)) == "Changed a"
        assert not request.done()
        await passes(2.0)
    await request


@pytest.mark.parametrize(
    ("fault", "node_when_given_up"),
    [
        pytest.param(Slow(before_s=5.0), "", id="executed too late"),
        pytest.param(Slow(before_s=1.0, after_s=9.0), "node-a", id="answered too late"),
    ],
)
async def test_a_request_slower_than_its_time_out_is_a_time_out(fault: Slow, node_when_given_up: str) -> None:
    of = world("a")
    cluster = client(of)
    cluster.faults.add(Verb.BIND, fault)
    request = asyncio.create_task(cluster.bind(binding(of, "a"), 4.0))

    await passes(4.0)
    assert node_of(of, "a") == node_when_given_up
    with pytest.raises(ApiSilent):
        await request
    await passes(1.0)

    assert node_of(of, "a") == "node-a"


@pytest.mark.parametrize("verb", [verb for verb in Verb if verb is not Verb.BIND])
async def test_every_verb_can_fail_without_the_others(verb: Verb) -> None:
    of = world("a")
    of.events.create(event_record("old"))
    cluster = client(of)
    cluster.faults.add(verb, Fail(503))
    condition = PodCondition("PodScheduled", "False")
    lease = WantedLease(namespace="ns", name="leads", version="", spec=LeaseSpec("one", 15))
    requests: dict[Verb, Awaitable[object]] = {
        Verb.WATCH: next_names(cluster, None, 1),
        Verb.READ_POD: cluster.pod("ns", "a"),
        Verb.BIND_VOLUME: of_nothing(cluster.bind_volume(VolumeForClaim("v", "1", "ns", "c", "u", kept=False))),
        Verb.SELECT_NODE: of_nothing(cluster.select_node(NodeForClaim("ns", "c", "1", "a"))),
        Verb.SET_CONDITION: cluster.set_pod_condition(binding(of, "a").pod, condition),
        Verb.CREATE_EVENT: cluster.create_event(event_record("new")),
        Verb.UPDATE_EVENT: cluster.update_event(event_record("old"), EventSeries(2, 0.0)),
        Verb.BIND: cluster.bind(binding(of, "a"), 4.0),
        Verb.NOMINATE: cluster.set_nominated_node(binding(of, "a").pod, "node-a"),
        Verb.DELETE_POD: cluster.delete_pod(binding(of, "a").pod),
        Verb.LAST_CHANGE: cluster.last_change(PODS, "1"),
        Verb.LAST_SCHEDULED: cluster.last_scheduled("s"),
        Verb.WRITE_LEASE: cluster.write_lease(lease, 4.0),
    }

    assert [other for other, request in requests.items() if await fails(request)] == [verb]


async def of_nothing(request: Awaitable[object]) -> None:
    """A request that is about an object which is not there."""
    with suppress(ApiNotFound):
        await request


async def fails(request: Awaitable[object]) -> bool:
    try:
        await request
    except ApiFailed:
        return True
    return False


async def test_a_pod_that_is_said_not_to_exist_is_none() -> None:
    of = world("a")
    cluster = client(of)
    cluster.faults.add(Verb.READ_POD, Refuse(404), count=1)

    assert await cluster.pod("ns", "a") is None
    assert await cluster.pod("ns", "a") is not None
