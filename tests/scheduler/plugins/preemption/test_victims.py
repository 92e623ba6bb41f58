"""Which pods may go, what they cost, and when a search does nothing.

Which of them are the cheapest: `test_cheapest_victims.py`, and `tests/differential` without cards.
"""

import pytest
from msgspec.structs import replace

from config.protocol import names
from scheduler.core.engine import Engine
from scheduler.kube.objects import Node
from scheduler.plugins.preemption.default_preemption import NOT_LISTED
from scheduler.plugins.preemption.victims import MOST_VICTIMS, candidate, key_of, lower
from scheduler.pods.pod import Pod
from scheduler.state.bookings import Bookings
from scheduler.state.cards.booking import CardShare
from scheduler.state.pod_record import PodRecord
from tests.support.builders import away_from, bound, engine, pod, wire_node
from tests.support.placing import on_card
from tests.support.preempting import (
    GUARDED,
    PostFiltered,
    chosen,
    first_step,
    guard,
    next_step,
    no_fit,
    post_filtered,
    runs,
    search_ended,
    sought,
)


def victims(of: PostFiltered) -> list[str]:
    return [] if of.preemption is None else [victim.key.name for victim in of.preemption.victims]


def test_a_card_that_a_rule_rejects_hides_no_cheaper_one_of_its_node() -> None:
    built = engine(a=[16, 16, 16, 16], b=[16])
    runs(built, "apart", "a", card=0, units=1, priority=200, labels={"app": "x"})
    for card, priority in enumerate((1, 5, 20, 30)):
        runs(built, f"v{priority}", "a", card=card, units=12, priority=priority)
    runs(built, "v10", "b", units=12, priority=10)

    waiting = pod("p", 12, priority=100, annotations={names.CARD_ANTI_AFFINITY: "app=x"})

    assert victims(sought(built, waiting)) == ["v5"]


def test_a_node_that_goes_during_the_search_is_left_out() -> None:
    built = engine(a=[16], b=[16], c=[16], d=[16])
    for number, node in enumerate("abcd"):
        runs(built, f"v-{node}", node, units=16, priority=1 + number)
        if node != "d":
            runs(built, f"x-{node}", node, priority=50, labels={"app": "x"})
    built.budgets_listed()
    undecided = no_fit(built, pod("p", 16, priority=10, affinity=away_from("x")))
    assert first_step(built, undecided) is None

    # The row of b is another node's by then, and c has none.
    built.node_gone("b")
    built.node_changed(wire_node("e"))
    built.node_gone("c")
    found = search_ended(built, None)

    assert victims(found) == ["v-d"]


MIRROR = {"kubernetes.io/config.mirror": "f" * 32}


@pytest.mark.parametrize(
    "others", [pytest.param({}, id="small"), pytest.param({f"a{n}": "x" for n in range(300)}, id="over a budget")]
)
def test_a_mirror_pod_is_never_a_victim(others: dict[str, str]) -> None:
    built = engine(a=[16])
    built.pod_assigned(pod("static", node="a", requests={"cpu": "60"}, annotations={**MIRROR, **others}))
    alone = sought(built, pod("p", requests={"cpu": "20"}, priority=10))
    assert alone.diagnosis.message.endswith("1 No preemption victims found for incoming pod.")

    built.node_changed(wire_node("b"))
    runs(built, "dear", "b", requests={"cpu": "60"}, priority=5)
    assert victims(sought(built, pod("q", requests={"cpu": "20"}, priority=10))) == ["dear"]


def test_what_no_pod_that_leaves_can_change_is_not_tried() -> None:
    built = engine(a=[16], b=[32])
    runs(built, "v", "a", units=16)
    runs(built, "w", "b", units=32, priority=20)

    found = sought(built, pod("p", 20, priority=10))

    assert found.diagnosis.tail == (
        "preemption: 0/2 nodes are available: 1 No preemption victims found for incoming pod, "
        "1 Preemption is not helpful for scheduling."
    )


def test_of_equal_nodes_one_where_nobody_else_waits_is_chosen() -> None:
    built = engine(a=[16, 16], b=[16, 16])
    for node in "ab":
        for card in (0, 1):
            runs(built, f"{node}{card}", node, card=card, units=16)

    found = [sought(built, pod(name, 16, priority=10)) for name in ("p", "q")]

    assert [victims(each) for each in found] == [["a0"], ["b0"]]


def test_a_node_full_of_small_pods_can_be_freed_of_those_that_matter() -> None:
    built = engine()
    built.node_changed(wire_node("a", [16], pods="1000"))
    for number in range(300):
        runs(built, f"small-{number}", "a", priority=0, requests={"memory": "1Mi"})
    runs(built, "large", "a", priority=3, requests={"cpu": "60"})

    assert chosen(built, pod("p", requests={"cpu": "20"}, priority=10)).victims == ("default/large",)


def test_a_step_looks_at_a_bounded_number_of_pods(monkeypatch: pytest.MonkeyPatch) -> None:
    built = engine(**{f"n{number:03}": [16] for number in range(60)})
    for number in range(60):
        for card in range(10):
            runs(built, f"v{number}-{card}", f"n{number:03}", units=1, priority=card % 3)
    steps = [0]
    lift = Bookings.lift

    def counted(tables: Bookings, record: PodRecord) -> None:
        steps[-1] += 1
        lift(tables, record)

    monkeypatch.setattr(Bookings, "lift", counted)
    built.budgets_listed()
    found = first_step(built, no_fit(built, pod("p", 12, priority=10)))
    while found is None:
        steps.append(0)
        found = next_step(built)

    assert len(steps) > 2
    assert max(steps) <= 2 * 10


def considered(built: Engine, waiting: Pod) -> list[str]:
    return [record.pod.key.name for record in lower(waiting, built.tables, 0)]


def large_node() -> Engine:
    built = engine()
    built.node_changed(wire_node("a", [256], pods="1000"))
    return built


def test_of_very_many_pods_those_that_hold_most_are_considered() -> None:
    built = large_node()
    for number in range(MOST_VICTIMS):
        runs(built, f"small-{number}", "a", priority=0, requests={"cpu": "10m", "memory": "1Mi"})
    assert len(considered(built, pod("p", requests={"cpu": "8"}, priority=9))) == MOST_VICTIMS
    runs(built, "much-cpu", "a", priority=5, requests={"cpu": "4"})
    runs(built, "much-memory", "a", priority=5, requests={"cpu": "10m", "memory": "64Gi"})
    runs(built, "a-card", "a", units=8, priority=5)

    found = considered(built, pod("p", requests={"cpu": "8"}, priority=9))
    assert (len(found), found[0]) == (MOST_VICTIMS, "much-cpu")
    assert {"much-memory", "a-card"}.isdisjoint(found)
    assert considered(built, pod("p", requests={"memory": "64Gi"}, priority=9))[0] == "much-memory"
    assert considered(built, pod("p", 16, priority=9))[0] == "a-card"


def test_pods_on_cards_do_not_hide_those_that_hold_what_is_asked() -> None:
    built = large_node()
    for number in range(MOST_VICTIMS):
        runs(built, f"on-card-{number}", "a", units=1, priority=0)
    for number in range(6):
        runs(built, f"large-{number}", "a", priority=0, requests={"cpu": "10"})

    assert chosen(built, pod("p", requests={"cpu": "20"}, priority=9)).victims == ("default/large-4", "default/large-5")


def test_of_those_that_hold_as_much_the_ones_of_the_lowest_priority_are_considered() -> None:
    built = large_node()
    for number in range(MOST_VICTIMS + 2):
        runs(built, f"v{number}", "a", priority=number % 2, requests={"cpu": "10m"})

    found = lower(pod("p", requests={"cpu": "8"}, priority=9), built.tables, 0)

    assert sum(record.pod.priority == 0 for record in found) == MOST_VICTIMS // 2 + 1


def test_what_is_held_is_compared_as_a_share_of_what_is_asked() -> None:
    built = large_node()
    for number in range(MOST_VICTIMS):
        runs(built, f"small-{number}", "a", priority=0, requests={"memory": "100Mi"})
    runs(built, "cpu", "a", priority=5, requests={"cpu": "8"})
    runs(built, "one-unit", "a", units=1, priority=5)

    found = considered(built, pod("p", 16, requests={"cpu": "8", "memory": "1Gi"}, priority=9))

    assert "cpu" in found
    assert "one-unit" not in found


def test_for_cards_those_that_go_already_come_last_and_cost_nothing() -> None:
    built = engine(a=[16])
    going, stays = (runs(built, f"of-{priority}", "a", units=4, priority=priority) for priority in (2, 1))
    going.going = True

    assert considered(built, pod("p", 8, priority=9)) == ["of-1", "of-2"]
    assert considered(built, pod("p", requests={"cpu": "8"}, priority=9)) == ["of-2", "of-1"]
    assert candidate(0, (0,), [going], 0).key == key_of([], 0)
    assert candidate(0, (0,), [going, stays], 0).key == key_of([stays], 0)
    assert candidate(0, None, [going], 0).key == key_of([going], 0)


def test_only_those_that_do_not_go_yet_are_removed() -> None:
    built = engine(a=[16])
    for name in ("stays", "going", "leaves"):
        runs(built, name, "a", units=5, priority=1)
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
        runs(built, name, "a", units=5, priority=1, labels=GUARDED)
    runs(built, "refused", "a", units=5, priority=1).undeletable = True

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
    runs(built, "low", "a", units=16, priority=1)

    found = post_filtered(built, no_fit(built, pod("p", 16, priority=9)))

    assert found.diagnosis.tail == f"preemption: {NOT_LISTED}"
