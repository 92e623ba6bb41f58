"""The plan of `defragment`: for one pod, or for pods as they usually come. Pure."""

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from scheduler.core.scheduling_cycle import Placement
from scheduler.kube.objects import OwnerReference
from scheduler.kube.port import DISRUPTION_BUDGETS
from scheduler.pods.pod import Pod
from scheduler.tools.defragment.answers import Defragmentation, FragmentedUnits, Move
from scheduler.tools.defragment.leaving import cards_of
from scheduler.tools.defragment.lowering import lowered
from scheduler.tools.defragment.movable import Movable, successor
from scheduler.tools.defragment.order import Moved
from scheduler.tools.defragment.search import room_for
from scheduler.tools.explain.answers import NodeAndCards
from scheduler.tools.explain.pod_summary import asks
from scheduler.tools.explain.reading import ClusterSnapshot

_BOUND: Final = "It is bound there already: nothing has to be moved for it."
_UNREAD: Final = "The PodDisruptionBudgets cannot be read: the API server may refuse to evict pods of this plan."


@dataclass(frozen=True, slots=True)
class MovePlan:
    """answer: the printed plan. moves: its moves, with their records."""

    answer: Defragmentation
    moves: tuple[Moved, ...]


def plan_for(
    reading: ClusterSnapshot,
    pod: Pod,
    most_moves: int,
    max_priority: int | None = None,
    words: tuple[str, ...] = (),
    *,
    stay: Collection[str] = (),
) -> MovePlan:
    """Plan to make room for a pod that does not exist yet, or waits.

    most_moves: >= 1. max_priority: of a moved pod, None for that of the pod. words: earlier sentences. stay: as
    Movable.
    """
    if reading.engine.tables.record(pod.key.uid) is not None:
        # If it was read with a node, the query is about another one like it.
        pod = successor(pod)
    highest = pod.priority if max_priority is None else max_priority
    movable = Movable(reading.engine, reading.controllers, highest, stay)
    room = room_for(reading.engine, movable, pod, most_moves)
    moves = () if room is None else room.moves
    answer = Defragmentation(
        pod=str(pod.key),
        words=(
            *words,
            asks(pod, reading.unit_mib),
            *_of_its_node(reading, pod),
            *_of_waiting(reading, pod),
            *_of_budgets(reading),
        ),
        most_moves=most_moves,
        place=None if room is None else _place(room.place),
        moves=tuple(_move(movable, one, _purpose(pod, one, moves[number + 1 :])) for number, one in enumerate(moves)),
    )
    return MovePlan(answer, moves)


def bound_already(reading: ClusterSnapshot, pod: Pod) -> MovePlan | None:
    """A plan without moves, for a pod that has its place already; None otherwise, or if it is terminating.

    Known by namespace and name: it may have been created after its manifest was written.
    """
    tables, key = reading.engine.tables, pod.key
    for record in tables.records():
        there = record.pod.key
        same = there.name == key.name and there.namespace == key.namespace
        if same and not (record.nominated or record.pod.terminating):
            answer = Defragmentation(
                pod=str(key),
                words=(asks(record.pod, reading.unit_mib), _BOUND),
                most_moves=0,
                place=NodeAndCards(node=record.node, cards=cards_of(tables, record)),
                moves=(),
            )
            return MovePlan(answer, ())
    return None


def plan_for_usual(
    reading: ClusterSnapshot, most_moves: int, max_priority: int = 0, *, stay: Collection[str] = ()
) -> MovePlan:
    """Plan to lower fragmentation for the usual requests. most_moves, max_priority, stay: as `plan_for`."""
    movable = Movable(reading.engine, reading.controllers, max_priority, stay)
    found = lowered(reading.engine, movable, most_moves)
    told = zip(found.moves, found.gains, strict=True)
    answer = Defragmentation(
        pod="",
        words=tuple(_of_budgets(reading)),
        most_moves=most_moves,
        place=None,
        moves=tuple(_move(movable, one, f"{gain:.1f} units become useful", gain) for one, gain in told),
        fragmentation=FragmentedUnits(free=found.before.free, before=found.before.unusable, after=found.after.unusable),
    )
    return MovePlan(answer, found.moves)


def _of_its_node(reading: ClusterSnapshot, pod: Pod) -> Iterator[str]:
    if pod.node_name and pod.node_name not in reading.engine.tables.row_of:
        yield f"Its spec.nodeName is {pod.node_name}, and there is no such node."


def _of_waiting(reading: ClusterSnapshot, pod: Pod) -> Iterator[str]:
    """Sentences about other waiting pods; the pod itself may wait under another uid than its manifest has."""
    itself = (pod.key.namespace, pod.key.name)
    if waiting := sum((one.pod.key.namespace, one.pod.key.name) != itself for one in reading.engine.queue):
        some = "pod waits" if waiting == 1 else "pods wait"
        yield f"{waiting} {some} already: which of them gets the room is decided by the queue."


def _of_budgets(reading: ClusterSnapshot) -> Iterator[str]:
    if DISRUPTION_BUDGETS.name in reading.unread:
        yield _UNREAD


def _move(movable: Movable, moved: Moved, why: str, gain: float = 0.0) -> Move:
    return Move(
        pod=str(moved.record.pod.key),
        owner=_named(movable.owner(moved.record)),
        at=NodeAndCards(node=moved.record.node, cards=dict(moved.cards)),
        to=_place(moved.place),
        why=why,
        gain_units=round(gain, 3),
    )


def _place(placement: Placement) -> NodeAndCards:
    return NodeAndCards(node=placement.node, cards={share.index: share.units for share in placement.cards})


def _named(owner: OwnerReference) -> str:
    return f"{owner.kind} {owner.name}"


def _purpose(pod: Pod, moved: Moved, later: Sequence[Moved]) -> str:
    """The pod that needs the room: one that moves to the node later, or the pod itself."""
    for other in later:
        if other.place.node == moved.record.node and other.record.node != moved.record.node:
            return f"room for {other.record.pod.key}"
    return f"room for {pod.key}"
