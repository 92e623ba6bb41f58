"""Which pods go, and from which node: one case each."""

from typing import Any

import pytest
from msgspec.structs import replace

from config.protocol import names
from scheduler.core.preemption_searches import PostFiltered
from scheduler.core.scheduling_cycle import NoFit
from scheduler.kube.port import CLAIMS, VOLUMES
from scheduler.plugins.preemption.default_preemption import TERMINATING
from scheduler.state.bookings import Bookings
from scheduler.state.cards.booking import CardShare
from scheduler.state.pod_record import PodRecord
from tests.support.builders import engine, pod, wire_node
from tests.support.placing import NOW_NS
from tests.support.preempting import chosen, runs, sought
from tests.support.volumes import bound as of_volume
from tests.support.volumes import claim, show, volume, with_claims


def victims(of: PostFiltered) -> list[str]:
    return [] if of.preemption is None else [victim.key.name for victim in of.preemption.victims]


def test_the_card_with_the_least_important_pods_is_freed() -> None:
    built = engine(a=[16, 16])
    for name, card, priority in (("v0", 0, 5), ("v1", 0, 1), ("v2", 1, 2), ("v3", 1, 3)):
        runs(built, name, "a", card=card, units=8, priority=priority)

    found = sought(built, pod("p", 16, priority=10))

    assert victims(found) == ["v3", "v2"]
    assert found.preemption is not None
    assert [share.index for share in found.preemption.cards] == [1]


def test_who_does_not_stand_in_the_way_stays() -> None:
    built = engine(a=[16])
    for name, units in (("v0", 4), ("v1", 8), ("v2", 4)):
        runs(built, name, "a", units=units)

    assert victims(sought(built, pod("p", 4, priority=10))) == ["v2"]


def test_a_card_that_a_rule_rejects_hides_no_cheaper_one_of_its_node() -> None:
    built = engine(a=[16, 16, 16, 16], b=[16])
    runs(built, "apart", "a", card=0, units=1, priority=200, labels={"app": "x"})
    for card, priority in enumerate((1, 5, 20, 30)):
        runs(built, f"v{priority}", "a", card=card, units=12, priority=priority)
    runs(built, "v10", "b", units=12, priority=10)

    waiting = pod("p", 12, priority=100, annotations={names.CARD_ANTI_AFFINITY: "app=x"})

    assert victims(sought(built, waiting)) == ["v5"]


def test_several_cards_are_freed_for_a_pod_that_asks_several() -> None:
    built = engine(a=[16, 16, 16])
    for name, card, priority in (("v0", 0, 5), ("v1", 1, 1), ("v2", 2, 2)):
        runs(built, name, "a", card=card, units=16, priority=priority)

    waiting = pod("p", 20, priority=10, annotations={"aliyun.com/gpu-count": "2"})

    assert victims(sought(built, waiting)) == ["v2", "v1"]


def test_pods_that_hold_cpu_go_for_a_pod_that_lacks_cpu() -> None:
    built = engine(a=[16], b=[16])
    for name, node, cpu, priority in (("v0", "a", "40", 3), ("v1", "a", "20", 1), ("v2", "b", "60", 2)):
        runs(built, name, node, requests={"cpu": cpu}, priority=priority)

    assert victims(sought(built, pod("p", requests={"cpu": "20"}, priority=10))) == ["v1"]


def test_a_node_that_goes_during_the_search_is_left_out() -> None:
    built = engine(a=[16], b=[16], c=[16], d=[16])
    apart = {
        "requiredDuringSchedulingIgnoredDuringExecution": [
            {"labelSelector": {"matchLabels": {"app": "x"}}, "topologyKey": "kubernetes.io/hostname"}
        ]
    }
    for number, node in enumerate("abcd"):
        runs(built, f"v-{node}", node, units=16, priority=1 + number)
        if node != "d":
            runs(built, f"x-{node}", node, priority=50, labels={"app": "x"})
    built.budgets_listed()
    built.pod_waiting(pod("p", 16, priority=10, affinity={"podAntiAffinity": apart}), 0.0)
    decision = built.decide(0.0, NOW_NS)
    assert decision is not None
    assert isinstance(decision.outcome, NoFit)
    assert built.post_filter(decision.outcome, 0.0) is None

    # The row of b is another node's by then, and c has none.
    built.node_gone("b")
    built.node_changed(wire_node("e"))
    built.node_gone("c")
    found = built.post_filter_next(0.0)
    while found is None:
        found = built.post_filter_next(0.0)

    assert victims(found) == ["v-d"]


MIRROR = {"kubernetes.io/config.mirror": "f" * 32}


@pytest.mark.parametrize(
    "others", [pytest.param({}, id="small"), pytest.param({f"a{n}": "x" for n in range(300)}, id="over a budget")]
)
def test_a_mirror_pod_is_never_a_victim(others: dict[str, str]) -> None:
    built = engine(a=[16], b=[16])
    built.pod_assigned(pod("static", node="a", requests={"cpu": "60"}, annotations={**MIRROR, **others}))
    runs(built, "dear", "b", requests={"cpu": "60"}, priority=5)

    assert victims(sought(built, pod("p", requests={"cpu": "20"}, priority=10))) == ["dear"]


def test_a_node_with_nothing_but_mirror_pods_has_no_victims() -> None:
    built = engine(a=[16])
    runs(built, "static", "a", units=16, priority=0, annotations=MIRROR)

    found = sought(built, pod("p", 16, priority=10))

    assert found.preemption is None
    assert found.diagnosis.message.endswith("1 No preemption victims found for incoming pod.")


def test_pods_of_equal_priority_stay() -> None:
    built = engine(a=[16])
    runs(built, "v", "a", units=16, priority=10)

    found = sought(built, pod("p", 16, priority=10))

    assert victims(found) == []
    assert found.diagnosis.tail == (
        "preemption: 0/1 nodes are available: 1 No preemption victims found for incoming pod."
    )


def test_what_no_pod_that_leaves_can_change_is_not_tried() -> None:
    built = engine(a=[16], b=[32])
    runs(built, "v", "a", units=16)
    runs(built, "w", "b", units=32, priority=20)

    found = sought(built, pod("p", 20, priority=10))

    assert found.diagnosis.tail == (
        "preemption: 0/2 nodes are available: 1 No preemption victims found for incoming pod, "
        "1 Preemption is not helpful for scheduling."
    )


@pytest.mark.parametrize(
    ("first", "second", "expected"),
    [
        pytest.param({"priority": 2}, {"priority": 1}, "b", id="the lower highest priority"),
        pytest.param({"minute": 1}, {"minute": 2}, "b", id="the latest start"),
        pytest.param({"minute": 2}, {"minute": 1}, "a", id="the latest start, the other way"),
        pytest.param({}, {}, "a", id="by name"),
    ],
)
def test_the_node_is_chosen_by_its_victims(first: dict[str, int], second: dict[str, int], expected: str) -> None:
    built = engine(a=[16], b=[16])
    runs(built, "v", "a", units=16, **first)
    runs(built, "w", "b", units=16, **second)

    found = sought(built, pod("p", 16, priority=10))

    assert found.preemption is not None
    assert found.preemption.node == expected


def test_of_equal_nodes_one_where_nobody_else_waits_is_chosen() -> None:
    built = engine(a=[16, 16], b=[16, 16])
    for node in "ab":
        for card in (0, 1):
            runs(built, f"{node}{card}", node, card=card, units=16)

    found = [sought(built, pod(name, 16, priority=10)) for name in ("p", "q")]

    assert [victims(each) for each in found] == [["a0"], ["b0"]]


def test_company_that_would_have_to_be_counted_on_is_no_help() -> None:
    built = engine(a=[16])
    runs(built, "company", "a", labels={"app": "x"}, requests={"cpu": "1"})
    runs(built, "large", "a", requests={"cpu": "60"})
    beside = {"labelSelector": {"matchLabels": {"app": "x"}}, "topologyKey": "kubernetes.io/hostname"}
    terms = {"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [beside]}}

    # kube-scheduler looks at the node without any pod of lower priority first.
    found = sought(built, pod("p", requests={"cpu": "20"}, priority=10, affinity=terms))

    assert victims(found) == []
    assert found.diagnosis.tail == ("preemption: 0/1 nodes are available: 1 node(s) didn't match pod affinity rules.")


@pytest.mark.parametrize(
    ("cordoned", "expected"),
    [pytest.param(False, [], id="it waits for its victims"), pytest.param(True, ["low"], id="its node is cordoned")],
)
def test_a_pod_waits_for_its_victims_as_long_as_their_node_can_take_it(*, cordoned: bool, expected: list[str]) -> None:
    built = engine(a=[16], b=[16])
    going = replace(runs(built, "going", "a", units=16), terminating=True, preempted=True)
    built.pod_assigned(going)
    runs(built, "low", "b", units=16, priority=2)
    waiting = pod("p", 16, priority=10)
    built.nominations.nominate(waiting, "a", (CardShare(0, "GPU-a-0", 16),), [going.key.uid])
    built.node_changed(wire_node("a", [16], unschedulable=cordoned))

    found = sought(built, waiting)

    assert victims(found) == expected
    assert cordoned or found.diagnosis.tail == f"preemption: {TERMINATING}"


def test_what_is_lacking_besides_plain_amounts_is_told() -> None:
    built = engine()
    built.node_changed(wire_node("a", [16], more={"example.com/fpga": "2"}))
    asked = {"cpu": "40", "example.com/fpga": "2"}
    runs(built, "high", "a", priority=20, requests={"cpu": "40", "example.com/fpga": "1"})
    runs(built, "low", "a", requests={"cpu": "1"})

    found = sought(built, pod("p", requests=asked, priority=10))

    assert found.diagnosis.tail == (
        "preemption: 0/1 nodes are available: 1 Insufficient cpu, 1 Insufficient example.com/fpga."
    )


def test_a_node_that_a_volume_rules_out_is_told_of_by_that() -> None:
    built = engine(a=[16])
    of: dict[str, Any] = {"claimRef": {"namespace": "default", "name": "data"}}
    show(built.tables, VOLUMES, volume("pv", on=("elsewhere",), **of))
    show(built.tables, CLAIMS, of_volume(claim("data"), "pv"))
    runs(built, "low", "a", requests={"cpu": "60"})
    waiting = pod("p", requests={"cpu": "20"}, priority=10, **with_claims("data"))

    assert sought(built, waiting).diagnosis.tail == (
        "preemption: 0/1 nodes are available: 1 node(s) didn't match PersistentVolume's node affinity."
    )


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
    built.pod_waiting(pod("p", 12, priority=10), 0.0)
    decision = built.decide(0.0, NOW_NS)
    assert decision is not None
    assert isinstance(decision.outcome, NoFit)
    found = built.post_filter(decision.outcome, 0.0)
    while found is None:
        steps.append(0)
        found = built.post_filter_next(0.0)

    assert len(steps) > 2
    assert max(steps) <= 2 * 10
