"""With many nominations, a pod of higher priority is decided without the conflicting ones: as without all of them."""

import random
from collections.abc import Sequence
from typing import Any, NamedTuple

import pytest

from scheduler.core.engine import Engine
from scheduler.core.scheduling_cycle import SchedulingCycle
from scheduler.framework.cycle_state import CycleState
from scheduler.framework.plugin import FilterPlugin, Rejection
from scheduler.framework.preemption import Preemption
from scheduler.framework.profile import Profile
from scheduler.framework.runtime import Runtime
from scheduler.plugins.node.node_unschedulable import NodeUnschedulable
from scheduler.pods.pod import Pod
from scheduler.state.cards.booking import CardShare
from scheduler.state.changes import Change
from scheduler.state.columns.arrays import Rows
from scheduler.state.tables import Tables
from scheduler.tools.explain.reading import answer_of
from tests.support.builders import bound, cluster, engine, pod, wire_node
from tests.support.placing import on_card

NODES = ("a", "b", "c", "d")
ZONE = "topology.kubernetes.io/zone"
APART = {
    "podAntiAffinity": {
        "requiredDuringSchedulingIgnoredDuringExecution": [
            {"labelSelector": {"matchLabels": {"app": "x"}}, "topologyKey": ZONE}
        ]
    }
}
PORT = {"containers": [{"name": "c", "ports": [{"containerPort": 80, "hostPort": 80}]}]}
SHAPES: tuple[dict[str, Any], ...] = (
    {"gpu_mem": 16},
    {"gpu_mem": 8, "requests": {"cpu": "1"}},
    {"gpu_mem": 4, "annotations": {"gpushare/exclusive": "true"}},
    {"gpu_mem": 32, "annotations": {"aliyun.com/gpu-count": "2"}},
    {"requests": {"cpu": "2"}},
    {"requests": {"cpu": "1m"}},
    {"requests": {"cpu": "1"}, "labels": {"app": "x"}, "affinity": APART},
    {"requests": {"cpu": "1m"}, "affinity": APART},
    {"requests": {"cpu": "1m"}, "labels": {"app": "x"}},
    {"gpu_mem": 16, "labels": {"app": "x"}, "affinity": APART},
    PORT,
)


class Answer(NamedTuple):
    """Result for a pod: the nodes that take it; otherwise node, cards and victims of its preemption."""

    feasible: tuple[str, ...]
    preemption: tuple[str, tuple[CardShare, ...], tuple[str, ...]] | None


def takes(built: Engine, probe: Pod, node: str) -> bool:
    with built.queries.without(probe, node) as asked:
        return asked.fits()


def answer(built: Engine, probe: Pod) -> Answer:
    feasible = tuple(node for node in NODES if takes(built, probe, node))
    if feasible:
        return Answer(feasible, None)
    found = answer_of(built.queries.preemption_for(probe))
    if not isinstance(found, Preemption):
        return Answer((), None)
    return Answer((), (found.node, found.cards, tuple(victim.key.name for victim in found.victims)))


def cluster_of(seed: int, most_moved: int) -> tuple[Engine, random.Random]:
    rng, built = random.Random(seed), engine()  # noqa: S311 - no secret
    built.nominations.most_moved = most_moved
    built.budgets_listed()
    for number, name in enumerate(NODES):
        built.node_changed(wire_node(name, [16, 16], cpu="4", labels={ZONE: f"z{number % 2}"}))
    for number in range(14):
        node, card = rng.choice(NODES), rng.randrange(2)
        waiting = pod(f"r{number}", rng.choice((4, 8)), priority=rng.randrange(4), requests={"cpu": "500m"})
        built.pod_assigned(bound(waiting, node, on_card(card, waiting.template.gpu_units)))
    for number in range(8):
        shape, node, priority = rng.choice(SHAPES), rng.choice(NODES), rng.randrange(1, 5)
        waiting = pod(f"k{number}", **shape, priority=priority)
        cards: tuple[CardShare, ...] = ()
        if (request := waiting.template.gpu_request) is not None:
            on = rng.sample(range(2), request.cards)
            cards = tuple(CardShare(card, f"GPU-{node}-{card}", request.units_per_card) for card in on)
        built.nominations.nominate(waiting, node, cards)
    return built, rng


@pytest.mark.parametrize("seed", range(40))
def test_what_is_shown_of_the_others_makes_no_difference(seed: int) -> None:
    few, rng = cluster_of(seed, 0)
    all_of_them, _ = cluster_of(seed, 10_000)
    for number in range(12):
        probe = pod(f"p{number}", **rng.choice(SHAPES), priority=rng.randrange(7))
        assert answer(few, probe) == answer(all_of_them, probe), probe


class AnotherRule(FilterPlugin):
    """A rule of another package."""

    name = "AnotherRule"
    depends = Change.PODS

    def filter(self, pod: Pod, tables: Tables, state: CycleState, rows: Rows) -> Sequence[Rejection]:  # noqa: ARG002 - as asked
        return ()


def test_beside_a_rule_of_somebody_else_all_places_are_moved() -> None:
    tables = cluster(a=[16])
    for rule, expected in ((NodeUnschedulable(), True), (AnotherRule(), False)):
        cycle = SchedulingCycle(Runtime(Profile(filter=(rule,)), tables))
        assert (cycle.least_of_row(pod("p")) is not None) is expected


def test_only_places_in_the_way_are_moved() -> None:
    built = engine()
    for number in range(100):
        name = f"n{number:03}"
        built.node_changed(wire_node(name, [16]))
        built.pod_assigned(bound(pod(f"low-{number}", 16), name, on_card(0, 16)))
        built.nominations.nominate(pod(f"kept-{number}", 16, priority=5), name, (CardShare(0, f"GPU-{name}-0", 16),))
    # Nominations whose victim is gone.
    built.pod_gone("uid-default-low-7")
    built.nominations.most_moved = 10
    before = built.tables.changes.version

    with built.queries.without(pod("urgent", 16, priority=9), "n007") as asked:
        assert asked.fits()
        moved = built.tables.changes.since(before)

    assert moved is not None
    assert moved.rows == [built.tables.row_of["n007"]]
