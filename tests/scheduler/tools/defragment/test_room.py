"""Moves that make room for one pod or lower the fragmentation: the fewest, and nothing of a plan stays."""

import random
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import combinations
from typing import Any

import msgspec
import pytest

from scheduler.core.engine import Engine
from scheduler.kube import objects
from scheduler.kube.objects import OwnerReference
from scheduler.plugins.fragmentation.measure import fragmentation_of
from scheduler.pods.pod import Pod
from scheduler.state.ledger import of_tables
from scheduler.tools.defragment.movable import Movable, Moved, in_turn, successor
from scheduler.tools.defragment.planning import RoomFound, lowered, room_for
from tests.support.builders import bound, engine, pod
from tests.support.placing import on_card

WEB = OwnerReference("uid-of-web", "ReplicaSet", "web", controller=True)
_CARD = 8


@dataclass(frozen=True)
class Small:
    """nodes: units of their cards. pods: name -> (node, card, units). units, cards: of the pod that asks."""

    nodes: dict[str, list[int]]
    pods: dict[str, tuple[str, int, int]]
    units: int
    cards: int = 1

    def engine(self) -> Engine:
        built = engine(**self.nodes)
        built.budgets_listed()
        for name, (node, card, units) in self.pods.items():
            built.pod_assigned(bound(pod(name, units, labels={"app": name}), node, on_card(card, units)))
        return built

    def asks(self) -> Pod:
        labels = {"aliyun.com/gpu-count": str(self.cards)} if self.cards > 1 else {}
        return pod("asks", self.units * self.cards, labels=labels)


def owners(built: Engine, of: OwnerReference = WEB) -> Mapping[str, OwnerReference]:
    """All pods are the owner's."""
    return {record.pod.key.uid: of for record in built.tables.records()}


def room(built: Engine, asks: Pod, most: int = 5, max_priority: int = 0) -> RoomFound | None:
    """The plan, where every pod has an owner."""
    return room_for(built, Movable(built, owners(built), max_priority), asks, most)


def told(found: RoomFound | None) -> list[str] | None:
    """`pod node/card -> node/card` of each move."""
    if found is None:
        return None
    return [
        f"{one.record.pod.key.name} {one.record.node}/{_indexes(one.cards)} -> "
        f"{one.place.node}/{_indexes(share.index for share in one.place.cards)}"
        for one in found.moves
    ]


def _indexes(of: Mapping[int, int] | Iterator[int]) -> str:
    return ",".join(map(str, of))


def small_clusters(seed: int) -> Small:
    """2 to 4 nodes of 1 to 4 cards of 8 units, up to 8 pods of one card, and what is asked."""
    rng = random.Random(seed)  # noqa: S311 - the same for the same seed
    nodes = {name: [_CARD] * rng.choice((1, 2, 2, 4)) for name in "abcd"[: rng.randrange(2, 5)]}
    free = {(name, card): _CARD for name, cards in nodes.items() for card in range(len(cards))}
    pods = {}
    for number in range(rng.randrange(3, 9)):
        units = rng.choice((1, 2, 3, 4, 5, 6, 8))
        if places := [place for place in free if free[place] >= units]:
            place = rng.choice(places)
            free[place] -= units
            pods[f"p{number}"] = (*place, units)
    return Small(nodes, pods, *rng.choice(((4, 1), (6, 1), (8, 1), (8, 2), (4, 2), (6, 2), (8, 4))))


def fewest_moves(of: Small, most: int) -> int | None:
    """By trying every sequence of moves, on whatever cards the pod is to get; None where `most` moves are not enough.

    No pod is moved twice, nor to the room that the pod is to get: that is kept free from the first move on.
    """
    found = [
        fewest
        for node, sizes in of.nodes.items()
        for chosen in combinations(range(len(sizes)), of.cards)
        if (fewest := _fewest_on(of, dict.fromkeys(((node, card) for card in chosen), of.units), most)) is not None
    ]
    return min(found, default=None)


def _fewest_on(of: Small, kept: Mapping[tuple[str, int], int], most: int) -> int | None:
    """kept: units by (node, card)."""
    names = sorted(of.pods)
    units = [of.pods[name][2] for name in names]
    start: tuple[tuple[str, int], ...] = tuple(of.pods[name][:2] for name in names)
    layer, seen = {start}, {start}
    for moves in range(most + 1):
        following = set()
        for where in layer:
            free = _free(of, kept, where, units)
            if all(free[card] >= 0 for card in kept):
                return moves
            following |= set(_moved(where, start, units, free))
        layer = following - seen
        seen |= layer
    return None


def _moved(
    where: tuple[tuple[str, int], ...], start: tuple[tuple[str, int], ...], units: list[int], free: Mapping[Any, int]
) -> Iterator[tuple[tuple[str, int], ...]]:
    """After one more move of a pod that has not been moved."""
    for number, size in enumerate(units):
        for card, room in free.items() if where[number] == start[number] else ():
            if card != where[number] and room >= size:
                yield (*where[:number], card, *where[number + 1 :])


def _free(
    of: Small, kept: Mapping[tuple[str, int], int], where: tuple[tuple[str, int], ...], units: list[int]
) -> dict[tuple[str, int], int]:
    """By (node, card), less what is kept; negative where it is not free yet."""
    free = {
        (node, card): size - kept.get((node, card), 0)
        for node, sizes in of.nodes.items()
        for card, size in enumerate(sizes)
    }
    for place, size in zip(where, units, strict=True):
        free[place] -= size
    return free


HALVES = Small({"a": [8, 8], "b": [8]}, {"p": ("a", 0, 4), "q": ("a", 1, 5), "r": ("b", 0, 7)}, 8)


def test_a_pod_that_fits_needs_no_move() -> None:
    built = engine(a=[8])
    found = room(built, pod("asks", 8))
    assert (told(found), found is not None and found.place.node) == ([], "a")


@pytest.mark.parametrize(
    ("of", "moves"),
    [
        pytest.param(
            Small({"a": [8, 8], "b": [8]}, {"p": ("a", 0, 4), "q": ("b", 0, 4), "r": ("a", 1, 8)}, 8),
            ["p a/0 -> b/0"],
            id="the node that is named first",
        ),
        pytest.param(
            Small({"a": [8], "b": [8, 8]}, {"q": ("b", 0, 4), "r": ("b", 1, 4)}, 8, 2),
            ["q b/0 -> a/0", "r b/1 -> a/0"],
            id="two cards are emptied",
        ),
        pytest.param(
            Small({"a": [8], "b": [8]}, {"p": ("a", 0, 2), "q": ("a", 0, 3), "r": ("b", 0, 6)}, 8),
            None,
            id="less is free than is asked",
        ),
        pytest.param(
            Small({"a": [8], "b": [7], "c": [4]}, {"p": ("a", 0, 5), "q": ("b", 0, 3)}, 8),
            ["q b/0 -> c/0", "p a/0 -> b/0"],
            id="a chain: who makes room for another goes first",
        ),
        pytest.param(
            Small({"a": [8, 8]}, {"p": ("a", 0, 4), "q": ("a", 1, 4)}, 8),
            ["p a/0 -> a/1"],
            id="to another card of its node",
        ),
        pytest.param(HALVES, None, id="nobody finds a place"),
    ],
)
def test_the_moves(of: Small, moves: list[str] | None) -> None:
    assert told(room(of.engine(), of.asks())) == moves


def test_trying_every_sequence_never_needs_fewer_moves_by_more_than_one() -> None:
    plans = []
    for seed in range(150):
        of = small_clusters(seed)
        found = room(of.engine(), of.asks())
        plans.append((fewest_moves(of, 5), None if found is None else len(found.moves)))
    possible = [(fewest, moves) for fewest, moves in plans if fewest]
    assert [one for one in possible if one[1] is None or not one[0] <= one[1] <= one[0] + 1] == []
    assert len(possible) > 20
    assert max(fewest for fewest, _ in possible) > 2


@pytest.mark.parametrize("seed", range(40))
def test_every_plan_can_be_made_one_move_at_a_time_and_ends_with_room(seed: int) -> None:
    of = small_clusters(seed)
    found = room(of.engine(), of.asks())
    for one in found.moves if found is not None else ():
        node, card, units = of.pods[one.record.pod.key.name]
        assert (one.record.node, one.cards) == (node, {card: units})
        of.pods[one.record.pod.key.name] = (one.place.node, one.place.cards[0].index, units)
        held = dict.fromkeys(((n, c) for n, c, _ in of.pods.values()), 0)
        for n, c, u in of.pods.values():
            held[n, c] += u
        assert max(held.values()) <= 8
    if found is not None:
        assert fewest_moves(of, 0) == 0


@pytest.mark.parametrize("seed", range(20))
def test_nothing_of_a_plan_stays(seed: int) -> None:
    of = small_clusters(seed)
    built = of.engine()
    before, openings = of_tables(built.tables), dict(built.tables.cluster_events.rows)
    room(built, of.asks())
    assert of_tables(built.tables) == before
    assert dict(built.tables.cluster_events.rows) == openings
    for node in of.nodes:
        audit = built.audit_node(node)
        assert audit is not None
        assert audit.difference == ""


def test_no_more_moves_than_are_allowed() -> None:
    of = Small({"a": [8], "b": [8, 8]}, {"q": ("b", 0, 4), "r": ("b", 1, 4)}, 8, 2)
    assert room(of.engine(), of.asks(), 1) is None


ONE_MOVE = Small({"a": [8, 8]}, {"p": ("a", 0, 4), "q": ("a", 1, 4)}, 8)


@pytest.mark.parametrize(
    "owner",
    [
        pytest.param(None, id="of no controller"),
        pytest.param(OwnerReference("d", "DaemonSet", "d", controller=True), id="of a DaemonSet"),
        pytest.param(OwnerReference("n", "Node", "n", controller=True), id="a mirror pod"),
    ],
)
def test_pods_that_do_not_come_back_elsewhere_stay(owner: OwnerReference | None) -> None:
    built = ONE_MOVE.engine()
    of = {} if owner is None else owners(built, owner)
    assert room_for(built, Movable(built, of, 0), ONE_MOVE.asks(), 5) is None


@pytest.mark.parametrize(
    ("options", "most_priority", "moves"),
    [
        pytest.param({}, 0, 1, id="as important as that"),
        pytest.param({"priority": 1}, 0, None, id="more important"),
        pytest.param({"priority": 1}, 1, 1, id="more important, and the operator says so"),
        pytest.param({"scheduler": "default-scheduler"}, 0, None, id="of another scheduler"),
        pytest.param({"annotations": {"kubernetes.io/config.mirror": "f"}}, 0, None, id="a mirror pod"),
        pytest.param({"nodeSelector": {"kubernetes.io/hostname": "a"}}, 0, None, id="it may go nowhere else"),
    ],
)
def test_who_may_be_moved(options: dict[str, Any], most_priority: int, moves: int | None) -> None:
    built = engine(a=[8], b=[8])
    built.pod_assigned(bound(pod("p", 4, **options), "a", on_card(0, 4)))
    built.pod_assigned(bound(pod("q", 4, priority=9), "b", on_card(0, 4)))
    found = room(built, pod("asks", 8), max_priority=most_priority)
    assert (None if found is None else len(found.moves)) == moves


@pytest.mark.parametrize(("allowed", "moves"), [pytest.param(2, 2, id="two"), pytest.param(1, None, id="one")])
def test_budgets_are_counted_down_move_by_move(allowed: int, moves: int | None) -> None:
    of = Small({"a": [8], "b": [8, 8]}, {"q": ("b", 0, 4), "r": ("b", 1, 4)}, 8, 2)
    built = of.engine()
    manifest = {
        "metadata": {"name": "both", "namespace": "default"},
        "spec": {"selector": {"matchExpressions": [{"key": "app", "operator": "In", "values": ["q", "r"]}]}},
        "status": {"disruptionsAllowed": allowed},
    }
    built.tables.budgets.set(msgspec.convert(manifest, objects.PodDisruptionBudget))
    found = room(built, of.asks())
    assert (None if found is None else len(found.moves)) == moves


def test_a_card_that_a_pod_has_alone_takes_nobody_who_moves() -> None:
    built = engine(a=[8], b=[8])
    built.pod_assigned(bound(pod("p", 4), "a", on_card(0, 4)))
    alone = pod("alone", 2, annotations={"gpushare/exclusive": "true"}, priority=9)
    built.pod_assigned(bound(alone, "b", on_card(0, 2)))
    assert room(built, pod("asks", 8)) is None


def test_a_pod_that_asks_cards_alone_gets_them_empty() -> None:
    of = Small({"a": [8, 8]}, {"p": ("a", 0, 2), "q": ("a", 1, 2)}, 2)
    found = room(of.engine(), pod("asks", 2, annotations={"gpushare/exclusive": "true"}))
    assert told(found) == ["p a/0 -> a/1"]


def test_a_pod_without_cards_makes_room_for_cpu() -> None:
    built = engine(a=[8], b=[])
    built.pod_assigned(bound(pod("p", requests={"cpu": "60"}), "a"))
    found = room(built, pod("asks", 8, requests={"cpu": "8"}))
    assert told(found) == ["p a/ -> b/"]


def test_moves_that_wait_for_each_other_have_no_order() -> None:
    built = Small({"a": [8], "b": [8]}, {"p": ("a", 0, 5), "q": ("b", 0, 6)}, 8).engine()
    p, q = (built.tables.record(f"uid-default-{name}") for name in "pq")
    assert p is not None
    assert q is not None
    with built.queries.placing() as placing:
        mark = placing.mark
        swapped = []
        placing.leave_out(p)
        placing.leave_out(q)
        for record, node in ((p, "b"), (q, "a")):
            place = placing.place(successor(record.pod), node)
            assert place is not None
            swapped.append(Moved(record, {0: 1}, place))
        placing.undo(mark)
        assert in_turn(placing, swapped) is None
        assert in_turn(placing, []) == []


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
    assert (found.free, found.before) == fragmentation_of(built.tables).total()
    assert found.after == pytest.approx(found.before - sum(found.gains))


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
