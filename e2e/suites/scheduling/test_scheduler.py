"""The scheduler's process on a real kube-apiserver: what a user of the cluster sees it do."""

import itertools
import sys
import time
from collections.abc import Awaitable, Callable

import pytest

from config.protocol import names
from e2e.control_plane.admin import Json, seen
from e2e.support.gpu_site import GpuSite, card, cards_of, condition, is_bound, is_unschedulable
from tests.support.clocks.quickest import quickest

Say = Callable[[str], None]

CONFIG_MAPS = "/api/v1/namespaces/kube-system/configmaps"
NODE_EVENTS = "/apis/events.k8s.io/v1/namespaces/default/events"


@pytest.fixture
def say(capsys: pytest.CaptureFixture[str]) -> Say:
    """Prints a measured value, also for a test that passes."""

    def to_terminal(line: str) -> None:
        with capsys.disabled():
            sys.stdout.write(f"\n  {line}\n")

    return to_terminal


async def test_three_replicas_of_three_units_land_on_one_card_with_every_annotation(site: GpuSite) -> None:
    await site.nodes(a=[16, 16], b=[16, 16])

    replicas = []
    for number in range(3):
        await site.pod(f"binpack-{number}", 3)
        replicas.append(await site.bound(f"binpack-{number}"))

    assert len({(pod["spec"]["nodeName"], *cards_of(pod).values()) for pod in replicas}) == 1
    assert {condition(pod)["status"] for pod in replicas} == {"True"}
    assert all(set(names.ALLOCATION_KEYS) <= pod["metadata"]["annotations"].keys() for pod in replicas)


async def test_the_annotations_say_which_card_and_how_much_of_it(site: GpuSite) -> None:
    await site.nodes(a=[16])
    await site.pod("p", 3)

    written = (await site.bound("p"))["metadata"]["annotations"]

    assert int(written.pop(names.MEM_ASSUME_TIME)) > time.time_ns() - 60 * 10**9
    assert written == {
        names.ALLOCATION: '{"0":{"0":3}}',
        names.INIT_ALLOCATION: "{}",
        names.CARDS: f'{{"0":"{card("a", 0)}"}}',
        names.MEM_IDX: "0",
        names.MEM_POD: "3",
        names.MEM_DEV: "16",
        names.MEM_ASSIGNED: "false",
        names.UNIT_MIB: "1024",
    }


async def test_a_bound_pod_has_its_event(site: GpuSite) -> None:
    await site.nodes(a=[16])
    await site.pod("p", 3)

    event = await site.event("p", "Scheduled")

    assert event["note"] == f"Successfully assigned {site.namespace}/p to a, card 0 (3)"
    assert (event["type"], event["action"], event["reportingController"]) == ("Normal", "Binding", names.SCHEDULER_NAME)


async def test_pods_with_the_longest_names_have_their_events(site: GpuSite) -> None:
    """Cut to leave room for the time, the first ends in a dash and the second in a dot."""
    fits, waits = f"{'p' * 229}{'-' * 23}p", f"{'q' * 229}.{'q' * 23}"
    await site.nodes(a=[16])
    await site.pod(fits, 3)
    await site.pod(waits, 17)

    assert (await site.event(fits, "Scheduled"))["note"] == (
        f"Successfully assigned {site.namespace}/{fits} to a, card 0 (3)"
    )
    assert (await site.event(waits, "FailedScheduling"))["regarding"]["name"] == waits


async def test_a_pod_that_cannot_fit_says_so_in_its_condition_and_in_an_event(site: GpuSite) -> None:
    await site.nodes(a=[16, 8], b=[8])
    message = (
        "0/2 nodes are available: 2 Insufficient GPU memory on one card: wants 17, most free 16 (of 16). "
        "preemption: 0/2 nodes are available: 2 Preemption is not helpful for scheduling."
    )

    await site.pod("big", 17)

    said = condition(await site.seen("big", is_unschedulable))
    event = await site.event("big", "FailedScheduling")
    assert (said["status"], said["reason"], said["message"]) == ("False", "Unschedulable", message)
    assert (event["type"], event["action"], event["note"]) == ("Warning", "Scheduling", message)


async def test_memory_that_becomes_free_is_given_out_at_once(site: GpuSite, say: Say) -> None:
    await site.nodes(a=[16])

    async def given_out_s(turn: int) -> float:
        holder, waiting = f"holder-{turn}", f"waiting-{turn}"
        await site.pod(holder, 12)
        await site.bound(holder)
        await site.pod(waiting, 8)
        await site.unschedulable(waiting)
        freed_s = time.monotonic()
        await site.delete_pod(holder)
        await site.bound(waiting)
        took_s = time.monotonic() - freed_s
        await site.delete_pod(waiting)
        return took_s

    took_s = await quickest(given_out_s, 2.0)
    say(f"freed memory was given out after {took_s * 1000:.0f} ms")
    assert took_s < 2.0


async def cordon(site: GpuSite) -> None:
    await site.annotate_node("a", gpushare_cordon=card("a", 0))


async def uncordon(site: GpuSite) -> None:
    await site.annotate_node("a", gpushare_cordon=None)


async def mark_unhealthy(site: GpuSite) -> None:
    name = f"{names.UNHEALTHY_PREFIX}a"
    await site.admin.create(CONFIG_MAPS, {"metadata": {"name": name}, "data": {names.UNHEALTHY_KEY: "0"}})


async def mark_healthy(site: GpuSite) -> None:
    await site.admin.delete(f"{CONFIG_MAPS}/{names.UNHEALTHY_PREFIX}a")


async def first_left_waiting(site: GpuSite, turn: int) -> str:
    """Ask for the card again and again until it is no longer given out; the name of that pod."""
    for number in itertools.count():
        name = f"probe-{turn}-{number}"
        await site.pod(name, 1, annotations={names.CARD_UUIDS: card("a", 0)})
        if not is_bound(await site.seen(name, lambda pod: is_bound(pod) or is_unschedulable(pod))):
            return name
    raise AssertionError


@pytest.mark.parametrize(
    ("close", "open_again"),
    [
        pytest.param(cordon, uncordon, id="cordon annotation"),
        pytest.param(mark_unhealthy, mark_healthy, id="ConfigMap of unhealthy cards"),
    ],
)
async def test_a_card_is_out_of_use_and_in_use_again_within_a_second(
    site: GpuSite,
    say: Say,
    close: Callable[[GpuSite], Awaitable[None]],
    open_again: Callable[[GpuSite], Awaitable[None]],
) -> None:
    await site.nodes(a=[1000, 1000])

    async def slower_of_both_s(turn: int) -> float:
        closed_s = time.monotonic()
        await close(site)
        name = await first_left_waiting(site, turn)
        out_s = time.monotonic() - closed_s
        await site.pod(f"elsewhere-{turn}", 1)
        assert cards_of(await site.bound(f"elsewhere-{turn}")) == {"1": card("a", 1)}

        opened_s = time.monotonic()
        await open_again(site)
        await site.bound(name)
        back_s = time.monotonic() - opened_s
        say(f"out of use after {out_s * 1000:.0f} ms, in use again after {back_s * 1000:.0f} ms")
        return max(out_s, back_s)

    assert await quickest(slower_of_both_s, 1.0) < 1.0


async def test_pods_of_other_schedulers_are_left_alone(site: GpuSite) -> None:
    await site.nodes(a=[16])
    for name in ("default-scheduler", "somebody-else"):
        await site.pod(name, 1, schedulerName=name)
    before = [(await site.read(name))["metadata"]["resourceVersion"] for name in ("default-scheduler", "somebody-else")]

    await site.pod("ours", 16)
    await site.event("ours", "Scheduled")

    after = [await site.read(name) for name in ("default-scheduler", "somebody-else")]
    assert [pod["metadata"]["resourceVersion"] for pod in after] == before


async def test_a_pod_that_somebody_else_bound_occupies_its_card(site: GpuSite) -> None:
    await site.nodes(a=[16])
    await site.pod("theirs", 12, schedulerName="somebody-else")
    written = {names.MEM_IDX: "0", names.MEM_DEV: "16", names.MEM_POD: "12", names.MEM_ASSIGNED: "false"}
    body: Json = {"metadata": {"name": "theirs", "annotations": written}, "target": {"kind": "Node", "name": "a"}}
    await site.admin.create(f"{site.pods_path}/theirs/binding", body)
    await site.pod("ours", 8)

    message = await site.unschedulable("ours")

    assert message == (
        "0/1 nodes are available: 1 Insufficient GPU memory on one card: wants 8, most free 4 (of 16). "
        "preemption: 0/1 nodes are available: 1 No preemption victims found for incoming pod."
    )


async def test_a_pod_with_a_scheduling_gate_waits_until_the_gate_is_gone(site: GpuSite) -> None:
    await site.nodes(a=[16])
    await site.pod("gated", 4, schedulingGates=[{"name": "example.com/quota"}])
    await site.pod("after", 4)
    await site.event("after", "Scheduled")
    gated = await site.read("gated")

    await site.admin.patch(f"{site.pods_path}/gated", {"spec": {"schedulingGates": None}})
    bound = await site.bound("gated")

    assert (is_bound(gated), condition(gated)["reason"]) == (False, "SchedulingGated")
    assert bound["spec"]["nodeName"] == "a"


@pytest.mark.parametrize(
    ("spec", "what"),
    [
        pytest.param(
            {"resourceClaims": [{"name": "r", "resourceClaimName": "r"}]},
            "resource claims",
            id="a resource claim",
        ),
    ],
)
async def test_a_pod_that_needs_an_unsupported_rule_waits_with_its_name(site: GpuSite, spec: Json, what: str) -> None:
    await site.nodes(a=[16])

    await site.pod("p", 1, **spec)

    assert await site.unschedulable("p") == (
        f"0/1 nodes are available: pod asks for {what}, which this scheduler does not support yet. "
        "preemption: 0/1 nodes are available: 1 Preemption is not helpful for scheduling."
    )


async def test_a_node_whose_inventory_is_broken_is_left_out_with_an_event_on_it(site: GpuSite) -> None:
    await site.nodes(a=[16], b=[16])
    await site.annotate_node("a", gpushare_inventory="{")
    await site.scheduler.said("object.bad", kind="Node", name="a")
    await site.pod("p", 16)
    await site.pod("q", 16)

    bound, message = await site.bound("p"), await site.unschedulable("q")

    assert bound["spec"]["nodeName"] == "b"
    assert "1 node(s) announced cards that cannot be read" in message
    query = {"fieldSelector": "regarding.kind=Node,regarding.name=a,reason=BadAnnotation"}
    assert (await seen(site.admin, NODE_EVENTS, lambda _: True, query, within_s=15))["type"] == "Warning"
