"""Which pods get a reservation, where, and what that costs other pods."""

from datetime import datetime
from math import inf
from typing import Final

import pytest

from config.settings.scheduler import SchedulerConfiguration
from scheduler.core.build import build_engine
from scheduler.core.engine import Engine
from scheduler.core.scheduling_cycle import Placement
from scheduler.intake.event_handlers import before_start
from tests.support.builders import bound, pod, wire_node
from tests.support.placing import NOW_NS, decided, on_card
from tests.support.preempting import no_fit, search

AFTER_S: Final = 60.0
HOLDS_S: Final = 12 * AFTER_S


def starving(*, nodes: dict[str, list[int]], after: str = "1m") -> Engine:
    """Each node has one card of 16 units, and pods that hold this much of it."""
    built, _ = build_engine(SchedulerConfiguration.model_validate({"reserveAfter": after}))
    for name, held in nodes.items():
        built.node_changed(wire_node(name, [16]))
        for number, units in enumerate(held):
            built.pod_assigned(bound(pod(f"{name}{number}", units), name, on_card(0, units)))
    return built


def waits(built: Engine, name: str, gpu_mem: int = 16, *, namespace: str = "default", priority: int = 0) -> None:
    no_fit(built, pod(name, gpu_mem, namespace=namespace, priority=priority))


def looked(built: Engine, now_s: float) -> int:
    """Run everything that a look leads to; returns the number of steps."""
    steps = 0
    while True:
        hinted, searched = built.run_hint(now_s), search(built, now_s)
        steps += searched
        if not (hinted or searched) and built.decide(now_s, NOW_NS) is None:
            return steps


def reserved(built: Engine) -> list[str]:
    kept = sorted(built.nominations.reserved.items(), reverse=True)
    return [f"{one.pod.key.name} on {one.node}" for _, one in kept]


@pytest.mark.parametrize(
    ("nodes", "expected"),
    [
        pytest.param({"a": [8, 8], "b": [8]}, ["p on b"], id="where less of the card has to be freed"),
        pytest.param({"a": [8], "b": [8]}, ["p on a"], id="equals by name"),
        pytest.param({"b": [12], "a": [3, 3, 3, 4]}, ["p on b"], id="units count, not pods"),
    ],
)
def test_the_place_is_where_the_least_is_missing(nodes: dict[str, list[int]], expected: list[str]) -> None:
    built = starving(nodes=nodes)
    waits(built, "p")
    looked(built, AFTER_S - 1)
    assert reserved(built) == []
    looked(built, AFTER_S + 1)
    assert reserved(built) == expected


def test_pods_of_higher_priority_are_not_waited_for() -> None:
    built = starving(nodes={"b": [12]})
    built.node_changed(wire_node("a", [16]))
    built.pod_assigned(bound(pod("better", 1, priority=1), "a", on_card(0, 1)))
    waits(built, "p")
    looked(built, AFTER_S + 1)
    assert reserved(built) == ["p on b"]


def test_there_is_one_place_for_each_priority_the_best_first() -> None:
    built = starving(nodes={"a": [8], "b": [12]})
    for priority in (1, 2):
        for number in range(3):
            waits(built, f"p{priority}-{number}", 14 + priority, priority=priority)
    looked(built, AFTER_S + 1)
    assert reserved(built) == ["p2-0 on a", "p1-0 on b"]


def test_pods_that_ask_the_same_have_a_place_for_each_priority_too() -> None:
    built = starving(nodes={"a": [8], "b": [12]})
    waits(built, "low")
    waits(built, "high", priority=1)
    looked(built, AFTER_S + 1)
    assert reserved(built) == ["high on a", "low on b"]


def test_zero_turns_it_off() -> None:
    built = starving(nodes={"a": [8]}, after="0")
    waits(built, "p")
    looked(built, 10 * AFTER_S)
    assert reserved(built) == []


def test_many_pods_that_fit_nowhere_delay_no_other_namespace_and_a_look_is_bounded() -> None:
    built = starving(nodes={"a": [8]})
    for number in range(200):
        waits(built, f"impossible-{number}", 17 + number, namespace="hostile")
    waits(built, "p", namespace="quiet")

    steps = looked(built, AFTER_S + 1)

    assert reserved(built) == ["p on a"]
    assert steps <= 16


def test_a_pod_that_fits_on_no_empty_node_is_searched_for_once_in_five_minutes() -> None:
    built = starving(nodes={"a": [8]})
    waits(built, "impossible", 17)
    assert looked(built, AFTER_S + 1) > 1
    # A round begins, and finds no pod to search for.
    assert [looked(built, AFTER_S + 1 + later_s) for later_s in (2, 100, 200)] == [0, 0, 0]
    assert looked(built, AFTER_S + 302) > 1


def test_a_place_is_held_twice_as_long_the_next_time() -> None:
    built = starving(nodes={"a": [8]})
    waits(built, "p")
    held: list[float] = []
    now_s, began_s = AFTER_S + 2, 0.0
    while len(held) < 3:
        had = bool(reserved(built))
        looked(built, now_s)
        if bool(reserved(built)) and not had:
            began_s = now_s
        if had and not reserved(built):
            held.append(now_s - began_s)
        now_s += 20.0
    assert [round(one / HOLDS_S) for one in held] == [1, 2, 4]


def tried(built: Engine, holds: int) -> list[tuple[str, list[int]]]:
    """(node, cards) of the reservations, in turn, until so many of the first have passed."""
    places: list[tuple[str, list[int]]] = []
    for now_s in range(int(AFTER_S) + 2, int(holds * HOLDS_S), 30):
        looked(built, float(now_s))
        now = [(one.node, sorted(one.record.written.per_card)) for one in built.nominations.reserved.values()]
        places += [place for place in now if place not in places[-1:]]
    return places


def test_after_a_place_where_nobody_leaves_another_is_tried() -> None:
    built, _ = build_engine(SchedulerConfiguration.model_validate({"reserveAfter": "1m"}))
    built.node_changed(wire_node("a", [16, 16]))
    for name, card, units in (("stays", 0, 4), ("goes", 1, 8)):
        built.pod_assigned(bound(pod(name, units), "a", on_card(card, units)))
    waits(built, "p")
    assert tried(built, 8) == [("a", [0]), ("a", [1]), ("a", [0])]


def test_a_node_where_nobody_leaves_is_tried_last_by_a_pod_without_gpu_memory() -> None:
    built, _ = build_engine(SchedulerConfiguration.model_validate({"reserveAfter": "1m"}))
    for name, cpu in (("a", "1"), ("b", "2")):
        built.node_changed(wire_node(name, [16], cpu="4"))
        built.pod_assigned(bound(pod(f"on-{name}", requests={"cpu": cpu}), name))
    no_fit(built, pod("p", requests={"cpu": "4"}))
    assert tried(built, 4) == [("a", []), ("b", [])]


@pytest.mark.parametrize(
    ("created", "expected_s"),
    [
        pytest.param("2026-01-01T00:01:00Z", -40.0, id="before the start"),
        pytest.param("2026-01-01T00:02:00Z", inf, id="since"),
        pytest.param("", inf, id="unknown"),
        pytest.param("2025", inf, id="not a time"),
    ],
)
def test_a_pod_that_is_older_than_the_process_waits_since_its_creation(created: str, expected_s: float) -> None:
    start_s = datetime.fromisoformat("2026-01-01T00:01:50Z").timestamp()
    assert before_start(10.0, start_s)(created) == expected_s


def test_a_reserved_place_is_not_taken_by_a_smaller_pod_that_goes_elsewhere() -> None:
    built = starving(nodes={"a": [8], "b": [4]})
    waits(built, "p", 16)
    looked(built, AFTER_S + 1)
    assert reserved(built) == ["p on b"]
    built.pod_waiting(pod("small", 4), AFTER_S + 2)
    outcome = decided(built, AFTER_S + 2)
    assert isinstance(outcome, Placement)
    assert outcome.node == "a"
