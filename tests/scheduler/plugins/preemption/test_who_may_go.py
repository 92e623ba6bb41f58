"""Who of a node is considered, what the victims cost, and when a search does nothing."""

import pytest
from msgspec.structs import replace

from config.protocol import names
from scheduler.core.engine import Engine
from scheduler.core.scheduling_cycle import NoFit
from scheduler.kube.objects import Node
from scheduler.plugins.preemption.default_preemption import NOT_LISTED
from scheduler.plugins.preemption.victims import MOST_VICTIMS, candidate, key_of, lower
from scheduler.pods.pod import Pod
from scheduler.state.cards.booking import CardShare
from scheduler.state.pod_record import PodRecord
from tests.support.builders import bound, engine, pod, wire_node
from tests.support.placing import NOW_NS, on_card
from tests.support.preempting import GUARDED, chosen, guard, sought


def runs(built: Engine, name: str, *, units: int = 0, minute: int = 0, **options: object) -> PodRecord:
    written = on_card(0, units) if units else {}
    placed = replace(bound(pod(name, units, **options), "a", written), started=f"2026-01-01T00:{minute:02d}:00Z")
    built.pod_assigned(placed)
    found = built.tables.record(placed.key.uid)
    assert found is not None
    return found


def considered(built: Engine, waiting: Pod) -> list[str]:
    return [record.pod.key.name for record in lower(waiting, built.tables, 0)]


def large_node() -> Engine:
    built = engine()
    built.node_changed(wire_node("a", [256], pods="1000"))
    return built


def test_of_very_many_pods_those_that_hold_most_are_considered() -> None:
    built = large_node()
    for number in range(MOST_VICTIMS):
        runs(built, f"small-{number}", priority=0, requests={"cpu": "10m", "memory": "1Mi"})
    assert len(considered(built, pod("p", requests={"cpu": "8"}, priority=9))) == MOST_VICTIMS
    runs(built, "much-cpu", priority=5, requests={"cpu": "4"})
    runs(built, "much-memory", priority=5, requests={"cpu": "10m", "memory": "64Gi"})
    runs(built, "a-card", units=8, priority=5)

    found = considered(built, pod("p", requests={"cpu": "8"}, priority=9))
    assert (len(found), found[0]) == (MOST_VICTIMS, "much-cpu")
    assert {"much-memory", "a-card"}.isdisjoint(found)
    assert considered(built, pod("p", requests={"memory": "64Gi"}, priority=9))[0] == "much-memory"
    assert considered(built, pod("p", 16, priority=9))[0] == "a-card"


def test_pods_on_cards_do_not_hide_those_that_hold_what_is_asked() -> None:
    built = large_node()
    for number in range(MOST_VICTIMS):
        runs(built, f"on-card-{number}", units=1, priority=0)
    for number in range(6):
        runs(built, f"large-{number}", priority=0, requests={"cpu": "10"})

    assert chosen(built, pod("p", requests={"cpu": "20"}, priority=9)).victims == ("default/large-4", "default/large-5")


def test_of_those_that_hold_as_much_the_ones_of_the_lowest_priority_are_considered() -> None:
    built = large_node()
    for number in range(MOST_VICTIMS + 2):
        runs(built, f"v{number}", priority=number % 2, requests={"cpu": "10m"})

    found = lower(pod("p", requests={"cpu": "8"}, priority=9), built.tables, 0)

    assert sum(record.pod.priority == 0 for record in found) == MOST_VICTIMS // 2 + 1


def test_what_is_held_is_compared_as_a_share_of_what_is_asked() -> None:
    built = large_node()
    for number in range(MOST_VICTIMS):
        runs(built, f"small-{number}", priority=0, requests={"memory": "100Mi"})
    runs(built, "cpu", priority=5, requests={"cpu": "8"})
    runs(built, "one-unit", units=1, priority=5)

    found = considered(built, pod("p", 16, requests={"cpu": "8", "memory": "1Gi"}, priority=9))

    assert "cpu" in found
    assert "one-unit" not in found


def test_for_cards_those_that_go_already_come_last_and_cost_nothing() -> None:
    built = engine(a=[16])
    going, stays = (runs(built, name, units=4, priority=priority) for name, priority in (("going", 2), ("stays", 1)))
    going.going = True

    assert considered(built, pod("p", 8, priority=9)) == ["stays", "going"]
    assert considered(built, pod("p", requests={"cpu": "8"}, priority=9)) == ["going", "stays"]
    assert candidate(0, (0,), [going], 0).key == key_of([], 0)
    assert candidate(0, (0,), [going, stays], 0).key == key_of([stays], 0)
    assert candidate(0, None, [going], 0).key == key_of([going], 0)


def test_only_those_that_do_not_go_yet_are_removed() -> None:
    built = engine(a=[16])
    for name in ("stays", "going", "leaves"):
        runs(built, name, units=5, priority=1)
    going, leaves = (built.tables.record(f"uid-default-{name}") for name in ("going", "leaves"))
    assert going is not None
    assert leaves is not None
    going.going = True
    built.pod_assigned(replace(leaves.pod, terminating=True))

    preemption = sought(built, pod("p", 16, priority=9)).preemption

    assert preemption is not None
    assert {victim.key.name for victim in preemption.victims} == {"stays", "going", "leaves"}
    assert [victim.key.name for victim in preemption.removed] == ["stays"]


def test_those_that_the_api_server_has_refused_to_remove_are_told_apart_from_those_that_a_budget_protects() -> None:
    built = engine(a=[16])
    guard(built, 0)
    for name in ("guarded-1", "guarded-2"):
        runs(built, name, units=5, priority=1, labels=GUARDED)
    runs(built, "refused", units=5, priority=1).undeletable = True

    preemption = sought(built, pod("p", 16, priority=9)).preemption

    assert preemption is not None
    assert (preemption.violations, preemption.protected) == (3, 2)


@pytest.mark.parametrize(
    ("node", "uuid"),
    [
        pytest.param(wire_node("a", [16, 16]), "GPU-a-1", id="that announces its cards"),
        pytest.param(wire_node("a", more={names.GPU_MEM: "32", names.GPU_COUNT: "2"}), "", id="that tells totals only"),
    ],
)
def test_cards_are_named_by_uuid_on_a_node(node: Node, uuid: str) -> None:
    built = engine()
    built.node_changed(node)
    for card, priority in ((0, 20), (1, 1)):
        running = pod(f"on-{card}", 16, priority=priority)
        built.pod_assigned(bound(running, "a", on_card(card, 16)))

    preemption = sought(built, pod("p", 12, priority=9)).preemption

    assert preemption is not None
    assert preemption.cards == (CardShare(1, uuid, 12),)


def test_nobody_goes_before_the_budgets_are_known() -> None:
    built = engine(a=[16])
    runs(built, "low", units=16, priority=1)
    built.pod_waiting(pod("p", 16, priority=9), 0.0)
    decision = built.decide(0.0, NOW_NS)
    assert decision is not None
    assert isinstance(decision.outcome, NoFit)

    found = built.post_filter(decision.outcome, 0.0)

    assert found is not None
    assert found.diagnosis.tail == f"preemption: {NOT_LISTED}"
