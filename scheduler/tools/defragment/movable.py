"""Pods that may be moved, and the order of their moves. Pure.

A pod may be moved if its controller recreates it elsewhere and nothing protects it.

The order is for moves that are made one at a time, given only that all of them fit in the end. A move can be made as
soon as its destination is free. Making it only frees more, and no other move needs its destination. So any possible
move is made, and if none is possible, there is no order.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from msgspec.structs import replace

from config.protocol import names
from scheduler.core.engine import Engine
from scheduler.core.scheduling_cycle import Placement
from scheduler.core.what_if_queries import Placing
from scheduler.kube.objects import OwnerReference
from scheduler.kube.port import PodKey
from scheduler.pods.pod import Pod
from scheduler.state.pod_record import PodRecord
from scheduler.tools.defragment.text import Move
from scheduler.tools.explain.answers import NodeAndCards

# A DaemonSet's pod comes back to the same node. A mirror pod's owner is its node.
_STAY: Final = frozenset({"DaemonSet", "Node"})


class Movable:
    """Movable pods of one engine, from its current tables."""

    def __init__(
        self, engine: Engine, owners: Mapping[str, OwnerReference], max_priority: int, stay: Collection[str] = ()
    ) -> None:
        """owners: controllers by pod uid, for pods that have one. max_priority: highest priority of a moved pod.

        stay: uids of pods that must not be moved, because they were just moved.
        """
        self._engine = engine
        self._owners = owners
        self._max_priority = max_priority
        self._stay = frozenset(stay)
        self._on: dict[str, list[PodRecord]] = {}
        for record in engine.tables.records():
            if self._may_be_moved(record):
                self._on.setdefault(record.node, []).append(record)

    @property
    def nodes(self) -> Mapping[str, Collection[PodRecord]]:
        """The movable pods by node."""
        return self._on

    def on(self, node: str) -> list[PodRecord]:
        """Return the movable pods of one node."""
        return [record for record in self._on.get(node, ()) if not record.lifted]

    def together(self, records: Iterable[PodRecord]) -> bool:
        """Return whether disruption budgets allow evicting all of them, one at a time."""
        return self._engine.tables.budgets.let_go(records)

    def owner(self, record: PodRecord) -> OwnerReference:
        """Return the controller of a pod that may be moved."""
        return self._owners[record.pod.key.uid]

    def _may_be_moved(self, record: PodRecord) -> bool:
        pod, owner = record.pod, self._owners.get(record.pod.key.uid)
        return (
            owner is not None
            and owner.kind not in _STAY
            and pod.scheduler_name in self._engine.scheduler_names
            and pod.priority <= self._max_priority
            and pod.key.uid not in self._stay
            and not (pod.terminating or pod.mirror or record.assumed or record.undeletable)
            and record.node in self._engine.tables.row_of
            and self.together((record,))
        )


def successor(pod: Pod) -> Pod:
    """Return the controller's replacement for an evicted pod: the same pod without a node."""
    key = PodKey(pod.key.namespace, pod.key.name, f"{pod.key.uid}-successor")
    annotations = {name: text for name, text in pod.annotations.items() if name not in names.ALLOCATION_KEYS}
    return replace(pod, key=key, annotations=annotations, node_name="", phase="Pending", started="", nominated_node="")


@dataclass(frozen=True, slots=True)
class Moved:
    """A move. record: the leaving pod. cards: its current cards, index to units. place: its successor's placement."""

    record: PodRecord
    cards: Mapping[int, int]
    place: Placement


def in_turn(placing: Placing, moves: Sequence[Moved]) -> list[Moved] | None:
    """Return the moves in a possible order; None if there is none. The tables are restored."""
    mark, waiting, ordered = placing.mark, list(moves), list[Moved]()
    try:
        while waiting:
            made = next((one for one in waiting if _made(placing, one)), None)
            if made is None:
                return None
            waiting.remove(made)
            ordered.append(made)
    finally:
        placing.undo(mark)
    return ordered


def _made(placing: Placing, one: Moved) -> bool:
    """Make the move if it is possible now. Returns whether it was."""
    mark = placing.mark
    placing.leave_out(one.record)
    if placing.repeat(one.place):
        return True
    placing.undo(mark)
    return False


def kept_free(place: NodeAndCards | None, moves: Sequence[Move]) -> Mapping[str, frozenset[int]]:
    """Return by node the indexes of cards to keep free until the first move is done.

    place: destination of the pod to make room for. Its cards are kept free, and so are the destination cards of every
    later move whose node an earlier move leaves. The destination cards of the first move are not, because its successor
    must be able to use them.
    """
    kept: dict[str, set[int]] = {}
    if place is not None:
        kept.setdefault(place.node, set()).update(place.cards)
        left = set[str]()
        for number, move in enumerate(moves):
            if number and move.to.node in left:
                kept.setdefault(move.to.node, set()).update(move.to.cards)
            left.add(move.at.node)
        for first in moves[:1]:
            kept.get(first.to.node, set()).difference_update(first.to.cards)
    return {node: frozenset(cards) for node, cards in kept.items() if cards}
