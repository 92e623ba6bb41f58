"""Pods of one group get their cards together, or none of them gets one."""

import random
from collections import Counter
from collections.abc import Callable, Iterator

import pytest
from msgspec.structs import replace

from config.settings.scheduler import SchedulerConfiguration
from scheduler.core.build import build_engine
from scheduler.core.effects import Bind, Effect, Evict, Unschedulable
from scheduler.core.engine import Engine
from scheduler.pods.pod import Pod
from scheduler.queue.entry import PodState
from tests.support.builders import bound, pod, wire_node
from tests.support.placing import NOW_NS, on_card


def site(**cards: int) -> Engine:
    """Return an engine with nodes that have this many cards of 16 units."""
    built, _ = build_engine(SchedulerConfiguration())
    for name, count in cards.items():
        built.node_changed(wire_node(name, [16] * count))
    return built


def member(name: str, group: str = "g", *, minimum: int, units: int = 16, priority: int = 0) -> Pod:
    annotations = {"gpushare/gang": group, "gpushare/gang-min": str(minimum)}
    return pod(name, units, annotations=annotations, priority=priority)


def come(built: Engine, *pods: Pod, now_s: float = 0.0) -> None:
    for each in pods:
        built.pod_waiting(each, now_s)


def effects(built: Engine, now_s: float = 0.0) -> Iterator[Effect]:
    """Run the engine until it has nothing to do."""
    while (step := built.step(now_s, NOW_NS)) is not None:
        yield from step.effects


def placed(built: Engine, now_s: float = 0.0) -> set[str]:
    return {one.placement.pod.key.name for one in effects(built, now_s) if isinstance(one, Bind)}


def messages(built: Engine, now_s: float = 0.0) -> dict[str, str]:
    found = (one for one in effects(built, now_s) if isinstance(one, Unschedulable))
    return {one.pod.key.name: one.diagnosis.message for one in found}


def test_a_group_waits_until_enough_of_its_pods_exist() -> None:
    built = site(a=4)
    come(built, member("p0", minimum=3), member("p1", minimum=3))
    assert placed(built) == set()
    assert built.queue.gate("uid-default-p0") == "waiting for more pods of gang g. 2 of at least 3 exist"
    come(built, member("p2", minimum=3))
    assert placed(built) == {"p0", "p1", "p2"}


def test_where_too_few_fit_none_is_booked_and_all_are_told() -> None:
    built = site(a=2)
    come(built, *(member(f"p{number}", minimum=3) for number in range(3)))
    told = messages(built)
    assert told.keys() == {"p0", "p1", "p2"}
    (text,) = set(told.values())
    assert text == (
        "0/1 nodes are available: 1 Insufficient GPU memory on one card: wants 16, most free 0 (of 16). "
        "Gang g needs 3 pods at once: pod p2 does not fit beside 2 of them."
    )
    assert list(built.tables.records()) == []
    come(built, pod("single", 16))
    assert placed(built) == {"single"}


def test_all_are_placed_once_there_is_room() -> None:
    built = site(a=2)
    built.pod_assigned(bound(pod("there", 16), "a", on_card(0, 16)))
    come(built, *(member(f"p{number}", minimum=2) for number in range(2)))
    assert placed(built) == set()
    built.pod_gone("uid-default-there")
    assert placed(built, 20.0) == {"p0", "p1"}


def test_the_largest_request_per_card_is_placed_first() -> None:
    built = site(a=2)
    small = [member(f"s{number}", minimum=3, units=8) for number in range(2)]
    come(built, *small, member("large", minimum=3, units=16))
    assert placed(built) == {"s0", "s1", "large"}


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


def test_a_pod_that_joins_a_running_group_is_placed_alone() -> None:
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


def test_of_two_groups_that_each_need_more_than_half_one_is_complete() -> None:
    built = site(a=5, b=5)
    for number in range(6):
        come(built, member(f"x{number}", "x", minimum=6), member(f"y{number}", "y", minimum=6))
    assert placed(built) == {f"x{number}" for number in range(6)}


def test_a_pod_that_goes_while_its_group_is_placed_undoes_it() -> None:
    built = site(a=3)
    come(built, *(member(f"p{number}", minimum=3) for number in range(3)))
    for _ in range(3):
        built.step(0.0, NOW_NS)
    built.pod_gone("uid-default-p0")
    assert placed(built) == set()
    assert list(built.tables.records()) == []
    assert built.queue.state("uid-default-p1") is not None
    come(built, member("q", minimum=3))
    assert placed(built, 20.0) == {"p1", "p2", "q"}


def test_the_room_of_an_undone_group_wakes_nobody() -> None:
    built = site(a=2)
    come(built, *(member(f"p{number}", minimum=3) for number in range(3)))
    list(effects(built))
    states = {built.queue.state(f"uid-default-p{number}") for number in range(3)}
    assert states == {PodState.GATHERED}
    assert list(effects(built, 1.0)) == []


def test_a_member_that_somebody_else_binds_meanwhile_is_left_to_them() -> None:
    for steps in range(1, 5):
        built = site(a=3, z=1)
        come(built, *(member(f"p{number}", minimum=3) for number in range(3)))
        for _ in range(steps):
            built.step(0.0, NOW_NS)
        built.pod_assigned(bound(member("p0", minimum=3), "z", on_card(0, 16)))
        found = placed(built) | placed(built, 2.0) | placed(built, 4.0)
        assert found == {"p1", "p2"}
        assert "uid-default-p0" not in built.queue


def test_edits_do_not_shorten_the_back_off_of_a_gang() -> None:
    built = site(a=2)
    gang = [member(f"p{number}", minimum=3) for number in range(3)]
    come(built, *gang)
    attempts = 0
    for number in range(200):
        edited = replace(gang[number % 3], annotations={**gang[0].annotations, "x": str(number)}, gang=gang[0].gang)
        come(
            built,
            replace(edited, gang=edited.gang._replace(minimum=3 + number % 2) if edited.gang else None),
            now_s=number / 100,
        )
        attempts += any(isinstance(one, Unschedulable) for one in effects(built, number / 100))
    assert attempts <= 4


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


def test_room_for_a_pod_that_did_fit_is_used() -> None:
    built = site()
    built.node_changed(wire_node("a", [16], cpu="8"))
    built.node_changed(wire_node("c", cpu="2"))
    annotations = {"gpushare/gang": "g", "gpushare/gang-min": "2"}
    worker = pod("worker", 16, annotations=annotations, requests={"cpu": "4"})
    come(built, worker, pod("launcher", 0, annotations=annotations, requests={"cpu": "6"}))
    assert placed(built) == set()
    built.node_changed(wire_node("b", [16], cpu="4"))
    assert placed(built, 1.5) | placed(built, 15.0) == {"worker", "launcher"}


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


def test_attempts_in_vain_of_many_gangs_delay_a_single_pod_little() -> None:
    """Each of the 40 takes 23 steps of a millisecond; all would take 920 ms."""
    built = site(a=7)
    for number in range(40):
        come(built, *(member(f"g{number}-{each}", f"g{number}", minimum=8) for each in range(8)))
    come(built, pod("single", 16))
    for steps in range(1000):
        step = built.step(steps / 1000, NOW_NS)
        if step is not None and any(isinstance(one, Bind) for one in step.effects):
            assert steps <= 250
            return
    pytest.fail("the single pod was never placed")


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


def test_the_place_of_a_pod_is_kept_while_its_gang_waits_for_it() -> None:
    built = site(a=2)
    come(built, member("p0", minimum=2), member("p1", minimum=2))
    binds = [one for one in effects(built) if isinstance(one, Bind)]
    built.bound(binds[0].placement)
    built.bind_failed(binds[1].placement, 1.0)
    come(built, pod("single", 16), now_s=1.0)
    assert placed(built, 1.0) == set()
    assert placed(built, 3.0) == {binds[1].placement.pod.key.name}


def gone(built: Engine) -> None:
    for number in range(2):
        built.pod_gone(f"uid-default-p{number}")


def bound_by_another(built: Engine) -> None:
    for number in range(2):
        built.pod_assigned(bound(member(f"p{number}", minimum=2), "a", on_card(number, 16)))


def without_gang(built: Engine) -> None:
    come(built, *(pod(f"p{number}", 16) for number in range(2)))


@pytest.mark.parametrize("change", [gone, bound_by_another, without_gang])
@pytest.mark.parametrize("steps", range(4))
def test_an_attempt_survives_whatever_becomes_of_its_pods(change: Callable[[Engine], None], steps: int) -> None:
    built = site(a=2)
    come(built, *(member(f"p{number}", minimum=2) for number in range(2)))
    for _ in range(steps):
        built.step(0.0, NOW_NS)
    change(built)
    placed(built)
    placed(built, 20.0)
    built.queue.validate()
    assert all(record.pod.gang is None or change is bound_by_another for record in built.tables.records())


def test_a_pod_that_is_deleted_while_it_is_bound_keeps_no_place() -> None:
    built = site(a=2)
    come(built, member("p0", minimum=2), member("p1", minimum=2))
    binds = [one for one in effects(built) if isinstance(one, Bind)]
    built.bound(binds[0].placement)
    built.pod_gone(binds[1].placement.pod.key.uid)
    built.bind_failed(binds[1].placement, 1.0)
    come(built, pod("single", 16), now_s=1.0)
    assert placed(built, 1.0) == {"single"}


def test_a_place_is_kept_for_three_more_requests() -> None:
    built = site(a=2)
    come(built, member("p0", minimum=2), member("p1", minimum=2))
    first, second = (one for one in effects(built) if isinstance(one, Bind))
    come(built, pod("single", 16))
    built.bound(first.placement)
    now_s, requests = 0.0, 1
    while True:
        built.bind_failed(second.placement, now_s)
        again = placed(built, now_s) | placed(built, now_s + 5.0)
        now_s += 5.0
        if again != {second.placement.pod.key.name}:
            break
        requests += 1
    assert (again, requests) == ({"single"}, 4)


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


def test_all_gangs_are_tried_after_an_event_however_many_wait() -> None:
    built = site(a=1)
    for number in range(60):
        come(built, *(member(f"g{number}-{each}", f"g{number}", minimum=8) for each in range(8)))
    come(built, *(member(f"ok{number}", "ok", minimum=2) for number in range(2)))
    for second in range(400):
        assert placed(built, float(second)) == set()
    built.node_changed(wire_node("b", [16]))
    found = set[str]()
    for second in range(401, 412):
        found |= placed(built, float(second))
    assert found == {"ok0", "ok1"}


def test_different_pods_are_tried_in_both_orders() -> None:
    built = site()
    built.node_changed(wire_node("a", cpu="2"))
    built.node_changed(wire_node("b", cpu="4"))
    gang = {"gpushare/gang": "g", "gpushare/gang-min": "2"}
    come(built, pod("small", 0, annotations=gang, requests={"cpu": "2"}))
    come(built, pod("large", 0, annotations=gang, requests={"cpu": "4"}))
    assert placed(built) == {"small", "large"}


@pytest.mark.parametrize("text", ["", "0", "x", "513", "3.5", "-1"])
def test_an_unreadable_minimum_is_told(text: str) -> None:
    built = site(a=2)
    come(built, pod("p", 16, annotations={"gpushare/gang": "g", "gpushare/gang-min": text}))
    assert placed(built) == set()
    assert "annotation gpushare/gang-min: expected a number from 1 to 512" in built.queue.gate("uid-default-p")


@pytest.mark.parametrize("seed", range(12))
def test_no_group_is_ever_placed_in_part(seed: int) -> None:
    """Random arrivals, ends and nodes; after each step of the engine no group has some but too few pods with a node."""
    rng, now_s = random.Random(seed), 0.0  # noqa: S311
    built = site(a=rng.randint(2, 6), b=rng.randint(2, 6))
    minimum, waiting = {f"g{number}": rng.randint(2, 5) for number in range(4)}, Counter[str]()
    started: set[str] = set()
    for number in range(120):
        now_s += rng.choice((0.0, 0.5, 3.0, 12.0))
        running = [record.pod.key.uid for record in built.tables.records()]
        if rng.random() < 0.3 and running:
            built.pod_gone(rng.choice(running))
        elif rng.random() < 0.3:
            come(built, pod(f"s{number}", rng.choice((4, 8, 16))), now_s=now_s)
        else:
            group = rng.choice(list(minimum))
            waiting[group] += 1
            come(
                built,
                member(f"{group}-{number}", group, minimum=minimum[group], units=rng.choice((4, 8, 16))),
                now_s=now_s,
            )
        bound_now = Counter(
            one.placement.pod.gang.key.name
            for one in effects(built, now_s)
            if isinstance(one, Bind) and one.placement.pod.gang
        )
        for group, count in bound_now.items():
            key = next(r.pod.gang.key for r in built.tables.records() if r.pod.gang and r.pod.gang.key.name == group)
            assert built.queue.gangs.members.placed(key) >= minimum[group], (group, count)
            started.add(group)
        built.queue.validate()
    assert started
