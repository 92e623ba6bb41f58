"""What `kubectl gpushare adopt` counts of the extender's pods, and what it says stands in the way."""

import time
from typing import Final

import pytest

from config.protocol import names
from scheduler.testing.cluster.world import World
from scheduler.tools.adoption.adoption import AdoptedNode, Adoption, BoundBy, adoption, lines
from scheduler.tools.explain.findings import ClusterFinding, Severity
from scheduler.tools.explain.tones import as_text
from tests.support.builders import manifest, wire_node
from tests.support.explaining import NOW_S, asked, there, waits, world
from tests.support.legacy import DEFAULT, chosen, legacy_node, runs

_MOST_WORK_S: Final = 15.0


def found(of: World) -> Adoption:
    read = asked(of)
    return adoption(read.reading, tuple(read.unread))


def node(of: World, name: str = "a") -> AdoptedNode:
    return next(one for one in found(of).nodes if one.node == name)


def counted(of: World, name: str = "a") -> list[int]:
    return [one.counted for one in node(of, name).cards]


def problems(of: World, pod: str) -> tuple[str, ...]:
    (one,) = (pod_ for each in found(of).nodes for pod_ in each.pods if pod_.pod == f"default/{pod}")
    return one.problems


def only(of: World, check: str) -> ClusterFinding:
    (one,) = (finding for finding in found(of).findings if finding.check == check)
    return one


# What is counted


def test_they_count_the_same_before_our_device_plugin_is_there() -> None:
    of = world(legacy_node("a", 2, 15))
    runs(of, "binpack-0", 3, "a", chosen(1, 3, 15))
    assert counted(of) == [0, 3]
    assert [(one.index, one.uuid, one.units) for one in node(of).cards] == [(0, "", 15), (1, "", 15)]
    assert problems(of, "binpack-0") == ()
    assert [(pod.by, pod.known, pod.units) for pod in node(of).pods] == [(BoundBy.EXTENDER, True, 3)]
    one = only(of, "no-inventory")
    assert (one.severity, one.about) == (Severity.FAILED, ("node/a",))


def test_what_is_finished_or_asks_nothing_does_not_count() -> None:
    of = world(a=[15])
    runs(of, "done", 3, "a", chosen(0, 3, 15), phase="Succeeded")
    runs(of, "evicted", 3, "a", chosen(0, 3, 15), phase="Failed")
    runs(of, "cpu", 0, "a", {})
    assert (counted(of), node(of).pods, found(of).clean) == ([0], (), True)


# What stands in the way


@pytest.mark.parametrize(
    ("annotations", "check", "detail"),
    [
        pytest.param(chosen(7, 3, 15), "no-such-card", "card 7; the node has 2 cards", id="out of range"),
        pytest.param(
            {names.MEM_IDX: "-1"}, "no-such-card", "ALIYUN_COM_GPU_MEM_IDX is '-1'", id="the plugin's failure"
        ),
        pytest.param({names.MEM_IDX: ""}, "no-such-card", "ALIYUN_COM_GPU_MEM_IDX is ''", id="empty"),
        pytest.param(chosen(0, 5, 15), "disagrees", "MEM_POD is 5, but its containers request 3", id="other units"),
        pytest.param(
            {names.MEM_IDX: "0", names.MEM_DEV: "15"}, "disagrees", "MEM_POD is none", id="no units of the pod"
        ),
        pytest.param({names.MEM_IDX: "0", names.MEM_POD: "3"}, "unit", "is unknown", id="no units of the card"),
        pytest.param(chosen(0, 3, 5), "unit", "MEM_DEV is 5, which matches no memory unit", id="a size of no card"),
        pytest.param(chosen(0, 3, 7), "unit", "3 units of 2048 MiB count as 6", id="a size of half the card"),
        pytest.param(chosen(0, 3, 15360), "unit", "3 MiB count as 1", id="another unit"),
        pytest.param(
            chosen(0, 3, 15) | {names.ALLOCATION: '{"0":{"0":9}}'},
            "disagrees",
            "adds up to 9 units, but the pod requests 3",
            id="allocation of another",
        ),
    ],
)
def test_what_the_extender_wrote_wrong_is_found(annotations: dict[str, str], check: str, detail: str) -> None:
    of = world(a=[15, 15])
    runs(of, "p", 3, "a", annotations)
    one = only(of, check)
    assert one.severity is Severity.FAILED
    (about,) = one.about
    assert about.startswith("pod/default/p on node a: ")
    assert detail in about
    assert problems(of, "p") == (check,)
    assert not found(of).clean


def test_a_pod_on_a_card_that_is_smaller_than_the_extender_believed_is_found() -> None:
    """It takes all cards of a node for as large as the first."""
    of = world(a=[40, 15])
    runs(of, "p", 30, "a", chosen(1, 30, 40))
    assert problems(of, "p") == ("unit",)
    runs(of, "q", 30, "a", chosen(1, 30, 15))
    assert problems(of, "q") == ("does-not-fit",)


def test_init_containers_that_the_extender_did_not_count_are_found() -> None:
    of = world(a=[15])
    runs(of, "p", 3, "a", chosen(0, 3, 15), init=[5])
    assert counted(of) == [5]
    assert problems(of, "p") == ("disagrees",)


def test_a_pod_that_requests_several_cards_is_not_believed_to_be_on_one() -> None:
    of = world(a=[15, 15])
    runs(of, "p", 4, "a", chosen(0, 4, 15), labels={names.GPU_COUNT: "2"})
    assert counted(of) == [4, 4]
    (about,) = only(of, "disagrees").about
    assert "names one card, but the pod requests several" in about


def test_one_of_ours_that_is_being_deleted_is_in_nobodys_way() -> None:
    of = world(a=[15])
    there(of, "ours", 3, "a", 0)
    of.pods.delete("default", "ours")
    assert (counted(of), found(of).clean) == ([3], True)


def test_pods_that_wait_for_the_extender_are_found_with_what_a_failed_bind_has_left() -> None:
    of = world(a=[15])
    waits(of, "new", 3, scheduler=DEFAULT)
    of.pods.create(manifest("half", 3, scheduler=DEFAULT, annotations=chosen(1, 3, 15, assigned=False)))
    waits(of, "cpu", scheduler=DEFAULT)
    waits(of, "ours", 3)
    one = only(of, "pending")
    assert one.about == (
        "pod/default/half: schedulerName default-scheduler; annotated for card 1, and not bound",
        "pod/default/new: schedulerName default-scheduler",
    )
    assert counted(of) == [0]


def test_a_card_that_the_plugin_has_not_confirmed_is_a_warning_while_it_serves_the_node() -> None:
    of = world(legacy_node("a", 2, 15))
    runs(of, "swapped", 3, "a", chosen(0, 3, 15, assigned=False))
    runs(of, "starting", 3, "a", chosen(0, 3, 15, assigned=False), phase="Pending")
    one = only(of, "not-assigned")
    assert (one.severity, one.about) == (Severity.WARNING, ("pod/default/swapped on node a",))


def test_a_pod_that_requests_all_of_a_card_is_a_warning_until_our_device_plugin_counts_the_card() -> None:
    of = world(legacy_node("a", 2, 15))
    runs(of, "whole", 15, "a", chosen(0, 15, 15))
    runs(of, "less", 14, "a", chosen(1, 14, 15))
    one = only(of, "whole-card")
    assert (one.severity, one.about) == (Severity.WARNING, ("pod/default/whole on node a: 15 GiB, all of a card",))
    assert "countReservedMemory: true" in one.remedy


@pytest.mark.parametrize("units", [pytest.param(15, id="one unit more"), pytest.param(14, id="as much as there is")])
def test_a_pod_that_requests_more_than_any_card_has_by_now_is_a_warning(units: int) -> None:
    of = world(a=[14, 14])
    runs(of, "runs", units, "a", chosen(0, units, 15))
    waits(of, "waits", units, scheduler=DEFAULT)
    waits(of, "two-cards", 28, scheduler=DEFAULT, labels={names.GPU_COUNT: "2"})
    about = [line for one in found(of).findings if one.check == "whole-card" for line in one.about]
    detail = "15 GiB of one card, the largest card has 14"
    assert about == ([f"pod/default/runs on node a: {detail}", f"pod/default/waits: {detail}"] if units == 15 else [])


def test_of_a_node_with_one_card_the_plugin_confirms_nothing() -> None:
    of = world(legacy_node("a", 1, 15))
    runs(of, "p", 3, "a", chosen(0, 3, 15, assigned=False))
    assert problems(of, "p") == ()


def test_totals_in_mib_are_found_before_they_are_taken_for_gib() -> None:
    of = world(legacy_node("a", 2, 15360))
    runs(of, "p", 2048, "a", chosen(0, 2048, 15360))
    one = only(of, "unit")
    assert one.about == ("node/a: 15360 on one card",)
    assert "memoryUnitMiB: 1" in one.remedy


def test_a_pod_on_a_node_that_is_gone_is_found() -> None:
    of = world(a=[15])
    runs(of, "p", 3, "a", chosen(0, 3, 15))
    of.nodes.delete("a")
    assert only(of, "no-node").about == ("pod/default/p on node a",)


def test_a_pod_on_a_node_that_announces_nothing_any_more_is_shown() -> None:
    of = world(wire_node("a"))
    runs(of, "p", 3, "a", chosen(0, 3, 15))
    assert [(pod.pod, pod.known, pod.cards) for pod in node(of).pods] == [("default/p", False, ())]
    assert {one.check for one in found(of).findings} == {"no-inventory", "unit"}


def test_a_node_whose_plugin_has_not_said_how_many_cards_there_are_is_found() -> None:
    of = world(wire_node("a", more={names.GPU_MEM: "30"}))
    assert (node(of).cards, only(of, "no-inventory").about) == ((), ("node/a",))


# The text


def test_a_free_card_and_a_pod_on_none_have_a_line_too() -> None:
    of = world(wire_node("b"), a=[15])
    runs(of, "p", 3, "b", chosen(0, 3, 15))
    rows = [line.text.split() for line in lines(found(of))][1:3]
    assert rows == [
        ["a", "0", "15", "0", "-", "-", "-"],
        ["b", "-", "-", "-", "default/p", "extender", "3", "unit"],
    ]


# The size


def test_ten_thousand_pods_cost_seconds_of_the_processor_and_no_more() -> None:
    """Measured: 1.3 to 1.5 s. One that looked at each pod for each other would take minutes."""
    of, nodes, cards = World(lambda: NOW_S), 500, 8
    for number in range(nodes):
        name = f"n{number:03}"
        of.nodes.add(wire_node(name, [80] * cards) if number % 2 else legacy_node(name, cards, 80))
    for number in range(10_000):
        annotations = chosen(number // nodes % cards, 4, 80) if number % 100 else {}
        of.pods.create(
            manifest(f"p{number}", 4, node=f"n{number % nodes:03}", annotations=annotations, scheduler=DEFAULT)
        )
    began_s = time.thread_time()
    answer = found(of)
    text = as_text(lines(answer), colour=False)
    took_s = time.thread_time() - began_s
    assert sum(len(one.pods) for one in answer.nodes) == 10_000
    assert len(only(of, "without-card").about) == 100
    assert text.count("without-card\n") == 100 * cards
    assert took_s < _MOST_WORK_S, f"{took_s:.1f} s"
