"""Moves that lower the fragmentation: each of them does, and there are no more than are allowed."""

import pytest

from scheduler.core.engine import Engine
from scheduler.kube.objects import OwnerReference
from scheduler.state.ledger import of_tables
from scheduler.state.packing.fragmentation import measured
from scheduler.tools.defragment.movable import Movable
from scheduler.tools.defragment.planning import lowered
from tests.scheduler.tools.defragment.rebalancing_site import owners
from tests.support.builders import bound, engine, pod
from tests.support.placing import on_card


def half_used(cards: int) -> Engine:
    """As many nodes of one card with half of it free, after many pods came that ask all of one."""
    built = engine(**{f"n{number}": [8] for number in range(cards)})
    built.budgets_listed()
    for number in range(40):
        built.pod_seen(pod(f"usual-{number}", 8), 0.0)
    for number in range(cards):
        built.pod_assigned(bound(pod(f"p{number}", 4), f"n{number}", on_card(0, 4)))
    return built


def test_each_move_lowers_it_and_the_last_one_leaves_nothing_to_do() -> None:
    built = half_used(4)
    before = of_tables(built.tables)
    found = lowered(built, Movable(built, owners(built), 0), 10)
    assert of_tables(built.tables) == before
    assert len(found.moves) == 2
    assert min(found.gains) >= 1.0
    assert found.before == measured(built.tables, built.tables.target.usual()).total()
    assert found.after.unusable == pytest.approx(found.before.unusable - sum(found.gains))
    assert found.after.free == found.before.free


def test_at_most_as_many_as_are_allowed() -> None:
    built = half_used(6)
    assert len(lowered(built, Movable(built, owners(built), 0), 1).moves) == 1


def test_who_has_just_been_moved_stays() -> None:
    built = half_used(4)
    uids = {record.pod.key.name: record.pod.key.uid for record in built.tables.records()}
    stay = [uids[name] for name in ("p0", "p1", "p2")]
    found = lowered(built, Movable(built, owners(built), 0, stay), 10)
    assert [one.record.pod.key.name for one in found.moves] == ["p3"]


@pytest.mark.parametrize("kind", ["DaemonSet", "Node"])
def test_pods_that_may_not_be_moved_stay(kind: str) -> None:
    built = half_used(4)
    of = OwnerReference("o", kind, "o", controller=True)
    assert lowered(built, Movable(built, owners(built, of), 0), 10).moves == ()
