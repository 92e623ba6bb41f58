"""Plan of `defragment`, for one pod or for typical pods. Pure.

For one pod, the plan has the fewest moves that make room for it:

    for each node, pods that would have to leave ──▶ the pod is put there ──▶ each of those is placed elsewhere
       (the fewest first: the engine's answer)     so that its room is kept     by the profile's filters and scores

If one of these pods finds no node, others may leave for it: a chain of at most `_LONGEST_CHAIN` moves. The number of
nodes examined pod by pod, of sets of pods, and of placements (MOST_TRIES) is limited. So the plan may not be the
shortest, and a possible plan may be missed.

For typical pods, the plan has moves that lower the cluster's fragmentation, one at a time, each the best of those
compared. The compared pods are on the nodes with the most memory that typical pods cannot use. For a move, only two
nodes are measured again: the pod's node, and the node where the profile would place it.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from heapq import nlargest, nsmallest
from operator import attrgetter, itemgetter
from typing import Final

from scheduler.core.engine import Engine
from scheduler.core.scheduling_cycle import Placement
from scheduler.core.what_if_queries import Placing
from scheduler.kube.objects import OwnerReference
from scheduler.kube.port import DISRUPTION_BUDGETS
from scheduler.plugins.fragmentation.measure import fragmentation_of
from scheduler.pods.pod import Pod
from scheduler.state.pod_record import PodRecord
from scheduler.tools.defragment.movable import Movable, Moved, in_turn, successor
from scheduler.tools.defragment.text import Defragmentation, FragmentedUnits, Move
from scheduler.tools.explain.answers import NodeAndCards
from scheduler.tools.explain.pod_summary import asks, cards_of
from scheduler.tools.explain.reading import ClusterSnapshot

MOST_NODES: Final = 512
MOST_TRIES: Final = 4_000
_LONGEST_CHAIN: Final = 2
# For a pod that finds no node while it is moved.
_NODES_OF_CHAIN: Final = 16
_SETS_OF_CHAIN: Final = 8


@dataclass(frozen=True, slots=True)
class RoomFound:
    """Room for a pod. place: the pod's placement. moves: in an order in which they can be made, one at a time."""

    place: Placement
    moves: tuple[Moved, ...]


def room_for(engine: Engine, movable: Movable, pod: Pod, most_moves: int) -> RoomFound | None:
    """Find room for the pod after at most `most_moves` moves, with as few as possible; None if there is none.

    The pod currently fits nowhere, or fits without a move.
    """
    with engine.queries.placing() as placing:
        if (place := placing.place(pod)) is not None:
            return RoomFound(place, ())
        search = _Search(engine, movable, placing, most_moves)
        for chain in range(_LONGEST_CHAIN + 1):
            search.try_all(pod, chain)
        return search.best


class _Search:
    def __init__(self, engine: Engine, movable: Movable, placing: Placing, most_moves: int) -> None:
        self.best: RoomFound | None = None
        self._engine = engine
        self._movable = movable
        self._placing = placing
        self._most = most_moves
        self._tries = 0
        self._one_by_one = False
        self._leaving: set[str] = set()  # uids of leaving pods that have found room or are being placed
        self._moves: list[Moved] = []

    def try_all(self, pod: Pod, chain: int) -> None:
        """Try every set of leaving pods that may lead to fewer moves. chain: see `_LONGEST_CHAIN`."""
        for found in self._engine.queries.leaving(pod, self._movable.nodes, MOST_NODES):
            # A chain has at least one more move than leaving pods.
            if len(found) + bool(chain) > self._most or self._tries >= MOST_TRIES:
                return
            self._try(pod, found, chain)

    def _try(self, pod: Pod, found: Sequence[PodRecord], chain: int) -> None:
        """Try a set: first, all its pods leave before one is placed; then one at a time, which always has an order."""
        for self._one_by_one in (False, True) if chain or len(found) > 1 else (False,):
            place = self._with_room(pod, found, chain)
            moves = list(self._moves)
            self._moves.clear()
            self._leaving.clear()
            self._placing.undo()
            if place is None or len(moves) > self._most:
                continue
            if (ordered := in_turn(self._placing, moves)) is not None:
                self.best = RoomFound(place, tuple(ordered))
                self._most = len(moves) - 1
                return

    def _with_room(self, pod: Pod, found: Sequence[PodRecord], chain: int) -> Placement | None:
        """Place the pod with the leaving pods elsewhere. None if that fails; everything is then restored."""
        mark, moved = self._placing.mark, len(self._moves)
        uids = {record.pod.key.uid for record in found}
        if uids & self._leaving:
            return None
        self._leaving |= uids
        on = {record.pod.key.uid: cards_of(self._engine.tables, record) for record in found}
        for record in found:
            self._placing.leave_out(record)
        place = self._place(pod, found[0].node)
        if place is not None and self._one_by_one:
            for record in found:
                self._placing.bring_back(record)
        left = _hardest_first(found)
        while place is not None and left:
            record = left.pop(0)
            spare = self._most - len(self._moves) - len(left) - 1
            if spare < 0 or not self._settle(record, on[record.pod.key.uid], min(chain, spare)):
                place = None
        if place is None:
            self._placing.undo(mark)
            self._leaving -= uids
            del self._moves[moved:]
        return place

    def _settle(self, record: PodRecord, cards: dict[int, int], chain: int) -> bool:
        """Find a new node for the leaving pod. Returns whether there is one. cards: its previous cards."""
        moving = successor(record.pod)
        if not record.lifted:
            self._placing.leave_out(record)
        place = self._place(moving)
        if place is None and chain:
            place = self._chained(record, moving, chain)
        if place is None:
            return False
        if place.node != record.node or {share.index for share in place.cards} != cards.keys():
            self._moves.append(Moved(record, cards, place))
        return self._movable.together(moved.record for moved in self._moves)

    def _chained(self, record: PodRecord, moving: Pod, chain: int) -> Placement | None:
        """Make other pods leave so that the successor `moving` of `record` finds a node."""
        sets = self._engine.queries.leaving(moving, self._movable.nodes, _NODES_OF_CHAIN)
        mark = self._placing.mark
        for found in sets[:_SETS_OF_CHAIN]:
            if len(found) > chain or self._tries >= MOST_TRIES:
                return None
            if self._one_by_one:
                self._placing.bring_back(record)
            place = self._with_room(moving, found, chain - len(found))
            if place is None:
                self._placing.undo(mark)
                continue
            if self._one_by_one:
                self._placing.leave_out(record)
            return place
        return None

    def _place(self, pod: Pod, node: str = "") -> Placement | None:
        self._tries += 1
        return self._placing.place(pod, node)


def _hardest_first(records: Sequence[PodRecord]) -> list[PodRecord]:
    """Sort by largest request first, because it fits in the fewest places."""
    return sorted(records, key=attrgetter("pod.template.gpu_units"), reverse=True)


_NODES_COMPARED: Final = 32
_PODS_OF_NODE: Final = 8
# Units of memory: a smaller gain is not worth restarting the pod.
_LEAST_GAIN_UNITS: Final = 1.0


@dataclass(frozen=True, slots=True)
class Lowered:
    """Moves that lower fragmentation. free: allocatable units of the cluster.

    before, after: units among them that a typical pod cannot use. gains: units that each move makes useful, in order.
    """

    free: float
    before: float
    after: float
    moves: tuple[Moved, ...]
    gains: tuple[float, ...]


def lowered(engine: Engine, movable: Movable, most_moves: int) -> Lowered:
    """Find at most `most_moves` moves, each of which lowers fragmentation by at least one unit of memory."""
    moves, gains = list[Moved](), list[float]()
    before = fragmentation_of(engine.tables).total()
    with engine.queries.placing() as placing:
        while len(moves) < most_moves:
            unusable = _unusable(engine, list(engine.tables.row_of))
            compared = ((_gain(engine, placing, unusable, one), one) for one in _candidates(movable, unusable))
            allowed = (
                (gain, one) for gain, one in compared if movable.together((*(moved.record for moved in moves), one))
            )
            gain, best = max(allowed, key=itemgetter(0), default=(0.0, None))
            moved = None if best is None or gain < _LEAST_GAIN_UNITS else _made(engine, placing, best)
            if moved is None:
                break
            moves.append(moved)
            gains.append(gain)
        after = fragmentation_of(engine.tables).total()
    return Lowered(before.free, before.unusable, after.unusable, tuple(moves), tuple(gains))


def _unusable(engine: Engine, nodes: Sequence[str]) -> dict[str, float]:
    """Return the units of each node that a typical pod cannot use now."""
    return dict(zip(nodes, fragmentation_of(engine.tables, nodes).unusable.tolist(), strict=True))


def _candidates(movable: Movable, unusable: Mapping[str, float]) -> Iterator[PodRecord]:
    """Yield the largest pods with GPU memory of each node, from nodes with the most unusable memory."""
    for node in nsmallest(_NODES_COMPARED, movable.nodes, key=lambda node: (-unusable[node], node)):
        asking = [record for record in movable.on(node) if record.pod.template.gpu_units]
        yield from nlargest(_PODS_OF_NODE, asking, key=_units)


def _gain(engine: Engine, placing: Placing, unusable: Mapping[str, float], record: PodRecord) -> float:
    """Return the units that become usable by the move; 0 if there is no other placement. unusable: now, by node."""
    mark = placing.mark
    moved = _made(engine, placing, record)
    if moved is None:
        return 0.0
    after = _unusable(engine, sorted({record.node, moved.place.node}))
    placing.undo(mark)
    return sum(unusable[node] - left for node, left in after.items())


def _made(engine: Engine, placing: Placing, record: PodRecord) -> Moved | None:
    """Make the move. None if the pod would go where it is, or nowhere; nothing is changed then."""
    mark, cards = placing.mark, cards_of(engine.tables, record)
    placing.leave_out(record)
    place = placing.place(successor(record.pod))
    if place is None or (place.node == record.node and {share.index for share in place.cards} == cards.keys()):
        placing.undo(mark)
        return None
    return Moved(record, cards, place)


def _units(record: PodRecord) -> int:
    return record.pod.template.gpu_units


_BOUND: Final = "It is already bound there: no pod has to move."
_UNREAD: Final = "The PodDisruptionBudgets cannot be read: the API server may reject evictions of this plan."


@dataclass(frozen=True, slots=True)
class MovePlan:
    """A plan with the records of its pods. answer: the plan as printed. moves: its moves, with records."""

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

    most_moves: >= 1. max_priority: highest priority of a moved pod, None for the pod's own. words: sentences to print
    first. stay: as in Movable.
    """
    if reading.engine.tables.record(pod.key.uid) is not None:
        # If it was read with a node, the query is about another pod like it.
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
    """Return a plan without moves for a pod that already has a node; None otherwise, or if the pod is terminating.

    The pod is identified by namespace and name: it may have been created after its manifest was written.
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
    """Plan to lower fragmentation for the usual requests. most_moves, max_priority, stay: as in `plan_for`."""
    movable = Movable(reading.engine, reading.controllers, max_priority, stay)
    found = lowered(reading.engine, movable, most_moves)
    told = zip(found.moves, found.gains, strict=True)
    answer = Defragmentation(
        pod="",
        words=tuple(_of_budgets(reading)),
        most_moves=most_moves,
        place=None,
        moves=tuple(_move(movable, one, f"{gain:.1f} units become useful", gain) for one, gain in told),
        fragmentation=FragmentedUnits(free=found.free, before=found.before, after=found.after),
    )
    return MovePlan(answer, found.moves)


def _of_its_node(reading: ClusterSnapshot, pod: Pod) -> Iterator[str]:
    if pod.node_name and pod.node_name not in reading.engine.tables.row_of:
        yield f"Its spec.nodeName is {pod.node_name}, which does not exist."


def _of_waiting(reading: ClusterSnapshot, pod: Pod) -> Iterator[str]:
    """Yield sentences about other waiting pods. The pod itself may wait under a uid that its manifest lacks."""
    itself = (pod.key.namespace, pod.key.name)
    if waiting := sum((one.pod.key.namespace, one.pod.key.name) != itself for one in reading.engine.queue):
        some = "other pod is" if waiting == 1 else "other pods are"
        yield f"{waiting} {some} pending: the queue decides which pod gets the room."


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
    """Return the pod that needs the room: one that moves to the node later, or the pod itself."""
    for other in later:
        if other.place.node == moved.record.node and other.record.node != moved.record.node:
            return f"room for {other.record.pod.key}"
    return f"room for {pod.key}"
