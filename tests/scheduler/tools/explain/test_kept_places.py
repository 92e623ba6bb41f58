"""Answers of `explain` and `what-if` about a place that is kept: reserved for a pod that waits long, or nominated."""

import asyncio

from config.settings.scheduler import SchedulerConfiguration
from scheduler.kube.objects import PodCondition
from scheduler.kube.port import PodKey
from scheduler.testing.cluster.world import World
from scheduler.tools.explain.answers import Explanation, Going, Nominated, ReservedPlace
from scheduler.tools.explain.reading import UNKNOWN
from tests.support.builders import card, wire_node, wire_pod
from tests.support.clocks.virtual_time import run
from tests.support.explaining import asked, explained, explained_new, lines, preempts, prose, there, waits, world
from tests.support.service.looking import cluster, comes, node_of
from tests.support.service.process import scheduling

AFTER = SchedulerConfiguration.model_validate({"bindTimeout": 0, "reserveAfter": "1m"})


def starved() -> World:
    """`whole` waits for the card on which `stays` is; `small`, and `small` of namespace b, would fit beside that."""

    async def scenario() -> World:
        of = cluster(a=[16])
        async with scheduling(of, AFTER):
            comes(of, "stays", 8)
            await asyncio.sleep(1)
            comes(of, "whole", 16)
            await asyncio.sleep(62)
            comes(of, "something-happens", 64, priority=-100)
            await asyncio.sleep(1)
            comes(of, "small", 4)
            comes(of, "small", 4, namespace="b")
            await asyncio.sleep(15)
            assert (node_of(of, "whole"), node_of(of, "small")) == ("", "")
        return of

    return run(scenario())


def test_the_pod_and_who_is_kept_off_are_told_for_whom_a_place_is_reserved_and_why() -> None:
    of = starved()
    place = ReservedPlace(place="card 0 of node a", pod="default/whole", waited="1m")
    whole, small = (asyncio.run(asked(of).explained("default", name, "")) for name in ("whole", "small"))
    assert (whole.reserved, small.reserved) == (place, place)
    assert (
        "It has a reservation, because it waited 1m (reserveAfter) as the first of its priority: card 0 of node a. "
        "Smaller pods cannot take it; nothing is preempted for it."
    ) in prose(whole)
    assert (
        "A reservation blocks it: card 0 of node a is reserved for pod default/whole, which waited 1m (reserveAfter)."
    ) in prose(small)


def test_a_pod_of_another_namespace_reads_no_name_and_who_may_see_both_is_told_it() -> None:
    of = starved()
    small = of.pods.collection.existing("b", "small")
    said = [one.message for one in small.status.conditions if one.type == "PodScheduled"]
    said += [event.record.note for event in of.events.about("b", "small")]
    told = "card 0 of node a is reserved for pod uid-default-whole of another namespace, which has waited 1m."
    assert all(told in text and "default/" not in text for text in said)
    answer = asyncio.run(asked(of).explained("b", "small", ""))
    assert answer.reserved == ReservedPlace(place="card 0 of node a", pod="default/whole", waited="1m")
    assert "is reserved for pod default/whole, which waited" in prose(answer)


def test_a_reservation_whose_pod_has_gone_is_told_without_a_name() -> None:
    of = world(a=[16])
    waits(of, "small", 4, namespace="b")
    whom = "pod uid-gone of another namespace"
    said = f"0/1 nodes are available. card 0 of node a is reserved for {whom}, which has waited 1m."
    condition = PodCondition("PodScheduled", "False", "Unschedulable", said)
    of.pods.set_condition(PodKey("b", "small", "uid-b-small"), condition)
    there(of, "stays", 16, "a", 0)
    answer = asyncio.run(asked(of).explained("b", "small", ""))
    assert answer.reserved == ReservedPlace(place="card 0 of node a", pod=UNKNOWN, waited="1m")
    assert "is reserved for a pod of another namespace, which waited" in prose(answer)


def test_a_pod_that_waits_for_something_else_reads_nothing_of_it() -> None:
    async def scenario() -> World:
        of = cluster(a=[16])
        async with scheduling(of, AFTER):
            comes(of, "too-large", 17)
            await asyncio.sleep(5)
        return of

    answer = asyncio.run(asked(run(scenario())).explained("default", "too-large", ""))
    assert answer.reserved is None
    assert "reserveAfter" not in prose(answer)


SINCE = "2027-01-15T08:00:00Z"


def test_a_preemption_that_is_under_way_is_told_with_its_node_and_who_is_going() -> None:
    of = world(a=[16], b=[16])
    there(of, "going", 16, "a", 0)
    there(of, "other", 16, "b", 0)
    preempts(of, "train", 15, "a", "going", priority=9)
    answer = explained(of, "train")
    assert answer.nominated == Nominated(node="a", terminating=(Going(pod="default/going", since=SINCE),))
    assert answer.preemption is None
    assert answer.message == (
        "0/2 nodes are available: 2 Insufficient GPU memory on one card: wants 15, most free 0 (of 16), "
        "16 held by 1 terminating pod. "
        "preemption: not eligible due to a terminating pod on the nominated node."
    )
    told = prose(answer)
    assert (
        "Preemption is under way: it is nominated to node a, "
        f"where default/going is terminating since {SINCE}. You do not have to delete any pods." in told
    )
    assert "would evict" not in told


def test_the_nominated_node_fits_once_the_pod_that_terminates_is_gone() -> None:
    of = world(a=[22])
    there(of, "going", 12, "a", 0)
    there(of, "staying", 4, "a", 0)
    there(of, "cheap", 1, "a", 0)
    preempts(of, "train", 15, "a", "going", priority=9)
    (node,) = explained(of, "train").nearest
    assert node.leaving == ("default/going",)
    assert node.remedy == f"fits once default/going has ended, which is terminating since {SINCE}"
    assert (
        node.rules[0].reason
        == "Insufficient GPU memory on one card: wants 15, most free 5 (of 22), 12 held by 1 terminating pod"
    )


def test_the_place_that_is_kept_for_a_pod_is_not_in_its_own_way() -> None:
    of = world(a=[22, 22])
    there(of, "going", 20, "a", 0)
    there(of, "large", 20, "a", 1)
    preempts(of, "train", 15, "a", "going", priority=9)
    answer = explained(of, "train")
    reason = "Insufficient GPU memory on one card: wants 15, most free 2 (of 22), 20 held by 1 terminating pod"
    assert [(group.nodes, group.reason) for group in answer.reasons] == [(1, reason)]
    assert [one.reason for one in answer.nearest[0].rules] == [reason]
    assert [one.pod for card in answer.nearest[0].cards for one in card.pods] == ["default/going", "default/large"]

    of.pods.remove("default", "going")
    answer = explained(of, "train")
    assert (answer.state, answer.place and answer.place.node) == ("fits", "a")


def test_a_shortage_of_the_node_is_not_told_as_one_of_a_card() -> None:
    of = world(wire_node("a", [card(0, 22), card(1, 22)]))
    there(of, "going", 12, "a", 0)
    there(of, "low", 22, "a", 1)
    preempts(of, "train", 15, "a", "going", priority=9)
    answer = explained_new(of, "second", 15, priority=9)
    for reason in [group.reason for group in answer.reasons] + [one.reason for one in answer.nearest[0].rules]:
        wants, _, most_free = reason.partition("wants ")[2].partition(", most free ")
        assert int(most_free.split()[0]) < int(wants), reason


def test_a_place_that_is_kept_for_another_pod_is_told_as_such() -> None:
    of = world(a=[16])
    preempts(of, "train", 15, "a", priority=9)
    answer = explained_new(of, "second", 15)
    (node,) = answer.nearest
    assert (node.leaving, node.remedy) == (
        (),
        "its free room is set aside for default/train, which is nominated to the node",
    )
    assert [(one.pod, one.nominated) for one in node.cards[0].pods] == [("default/train", True)]
    assert "train (15, nominated)" in prose(answer)
    assert explained(of, "train").state == "fits"


def test_a_pod_that_terminates_already_is_named_before_one_that_would_have_to_be_removed() -> None:
    of = world(a=[16])
    there(of, "first", 8, "a", 0)
    there(of, "second", 8, "a", 0, priority=5)
    of.pods.delete("default", "second")
    answer = explained_new(of, "low", 8)
    (node,) = answer.nearest
    assert node.remedy == f"fits once default/second has ended, which is terminating since {SINCE}"
    assert [(one.pod, one.terminating) for one in node.cards[0].pods] == [
        ("default/first", False),
        ("default/second", True),
    ]


def test_of_several_pods_those_that_terminate_are_told_apart() -> None:
    of = world(a=[16])
    for name in ("one", "two", "three"):
        there(of, name, 5, "a", 0)
    of.pods.delete("default", "two")
    (node,) = explained_new(of, "low", 10).nearest
    assert node.leaving == ("default/one", "default/two")
    assert node.remedy == (f"fits once default/one, default/two have ended; default/two is terminating since {SINCE}")


def test_a_nomination_for_which_nobody_goes_is_told_too() -> None:
    of = world(a=[16], b=[16])
    there(of, "low", 16, "a", 0)
    there(of, "same", 16, "b", 0, priority=9)
    preempts(of, "train", 15, "a", priority=9)
    answer = explained(of, "train")
    assert answer.nominated == Nominated(node="a", terminating=())
    assert "It is nominated to node a; no pod is terminating there." in prose(answer)
    assert answer.preemption is not None
    assert lines(answer)[-1].startswith("Preemption would evict default/low from node a")


def test_what_if_says_who_is_terminating_where_the_next_would_fit() -> None:
    of = world(a=[16])
    there(of, "going", 16, "a", 0)
    of.pods.delete("default", "going")
    answer = asked(of).what_if(wire_pod("serve", 7), 1)
    assert answer.next is not None
    assert answer.next.nearest[0].remedy == f"fits once default/going has ended, which is terminating since {SINCE}"


def test_the_engine_is_as_before_after_an_explanation() -> None:
    of = world(a=[22, 22])
    there(of, "going", 20, "a", 0)
    there(of, "large", 20, "a", 1)
    preempts(of, "train", 15, "a", "going", priority=9)
    waits(of, "second", 30, priority=9)
    cluster_view = asked(of)

    async def each() -> list[Explanation]:
        return [await cluster_view.explained("default", name) for name in ("second", "train", "second", "train")]

    told = asyncio.run(each())
    assert told[:2] == told[2:]
    assert told[1].nominated is not None
