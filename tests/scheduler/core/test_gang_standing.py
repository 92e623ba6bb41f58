"""Which pods of a gang are held, attempted together, or go alone; and what their owners are told."""

import pytest
from msgspec.structs import replace

from scheduler.core.effects import Bind, Evict, Unschedulable
from scheduler.pods.pod import Pod
from scheduler.queue.entry import PodState
from tests.support.builders import bound, pod, wire_node
from tests.support.gangs import come, effects, member, messages, placed, site
from tests.support.placing import on_card


def test_a_gang_waits_until_enough_of_its_pods_exist() -> None:
    built = site(a=4)
    come(built, member("p0", minimum=3), member("p1", minimum=3))
    assert placed(built) == set()
    assert built.queue.gate("uid-default-p0") == "waiting for more pods of gang g. 2 of at least 3 exist"
    come(built, member("p2", minimum=3))
    assert placed(built) == {"p0", "p1", "p2"}


def test_pods_above_the_minimum_wait_alone() -> None:
    built = site(a=2)
    come(built, *(member(f"p{number}", minimum=2) for number in range(3)))
    found = list(effects(built))
    assert {one.placement.pod.key.name for one in found if isinstance(one, Bind)} == {"p0", "p1"}
    (told,) = (one for one in found if isinstance(one, Unschedulable))
    assert told.pod.key.name == "p2"
    assert "gang" not in told.diagnosis.message
    built.node_changed(wire_node("b", [16]))
    assert placed(built) == {"p2"}


def test_a_pod_that_joins_a_running_gang_is_placed_alone() -> None:
    built = site(a=3)
    for number in range(2):
        running = bound(member(f"p{number}", minimum=3), "a", on_card(number, 16))
        built.pod_assigned(running)
    come(built, member("again", minimum=3))
    assert placed(built) == {"again"}


def test_members_that_are_shown_before_the_running_ones_are_not_forgotten() -> None:
    built = site(a=3)
    come(built, member("again", minimum=3))
    assert placed(built) == set()
    for number in range(2):
        built.pod_assigned(bound(member(f"p{number}", minimum=3), "a", on_card(number, 16)))
    assert placed(built) == {"again"}


def test_terminating_pods_of_an_earlier_run_do_not_count() -> None:
    built = site(a=4)
    for number in range(3):
        old = bound(member(f"old{number}", minimum=3), "a", on_card(number, 16))
        built.pod_assigned(old)
        built.pod_assigned(replace(old, terminating=True))
    come(built, *(member(f"new{number}", minimum=3) for number in range(3)))
    assert placed(built) == set()
    for number in range(3):
        built.pod_gone(f"uid-default-old{number}")
    assert placed(built, 20.0) == {"new0", "new1", "new2"}


def test_pods_that_must_start_together_preempt_nobody() -> None:
    built = site(a=3)
    for number in range(2):
        built.pod_assigned(bound(member(f"p{number}", minimum=2, priority=5), "a", on_card(number, 16)))
    built.pod_assigned(bound(pod("high", 16, priority=50), "a", on_card(2, 16)))
    come(built, member("extra", minimum=2, priority=5))
    list(effects(built))
    for number in range(2):
        built.pod_gone(f"uid-default-p{number}")
        built.pod_assigned(bound(pod(f"low{number}", 16), "a", on_card(number, 16)))
    built.budgets_listed()
    assert not any(isinstance(one, Evict) for one in effects(built, 1.0))


def test_pods_behind_a_scheduling_gate_hold_the_others_up() -> None:
    built = site(a=3)
    gated = {**member("gated", minimum=3).annotations}
    come(built, member("p0", minimum=3), member("p1", minimum=3))
    come(built, pod("gated", 16, annotations=gated, schedulingGates=[{"name": "x"}]))
    assert placed(built) == set()
    assert list(built.tables.records()) == []
    come(built, pod("gated", 16, annotations=gated), now_s=20.0)
    assert placed(built, 20.0) == {"p0", "p1", "gated"}


def test_owners_of_held_pods_are_told_after_some_seconds() -> None:
    built = site(a=4)
    come(built, member("p0", minimum=3), pod("q", 16, annotations={"gpushare/gang": "h", "gpushare/gang-min": "x"}))
    assert messages(built, 0.0) == {}
    assert messages(built, 4.0) == {}
    assert messages(built, 6.0) == {
        "p0": "0/1 nodes are available: waiting for more pods of gang g. 1 of at least 3 exist.",
        "q": "0/1 nodes are available: annotation gpushare/gang-min: expected a number from 1 to 512, found 'x'.",
    }
    come(built, member("p1", minimum=3), now_s=7.0)
    assert messages(built, 7.0) == {}
    assert messages(built, 13.0).keys() == {"p0", "p1"}
    come(built, member("p2", minimum=3), now_s=14.0)
    assert placed(built, 14.0) == {"p0", "p1", "p2"}
    assert messages(built, 30.0) == {}


def test_a_gang_that_shrinks_below_its_minimum_is_held() -> None:
    built = site(a=2)
    come(built, *(member(f"p{number}", minimum=3) for number in range(3)))
    assert placed(built) == set()
    built.pod_gone("uid-default-p1")
    assert messages(built, 1.0) == {}
    assert messages(built, 10.0).keys() == {"p0", "p2"}
    assert built.queue.gate("uid-default-p2") == "waiting for more pods of gang g. 2 of at least 3 exist"
    built.node_changed(wire_node("b", [16]))
    come(built, member("q", minimum=3), now_s=11.0)
    assert placed(built, 11.0) == {"p0", "p2", "q"}


def test_pods_of_a_gang_have_one_priority() -> None:
    built = site(a=3)
    come(built, member("p0", minimum=2), member("p1", minimum=2, priority=5))
    assert placed(built) == set()
    assert built.queue.gate("uid-default-p0") == "pods of gang g have several priorities: 0, 5; expected one"
    built.pod_gone("uid-default-p1")
    come(built, member("p2", minimum=2))
    assert placed(built) == {"p0", "p2"}


def test_a_replacement_goes_alone_while_others_of_its_gang_run() -> None:
    """The others have succeeded, which a watch of live pods does not show."""
    built = site(a=2)
    running = bound(member("p0", minimum=4), "a", on_card(0, 16))
    built.pod_assigned(replace(running, phase="Running"))
    come(built, member("again", minimum=4))
    assert placed(built) == {"again"}


def test_a_gang_in_part_goes_first() -> None:
    built = site(a=2)
    come(built, pod("first", 16), member("p1", minimum=2))
    built.pod_assigned(bound(member("p0", minimum=2), "a", on_card(0, 16)))
    assert placed(built) == {"p1"}


@pytest.mark.parametrize("blocker", [member("x", minimum=5), member("x", minimum=2, priority=5)])
@pytest.mark.parametrize("moves", [False, True])
def test_a_gang_is_attempted_once_the_pod_that_held_it_is_gone(blocker: Pod, *, moves: bool) -> None:
    built = site(a=3)
    come(built, member("p0", minimum=2), member("p1", minimum=2), blocker)
    assert placed(built) == set()
    if moves:
        come(built, member("x", "other", minimum=5), now_s=1.0)
    else:
        built.pod_gone("uid-default-x")
    assert placed(built, 1.0) == {"p0", "p1"}


@pytest.mark.parametrize("text", ["600", "x", ""])
def test_pods_whose_minimum_becomes_unreadable_are_held(text: str) -> None:
    built = site(a=2)
    come(built, *(member(f"p{number}", minimum=3) for number in range(3)))
    assert placed(built) == set()
    annotations = {"gpushare/gang": "g", "gpushare/gang-min": text}
    come(built, *(pod(f"p{number}", 16, annotations=annotations) for number in range(3)), now_s=1.0)
    built.node_changed(wire_node("b", [16]))
    assert placed(built, 20.0) == set()
    assert {built.queue.state(f"uid-default-p{number}") for number in range(3)} == {PodState.GATED}


def test_a_lower_minimum_is_used() -> None:
    built = site(a=2)
    come(built, *(member(f"p{number}", minimum=3) for number in range(3)))
    assert placed(built) == set()
    come(built, *(member(f"p{number}", minimum=2) for number in range(3)), now_s=5.0)
    assert len(placed(built, 5.0)) == 2


def test_a_nomination_of_a_pod_that_waits_with_its_gang_again_is_dropped() -> None:
    built = site(a=1, b=1)
    built.budgets_listed()
    built.pod_assigned(bound(member("p0", minimum=2, priority=5), "a", on_card(0, 16)))
    built.pod_assigned(bound(pod("low", 16), "b", on_card(0, 16)))
    come(built, member("p1", minimum=2, priority=5))
    assert any(isinstance(one, Evict) for one in effects(built))
    built.pod_gone("uid-default-p0")
    list(effects(built, 1.0))
    assert built.queue.state("uid-default-p1") is PodState.GATED
    assert len(built.nominations) == 0


@pytest.mark.parametrize("text", ["", "0", "x", "513", "3.5", "-1"])
def test_an_unreadable_minimum_is_told(text: str) -> None:
    built = site(a=2)
    come(built, pod("p", 16, annotations={"gpushare/gang": "g", "gpushare/gang-min": text}))
    assert placed(built) == set()
    assert "annotation gpushare/gang-min: expected a number from 1 to 512" in built.queue.gate("uid-default-p")
