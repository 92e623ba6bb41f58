"""Pods of one gang get their cards together, or none of them gets one."""

import random
from collections import Counter
from collections.abc import Callable

import pytest
from msgspec.structs import replace

from scheduler.core.effects import Bind, Unschedulable
from scheduler.core.engine import Engine
from scheduler.queue.entry import PodState
from tests.support.builders import bound, pod, wire_node
from tests.support.gangs import come, effects, member, messages, placed, site
from tests.support.placing import NOW_NS, on_card


def test_where_too_few_fit_none_is_booked_and_all_are_told() -> None:
    built = site(a=2)
    come(built, *(member(f"p{number}", minimum=3) for number in range(3)))
    told = messages(built)
    assert told.keys() == {"p0", "p1", "p2"}
    (text,) = set(told.values())
    assert text == (
        "0/1 nodes are available: 1 Insufficient GPU memory on one card: wants 16, most free 0 (of 16). "
        "Gang g needs 3 pods at once: 2 fit, then pod p2 does not fit."
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


def test_of_two_gangs_that_each_need_more_than_half_one_is_complete() -> None:
    built = site(a=5, b=5)
    for number in range(6):
        come(built, member(f"x{number}", "x", minimum=6), member(f"y{number}", "y", minimum=6))
    assert placed(built) == {f"x{number}" for number in range(6)}


def test_a_pod_that_goes_while_its_gang_is_placed_undoes_it() -> None:
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


def test_the_room_of_an_undone_gang_wakes_nobody() -> None:
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


def test_failed_attempts_of_many_gangs_delay_a_single_pod_little() -> None:
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


def test_gangs_keep_their_order_however_often_they_are_tried() -> None:
    built = site(a=1)
    for gang in "xyz":
        come(built, *(member(f"{gang}{number}", gang, minimum=2) for number in range(2)))
    for second in range(30):
        assert placed(built, float(second)) == set()
    for number, gang in enumerate("xyz"):
        built.node_changed(wire_node(f"n{number}", [16, 16] if number else [16]))
        assert placed(built, 50.0 * (number + 1)) == {f"{gang}0", f"{gang}1"}


def test_a_pod_does_not_wait_behind_all_gangs_that_do_not_fit() -> None:
    built = site(a=1)
    for number in range(50):
        come(built, *(member(f"g{number}-{each}", f"g{number}", minimum=2) for each in range(2)))
    assert placed(built) == set()
    # An event that may help any of them.
    built.node_changed(wire_node("b", [4]))
    come(built, pod("single", 8), now_s=10.0)
    for steps in range(40):
        step = built.step(10.0 + steps / 1000, NOW_NS)
        if step is not None and any(isinstance(one, Bind) for one in step.effects):
            return
    pytest.fail("the single pod waits behind the gangs")


def test_a_gang_that_placed_some_pods_in_an_attempt_does_not_pass_an_older_one() -> None:
    built = site(a=1)
    come(built, *(member(f"y{number}", "y", minimum=2, units=32) for number in range(2)))
    assert placed(built) == set()
    come(built, *(member(f"z{number}", "z", minimum=2) for number in range(2)))
    assert placed(built, 5.0) == set()
    built.node_changed(wire_node("b", [32, 32]))
    assert placed(built, 20.0) == {"y0", "y1"}


def test_a_node_that_goes_while_a_gang_is_placed_undoes_it() -> None:
    built = site(a=1, b=1)
    come(built, member("p0", minimum=2), member("p1", minimum=2))
    while len(list(built.tables.records())) < 2:
        built.step(0.0, NOW_NS)
    built.node_gone("b")
    assert placed(built) == set()
    assert list(built.tables.records()) == []
    built.node_changed(wire_node("b", [16]))
    assert placed(built, 2.0) == {"p0", "p1"}


def test_events_do_not_shorten_the_back_off_of_a_gang() -> None:
    built = site(a=2)
    come(built, *(member(f"p{number}", minimum=3) for number in range(3)))
    attempts = 0
    for tenth in range(100):
        built.node_changed(wire_node("b", [8], labels={"at": str(tenth)}))
        told = (one for one in effects(built, tenth / 10) if isinstance(one, Unschedulable))
        attempts += sum(one.attempt is not None for one in told)
    assert 3 <= attempts <= 5


class Outlet:
    """An outlet that takes no Bindings of one namespace."""

    may_place = True

    def may_bind(self, namespace: str) -> bool:
        return namespace != "default"

    def failing(self, namespace: str) -> str:
        return "" if self.may_bind(namespace) else "failures"


def test_a_gang_whose_namespace_fails_does_not_hold_up_others() -> None:
    built = site(a=2)
    built.into(Outlet())
    annotations = member("p0", minimum=2).annotations
    come(built, *(member(f"p{number}", minimum=2) for number in range(2)))
    list(effects(built))
    come(built, *(pod(f"q{number}", 16, namespace="other", annotations=annotations) for number in range(2)))
    assert placed(built) == {"q0", "q1"}


def test_of_a_large_gang_that_is_held_now_no_pod_goes_alone() -> None:
    """Its pods move to their new state in several steps."""
    built = site(a=2)
    come(built, *(member(f"p{number}", minimum=1) for number in range(1200)))
    come(built, member("of another priority", minimum=400, priority=-5))
    assert placed(built) == set()


def test_different_pods_are_tried_in_both_orders() -> None:
    built = site()
    built.node_changed(wire_node("a", cpu="2"))
    built.node_changed(wire_node("b", cpu="4"))
    gang = {"gpushare/gang": "g", "gpushare/gang-min": "2"}
    come(built, pod("small", 0, annotations=gang, requests={"cpu": "2"}))
    come(built, pod("large", 0, annotations=gang, requests={"cpu": "4"}))
    assert placed(built) == {"small", "large"}


@pytest.mark.parametrize("seed", range(12))
def test_no_gang_is_ever_placed_in_part(seed: int) -> None:
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
