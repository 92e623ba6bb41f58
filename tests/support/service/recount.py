"""Bookings, counted from scratch from the objects received by one process and its assumptions.

A reader that knows no other object reads each object once: an unchanged object always reads the same.
"""

from collections.abc import Iterable, Mapping
from typing import Final

import msgspec
from msgspec.structs import replace

from config.protocol.booked_cards import WrittenAllocation
from config.protocol.quantity import QuantityError
from scheduler.kube import objects
from scheduler.pods.effective_requests import amounts
from scheduler.pods.gpu_request import ResourceNames
from scheduler.pods.pod import Pod, PodReader
from scheduler.state.cards.booking import written_of
from scheduler.state.cards.node_inventory import NodeInventory, read_inventory
from scheduler.state.ledger import NodeLedger, of_announced
from scheduler.state.tables import Tables
from tests.support.builders import UNIT_MIB

_RESOURCES: Final = ResourceNames()


class _Reading(msgspec.Struct):
    """A pod as read. of: the received pod, which never changes. pod: None if its amounts cannot be read.

    written: the cards in `first`, the annotations that decided.
    """

    of: objects.PodObject
    pod: Pod | None
    first: Mapping[str, str] | None = None
    written: WrittenAllocation | None = None

    def bound(self, pod: Pod, first: Mapping[str, str]) -> tuple[Pod, str, WrittenAllocation]:
        """Return the arguments for `recompute`. first: must not be modified; a new mapping when annotations change."""
        if self.written is None or first is not self.first:
            self.first, self.written = first, written_of(replace(pod, annotations=first))
        return pod, pod.node_name, self.written


class Recount:
    """Recount for one process."""

    def __init__(self) -> None:
        # By identity: readings of the pods of the last count.
        self._pods: dict[int, _Reading] = {}
        self._nodes: dict[int, tuple[objects.Node, NodeInventory | None]] = {}

    def ledger(
        self,
        pods: Iterable[objects.PodObject],
        nodes: Iterable[objects.Node],
        first: Mapping[str, Mapping[str, str]],
        tables: Tables,
    ) -> dict[str, NodeLedger]:
        """Return ledgers by node. first: UID -> the first annotations that named the pod's cards.

        pods, nodes: as last received. tables: for assumptions and nominations.
        """
        self._pods = {id(pod): self._pods.get(id(pod)) or _read(pod) for pod in pods}
        self._nodes = {id(node): self._nodes.get(id(node)) or (node, _inventory(node)) for node in nodes}
        nominated = [r for row in tables.row_of.values() for r in tables.nominated_on(row)]
        assumed = {r.pod.key.uid: (r.pod, r.node, r.written) for r in tables.records() if r.assumed}
        kept = {r.pod.key.uid: (r.pod, r.node, r.written) for r in nominated}
        elsewhere = assumed.keys() | kept.keys()
        bound = [
            reading.bound(pod, first[pod.key.uid])
            for reading in self._pods.values()
            if (pod := reading.pod) is not None and pod.node_name and pod.key.uid not in elsewhere
        ]
        announced = {node.metadata.name: found for node, found in self._nodes.values() if found is not None}
        return of_announced(announced, [*bound, *assumed.values()], kept.values())


def _read(wire: objects.PodObject) -> _Reading:
    """Read a pod; its unreadable amounts are left out (docs/events.md, "Events")."""
    try:
        return _Reading(wire, PodReader(_RESOURCES).read(wire))
    except QuantityError:
        return _Reading(wire, None)


def _inventory(node: objects.Node) -> NodeInventory | None:
    """Return the inventory; None for a node with unreadable amounts, which is left out too."""
    try:
        amounts(node.status.allocatable)
        amounts(node.status.capacity)
    except QuantityError:
        return None
    return read_inventory(node, _RESOURCES, UNIT_MIB)
