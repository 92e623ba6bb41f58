"""Preemption searches while pods come, wait and leave."""

import pytest
from msgspec.structs import replace

from scheduler.core.effects import Bind, Evict, Unschedulable
from scheduler.core.engine import Engine
from scheduler.core.scheduling_cycle import NoFit
from scheduler.queue.entry import PodState
from scheduler.state.nominations import MOST_OF_A_NAMESPACE
from tests.support.builders import bound, engine, pod, wire_node
from tests.support.placing import NOW_NS, on_card
from tests.support.preempting import first_step, is_searching, next_step, no_fit, search_ended, sought


def waits(built: Engine, name: str, priority: int, gpu_mem: int = 16) -> None:
    """A pod is unschedulable, and preemption did not help."""
    assert sought(built, pod(name, gpu_mem, priority=priority)).preemption is None


def full(*priorities: int) -> Engine:
    """Nodes n0, n1, ... with a pod each, and closed."""
    built = engine()
    for number, priority in enumerate(priorities):
        built.node_changed(wire_node(f"n{number}", [16], unschedulable=True))
        built.pod_assigned(bound(pod(f"low-{number}", 16, priority=priority), f"n{number}", on_card(0, 16)))
    return built


def opens(built: Engine, number: int) -> None:
    built.node_changed(wire_node(f"n{number}", [16]))
    while built.run_hint(0.0):
        pass


def steps(built: Engine) -> list[str]:
    """Pods for which the searches find something, in order; an endless search fails."""
    found: list[str] = []
    for _ in range(100):
        if not is_searching(built):
            return found
        post_filtered = next_step(built)
        if post_filtered is not None and post_filtered.preemption is not None:
            found.append(f"{post_filtered.pod.key.name} on {post_filtered.preemption.node}")
    raise AssertionError(found)


def test_the_best_pod_has_the_first_place_that_opens() -> None:
    built = full(0, 0)
    for name, priority in (("second", 5), ("first", 7), ("third", 5)):
        waits(built, name, priority)

    opens(built, 0)
    assert steps(built) == ["first on n0"]
    opens(built, 1)
    assert steps(built) == ["second on n1"]


def test_a_pod_that_is_about_to_be_decided_is_passed_by_others_of_its_class() -> None:
    built = full(0)
    for name in ("held", "next"):
        waits(built, name, 5)
    built.queue.try_again("uid-default-held", 0.0)
    assert built.queue.throttle(lambda _: False)

    opens(built, 0)

    assert steps(built) == ["next on n0"]


def test_a_pod_that_is_gone_is_searched_for_no_longer() -> None:
    built = full(0)
    waits(built, "urgent", 5)
    opens(built, 0)

    built.pod_gone("uid-default-urgent")

    assert steps(built) == []
    assert len(built.nominations) == 0


def test_the_place_is_kept_for_the_pod_as_it_was_seen_last() -> None:
    built = full(0)
    waits(built, "urgent", 5)
    built.pod_waiting(replace(pod("urgent", 16, priority=5), labels={"seen": "later"}), 0.0)
    opens(built, 0)
    while (decision := built.decide(0.0, NOW_NS)) is not None:
        assert isinstance(decision.outcome, NoFit)
        first_step(built, decision.outcome)
    steps(built)

    kept = built.nominations.of("uid-default-urgent")
    assert kept is not None
    assert kept.pod.labels == {"seen": "later"}


@pytest.mark.parametrize(
    ("priority", "first"),
    [
        pytest.param(4, ["urgent"], id="lesser"),
        pytest.param(6, ["other"], id="better"),
    ],
)
def test_searches_come_before_decisions_for_lesser_pods(priority: int, first: list[str]) -> None:
    built = full(0)
    waits(built, "urgent", 5)
    built.pod_waiting(pod("other", 99, priority=priority), 0.0)

    opens(built, 0)

    assert built.searches.rank(0.0) == 5
    told: list[str] = []
    while not told and (step := built.step(0.0, NOW_NS)) is not None:
        told = [effect.pod.key.name for effect in step.effects if isinstance(effect, Unschedulable)]
    assert told == first


@pytest.mark.parametrize("steps_before", range(2))
def test_a_class_of_which_a_pod_fits_is_searched_for_once_it_has_its_room(steps_before: int) -> None:
    """The searches come first: their last step is longer ago. Found by a random history."""
    built = engine()
    built.budgets_listed()
    built.node_changed(wire_node("a", [16], unschedulable=True))
    built.pod_assigned(bound(pod("low", 9), "a", on_card(0, 9)))
    built.pod_waiting(replace(pod("first", 7, priority=5), preempts=False), 0.0)
    built.pod_waiting(pod("second", 7, priority=5), 0.0)
    while built.step(0.0, NOW_NS) is not None:
        pass
    if steps_before:
        # An attempt after the searches.
        built.pod_waiting(pod("other", 99), 0.0)
        while built.step(0.0, NOW_NS) is not None:
            pass
    built.node_changed(wire_node("a", [16]))
    found = []
    while (step := built.step(1.0, NOW_NS)) is not None:
        found += [one for one in step.effects if isinstance(one, Bind | Evict)]
    assert [type(one) for one in found] == [Bind, Evict]


def test_a_pod_that_backs_off_is_searched_for_whatever_its_class_waits_for() -> None:
    """A hint of its class may have to wait for the pod that is next, which waits for the better search."""
    built = engine()
    built.budgets_listed()
    built.node_changed(wire_node("a", [16], unschedulable=True))
    built.pod_assigned(bound(pod("low", 9), "a", on_card(0, 9)))
    built.pod_waiting(pod("best", 7, priority=10), 0.0)
    built.pod_waiting(pod("worst", 7), 0.0)
    while built.step(0.0, NOW_NS) is not None:
        pass
    built.queue.preemption_failed("uid-default-best", 0.0)
    built.pod_waiting(pod("next", 99, priority=5), 0.0)
    built.node_changed(wire_node("a", [16]))
    for _ in range(100):
        if built.step(0.1, NOW_NS) is None:
            break
    assert built.queue.state("uid-default-next") is PodState.UNSCHEDULABLE


def test_nobody_is_searched_for_once_the_last_place_that_would_give_way_serves() -> None:
    built = full(0)
    built.node_changed(wire_node("elsewhere"))
    waits(built, "urgent", 5)
    for number in range(MOST_OF_A_NAMESPACE):
        built.nominations.nominate(pod(f"kept-{number}", priority=9), "elsewhere" if number else "later", ())
    opens(built, 0)
    built.pod_waiting(pod("other", 99, priority=1), 0.0)
    assert built.searches.rank(0.0) == 5

    built.tables.upsert_node(wire_node("later"))

    assert steps(built) == []
    assert not is_searching(built)


@pytest.mark.parametrize("steps_before", range(1, 5))
def test_nobody_goes_where_others_have_left_enough_between_two_steps(steps_before: int) -> None:
    nodes = [f"n{number:02}" for number in range(40)]
    built = engine(**{node: [16] for node in nodes})
    for node in nodes:
        for number in range(10):
            built.pod_assigned(bound(pod(f"{node}-low-{number}", 1, priority=1), node, on_card(0, 1)))
        built.pod_assigned(bound(pod(f"{node}-high", 6, priority=20), node, on_card(0, 6)))
    built.budgets_listed()
    found = first_step(built, no_fit(built, pod("p", 6, priority=10)))
    for _ in range(steps_before - 1):
        assert found is None, "the search has fewer steps than the test needs"
        found = next_step(built)
    assert found is None, "the search has fewer steps than the test needs"

    for node in nodes:
        built.pod_gone(f"uid-default-{node}-high")

    assert search_ended(built, found).preemption is None
