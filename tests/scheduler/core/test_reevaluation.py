"""Messages of unschedulable pods after re-evaluation."""

from collections.abc import Iterator

from config.settings.scheduler import SchedulerConfiguration
from scheduler.core.build import build_engine
from scheduler.core.effects import LostWakeup, Reevaluated
from scheduler.core.engine import Engine
from scheduler.core.reevaluation import EVERY_S
from scheduler.core.scheduling_cycle import NoFit
from scheduler.queue.entry import PodState
from tests.support.builders import bound, pod, wire_node
from tests.support.placing import NOW_NS, decided, on_card, settle
from tests.support.preempting import PostFiltered, first_step, is_searching, next_step, no_fit, search


def cluster(*waiting: str, reserve_after: str = "0", priority: int = 0) -> Engine:
    """A node with one card of 16 units, 10 of them taken, and pods that wait for 16."""
    built, _ = build_engine(SchedulerConfiguration.model_validate({"reserveAfter": reserve_after}))
    built.budgets_listed()
    built.node_changed(wire_node("a", [16]))
    built.pod_assigned(bound(pod("runs", 10), "a", on_card(0, 10)))
    for name in waiting:
        no_fit(built, pod(name, 16, priority=priority))
    return built


def steps(built: Engine, now_s: float) -> Iterator[tuple[str, str]]:
    while built.reevaluation.due_s() <= now_s:
        for effect in built.reevaluation.step(now_s):
            if isinstance(effect, Reevaluated):
                yield effect.pod.key.name, effect.diagnosis.message


def evaluated(built: Engine, now_s: float = EVERY_S) -> dict[str, str]:
    return dict(steps(built, now_s))


def test_it_is_what_an_attempt_says() -> None:
    built = cluster("p")
    built.node_changed(wire_node("a", [16], unschedulable=True))
    said = evaluated(built)["p"]
    built.queue.try_again("uid-default-p", EVERY_S)
    outcome = decided(built, EVERY_S)
    assert isinstance(outcome, NoFit)
    post_filtered = first_step(built, outcome)
    assert post_filtered is not None
    assert said == post_filtered.diagnosis.message
    assert said.startswith("0/1 nodes are available: 1 node(s) were unschedulable. preemption: ")


def test_nothing_is_asked_while_nothing_has_changed() -> None:
    built = cluster("p", "q")
    assert sorted(evaluated(built)) == ["p", "q"]
    assert evaluated(built, 2 * EVERY_S) == {}
    built.node_changed(wire_node("a", [16], unschedulable=True))
    assert sorted(evaluated(built, 3 * EVERY_S)) == ["p", "q"]


def test_nothing_is_asked_while_nothing_has_changed_but_which_kept_places_are_shown() -> None:
    built = cluster("p")
    kept = pod("kept", 6)
    built.nominations.nominate(kept, "a", None)
    assert list(evaluated(built)) == ["p"]
    version = built.tables.changes.version
    with built.nominations.seen_by(pod("important", 6, priority=1)):
        assert built.tables.changes.version > version
    assert evaluated(built, 2 * EVERY_S) == {}
    built.nominations.remove(kept.key.uid)
    assert list(evaluated(built, 3 * EVERY_S)) == ["p"]


def test_pods_that_are_told_alike_share_the_result_of_a_round() -> None:
    built = cluster("p", "q")
    first = next(steps(built, EVERY_S))
    built.node_changed(wire_node("a", [16], unschedulable=True))
    second = next(steps(built, EVERY_S + 1))
    assert (first[0], second[0], first[1]) == ("p", "q", second[1])
    assert "unschedulable" in evaluated(built, 2 * EVERY_S)["q"]


def test_a_pod_that_was_tried_in_a_round_is_not_told_an_older_result() -> None:
    built = cluster("p", "q")
    assert next(steps(built, EVERY_S))[0] == "p"
    built.node_changed(wire_node("a", [16], unschedulable=True))
    built.queue.try_again("uid-default-q", EVERY_S + 1)
    assert isinstance(decided(built, EVERY_S + 1), NoFit)
    assert evaluated(built, EVERY_S + 2) == {}


def test_a_pod_that_fits_by_now_or_for_which_others_would_go_is_told_nothing() -> None:
    built = cluster("p")
    built.node_changed(wire_node("b", [16]))
    assert evaluated(built) == {}
    assert evaluated(cluster("urgent", priority=1)) == {}


def test_a_pod_that_waits_no_longer_is_told_nothing() -> None:
    built = cluster("p")
    built.pod_gone("uid-default-p")
    assert evaluated(built) == {}


def test_a_pod_is_asked_about_its_own_place_and_others_read_of_it() -> None:
    built = cluster("p", "q", reserve_after="1m")
    now_s = 61.0
    while built.run_hint(now_s) or search(built, now_s) or built.decide(now_s, NOW_NS) is not None:
        pass
    said = evaluated(built, now_s + EVERY_S)
    assert "is reserved for this pod, which has waited 1m" in said["p"]
    assert "this pod" not in said["q"]


def test_the_pod_stays_where_it_is() -> None:
    built = cluster("p")
    version = built.tables.changes.version
    evaluated(built)
    assert (built.queue.state("uid-default-p"), built.tables.changes.version) == (PodState.UNSCHEDULABLE, version)
    assert built.queue.pop(EVERY_S) is None
    built.queue.validate()


def lost(built: Engine, now_s: float = EVERY_S) -> list[str]:
    """Waiting pods whose wake-up was lost."""
    names: list[str] = []
    while built.reevaluation.due_s() <= now_s:
        names += [effect.pod.key.name for effect in built.reevaluation.step(now_s) if isinstance(effect, LostWakeup)]
    return names


def lose_what_has_opened(built: Engine) -> None:
    """Drop cluster events, as a bug of the scheduler would."""
    assert built.tables.take_cluster_events()


def test_a_pod_that_nothing_has_woken_though_it_fits_is_tried_at_once_with_those_alike() -> None:
    built = cluster("p", "q")
    built.node_changed(wire_node("b", [16, 16]))
    lose_what_has_opened(built)
    assert settle(built) == []
    assert lost(built) == ["p", "q"]
    assert settle(built) == ["p", "q"]


def test_a_pod_that_preemption_can_help_though_no_search_is_due_is_searched_for_at_once() -> None:
    built = cluster("urgent", priority=1)
    built.pod_assigned(bound(pod("more", 6, priority=1), "a", on_card(0, 6)))
    assert built.queue.state("uid-default-urgent") is PodState.UNSCHEDULABLE
    while built.run_hint(1.0) or search(built, 1.0):
        pass
    built.node_changed(wire_node("b", [16]))
    built.pod_assigned(bound(pod("small", 16), "b", on_card(0, 16)))
    lose_what_has_opened(built)
    assert not is_searching(built)
    assert lost(built) == ["urgent"]
    outcome = decided(built, EVERY_S)
    assert isinstance(outcome, NoFit)
    answers: list[PostFiltered | None] = [first_step(built, outcome)]
    while is_searching(built):
        answers.append(next_step(built, EVERY_S))
    assert [one.preemption.node for one in answers if one is not None and one.preemption is not None] == ["b"]


def test_a_pod_whose_class_is_to_be_asked_is_not_forgotten() -> None:
    built = cluster("p")
    built.node_changed(wire_node("b", [16]))
    assert lost(built) == []
    assert settle(built) == ["p"]
