"""Which cards no successor may take, and what a plan says."""

import pytest

from scheduler.tools.defragment.movable import kept_free
from scheduler.tools.defragment.text import Defragmentation, FragmentedUnits, Move, lines
from scheduler.tools.explain.answers import NodeAndCards
from scheduler.tools.explain.tones import as_text


def move(pod: str, at: tuple[str, int], to: tuple[str, int], why: str = "room for default/asks") -> Move:
    places = [NodeAndCards(node=node, cards={index: 4}) for node, index in (at, to)]
    return Move(pod=f"default/{pod}", owner="ReplicaSet web", at=places[0], to=places[1], why=why)


ROOM = NodeAndCards(node="a", cards={0: 8, 1: 8})


@pytest.mark.parametrize(
    ("place", "moves", "kept"),
    [
        pytest.param(None, [move("p", ("a", 0), ("b", 0))], {}, id="no pod asks"),
        pytest.param(ROOM, [move("p", ("a", 0), ("b", 0))], {"a": {0, 1}}, id="the cards of the pod"),
        pytest.param(
            ROOM,
            [move("q", ("b", 0), ("c", 0)), move("p", ("a", 0), ("b", 0))],
            {"a": {0, 1}, "b": {0}},
            id="and those of a later move to where the first one leaves",
        ),
        pytest.param(ROOM, [move("p", ("a", 0), ("a", 2))], {"a": {0, 1}}, id="not where the first one itself goes"),
        pytest.param(
            ROOM, [move("p", ("a", 0), ("a", 1))], {"a": {0}}, id="nor a card of the pod, where it goes beside it"
        ),
        pytest.param(NodeAndCards(node="a", cards={}), [move("p", ("a", 0), ("b", 0))], {}, id="it asks no card"),
    ],
)
def test_cards_that_are_kept_free(place: NodeAndCards | None, moves: list[Move], kept: dict[str, set[int]]) -> None:
    assert kept_free(place, moves) == kept


def plan(place: NodeAndCards | None, *moves: Move, fragmentation: FragmentedUnits | None = None) -> str:
    pod = "" if fragmentation else "default/asks"
    answer = Defragmentation(pod=pod, words=(), most_moves=10, place=place, moves=moves, fragmentation=fragmentation)
    return as_text(lines(answer), colour=False)


@pytest.mark.parametrize(
    ("text", "first"),
    [
        pytest.param(
            plan(None), "Pod default/asks does not fit, and no plan of at most 10 moves was found.", id="none"
        ),
        pytest.param(plan(ROOM), "Pod default/asks fits as it is: on node a, card 0-1 (8 each).", id="fits"),
        pytest.param(
            plan(None, fragmentation=FragmentedUnits(free=9, before=4, after=4)),
            "No move lowers the fragmentation: 4.0 of 9.0 free units are of no use to usual pods.",
            id="nothing to lower",
        ),
        pytest.param(
            plan(None, move("p", ("a", 0), ("b", 0)), fragmentation=FragmentedUnits(free=9, before=4, after=1.5)),
            "1 move brings what is of no use to usual pods from 4.0 to 1.5 of 9.0 free units.",
            id="one that lowers",
        ),
    ],
)
def test_the_verdict(text: str, first: str) -> None:
    assert text.splitlines()[0] == first


def test_the_table_of_moves() -> None:
    assert plan(ROOM, move("p", ("a", 0), ("b", 3))).splitlines()[2:] == [
        "   POD        OWNER           FROM           TO             FOR",
        "1  default/p  ReplicaSet web  a, card 0 (4)  b, card 3 (4)  room for default/asks",
    ]
