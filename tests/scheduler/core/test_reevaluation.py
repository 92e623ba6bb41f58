"""Messages of unschedulable pods after re-evaluation."""

from collections.abc import Iterator

from config.settings.scheduler import SchedulerConfiguration
from scheduler.core.build import build_engine
from scheduler.core.engine import Engine
from scheduler.core.preemption_searches import Help, PostFiltered
from scheduler.core.reevaluation import Reevaluated
from scheduler.core.scheduling_cycle import NoFit
from scheduler.queue.entry import PodState
from scheduler.queue.longest_waiting import EVERY_S
from tests.support.builders import bound, pod, wire_node
from tests.support.placing import NOW_NS, decided, on_card, settle
from tests.support.preempting import no_fit


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
    while (evaluated := built.reevaluation.step(now_s)) is not None:
        if evaluated.diagnosis is not None:
            yield evaluated.pod.key.name, evaluated.diagnosis.message


def evaluated(built: Engine, now_s: float = EVERY_S) -> dict[str, str]:
    return dict(steps(built, now_s))


def test_it_is_what_an_attempt_says() -> None:
    built = cluster("p")
    built.node_changed(wire_node("a", [16], unschedulable=True))
    said = evaluated(built)["p"]
    built.queue.try_again("uid-default-p", EVERY_S)
    outcome = decided(built, EVERY_S)
    assert isinstance(outcome, NoFit)
    post_filtered = built.post_filter(outcome, EVERY_S)
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


def test_pods_that_are_told_alike_share_an_answer_that_is_much_younger_than_theirs() -> None:
    built = cluster("p", "q")
    first = next(steps(built, EVERY_S))
    built.node_changed(wire_node("a", [16], unschedulable=True))
    second = next(steps(built, EVERY_S + 1))
    assert (first[0], second[0], first[1]) == ("p", "q", second[1])
    assert "unschedulable" in evaluated(built, 2 * EVERY_S + 1)["q"]


def test_an_answer_that_is_not_much_younger_is_not_shared() -> None:
    built = cluster("p", "q")
    assert next(steps(built, EVERY_S))[0] == "p"
    built.node_changed(wire_node("a", [16], unschedulable=True))
    assert "unschedulable" in evaluated(built, 3 * EVERY_S)["q"]


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
    while built.run_hint(now_s) or built.any_search or built.decide(now_s, NOW_NS) is not None:
        if built.any_search:
            built.post_filter_next(now_s)
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


def found(built: Engine, now_s: float = EVERY_S) -> list[Reevaluated]:
    """Waiting pods that an attempt would help."""
    answers = iter(lambda: built.reevaluation.step(now_s), None)
    return [evaluated for evaluated in answers if evaluated.help is not None]


def lose_what_has_opened(built: Engine) -> None:
    """Drop cluster events, as a bug of the scheduler would."""
    assert built.tables.take_cluster_events()


def test_a_pod_that_nothing_has_woken_though_it_fits_is_tried_at_once_with_those_alike() -> None:
    built = cluster("p", "q")
    built.node_changed(wire_node("b", [16, 16]))
    lose_what_has_opened(built)
    assert settle(built) == []
    evaluated = found(built)
    assert [one.help for one in evaluated] == [Help.FIT, Help.FIT]
    assert built.rescue(evaluated[0], EVERY_S)
    # Its class has a hint already.
    assert not built.rescue(evaluated[1], EVERY_S)
    assert settle(built) == ["p", "q"]


def test_a_pod_that_preemption_can_help_though_no_search_is_due_is_searched_for_at_once() -> None:
    built = cluster("urgent", priority=1)
    built.pod_assigned(bound(pod("more", 6, priority=1), "a", on_card(0, 6)))
    decided = built.queue.state("uid-default-urgent")
    assert decided is PodState.UNSCHEDULABLE
    while built.run_hint(1.0) or built.any_search:
        built.post_filter_next(1.0)
    built.node_changed(wire_node("b", [16]))
    built.pod_assigned(bound(pod("small", 16), "b", on_card(0, 16)))
    lose_what_has_opened(built)
    assert not built.any_search
    (evaluated,) = found(built)
    assert evaluated.help is Help.PREEMPTION
    assert built.rescue(evaluated, EVERY_S)
    assert not built.rescue(evaluated, EVERY_S)
    answers: list[PostFiltered | None] = []
    while built.any_search:
        answers.append(built.post_filter_next(EVERY_S))
    assert [one.preemption.node for one in answers if one is not None and one.preemption is not None] == ["b"]


def test_a_pod_whose_class_is_to_be_asked_is_not_forgotten() -> None:
    built = cluster("p")
    built.node_changed(wire_node("b", [16]))
    (evaluated,) = found(built)
    assert not built.rescue(evaluated, EVERY_S)
    assert settle(built) == ["p"]
