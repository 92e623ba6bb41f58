"""What our process writes on a real kube-apiserver that only this server judges: names, annotations, victims.

There is no kubelet: the test ends the victims.
"""

import time
from collections.abc import AsyncIterator

import pytest

from config.protocol import names
from e2e.control_plane import pinned
from e2e.control_plane.admin import Admin, Json
from e2e.support.gpu_site import GpuSite, card, cards_of, condition

CLASSES = "/apis/scheduling.k8s.io/v1/priorityclasses"
# ClearingNominatedNodeNameAfterBinding, on by default from 1.35.
CLEARED_BY_THE_SERVER = int(pinned.kubernetes_version().split(".")[1]) >= 35


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


async def test_pods_with_the_longest_names_have_their_events(site: GpuSite) -> None:
    """Cut to leave room for the time, the first ends in a dash and the second in a dot."""
    fits, waits = f"{'p' * 229}{'-' * 23}p", f"{'q' * 229}.{'q' * 23}"
    await site.nodes(a=[16])
    await site.pod(fits, 3)
    await site.pod(waits, 17)

    scheduled = await site.event(fits, "Scheduled")
    assert scheduled["note"] == f"Successfully assigned {site.namespace}/{fits} to a, card 0 (3)"
    assert (scheduled["action"], scheduled["reportingController"]) == ("Binding", names.SCHEDULER_NAME)
    assert (await site.event(waits, "FailedScheduling"))["regarding"]["name"] == waits


@pytest.fixture
async def urgent(admin: Admin, site: GpuSite) -> AsyncIterator[GpuSite]:
    """With a priority class of that name."""
    await admin.create(CLASSES, {"metadata": {"name": "urgent"}, "value": 1000})
    yield site
    await admin.delete(f"{CLASSES}/urgent")


def is_nominated(pod: Json) -> bool:
    return bool(pod["status"].get("nominatedNodeName"))


def is_going(pod: Json) -> bool:
    return "deletionTimestamp" in pod["metadata"]


async def test_victims_on_one_card_go_and_the_card_is_taken(urgent: GpuSite) -> None:
    site = urgent
    await site.nodes(a=[16, 16])
    for name, units in (("low-0", 8), ("low-1", 8), ("low-2", 16)):
        await site.pod(name, units)
        await site.bound(name)

    await site.pod("urgent", 16, priorityClassName="urgent")

    assert (await site.seen("urgent", is_nominated))["status"]["nominatedNodeName"] == "a"
    # The condition is written once the deletion is accepted.
    victim = await site.seen("low-2", lambda pod: is_going(pod) and bool(condition(pod, "DisruptionTarget")))
    target = condition(victim, "DisruptionTarget")
    assert (target["status"], target["reason"]) == ("True", "PreemptionByScheduler")
    event = await site.event("low-2", "Preempted")
    assert event["note"].endswith("/urgent on node a, which needs 16 units of card 1")
    assert not any([is_going(await site.read(name)) for name in ("low-0", "low-1")])

    await site.delete_pod("low-2")
    bound = await site.bound("urgent")
    assert list(cards_of(bound)) == ["1"]
    assert is_nominated(bound) is not CLEARED_BY_THE_SERVER
