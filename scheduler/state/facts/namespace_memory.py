"""Requested GPU memory per namespace, for metrics; no rule reads it."""

from typing import ClassVar, Final, TypeAlias

from scheduler.pods.pod import Pod
from scheduler.state.changes import Change
from scheduler.state.facts.fact import CardFact, Columns

_MIB: Final = 2**20
# Namespace and units.
_Requested: TypeAlias = tuple[str, int]


class NamespaceMemory(CardFact[_Requested]):
    """requested: bytes by namespace, over its pods on existing nodes; no entries of 0.

    In the unit of each pod's node. Nominated pods count while they are booked, as in every fact.
    """

    booking_change: ClassVar[Change] = Change(0)

    def __init__(self, tables: Columns) -> None:
        """Nothing requested."""
        super().__init__(tables)
        self.requested: dict[str, int] = {}

    def read(self, pod: Pod) -> _Requested | None:
        """Over all cards; None when it requests nothing."""
        units = pod.template.gpu_units
        return (pod.key.namespace, units) if units else None

    def book(self, row: int, slots: tuple[int, ...], read: _Requested, sign: int) -> None:  # noqa: ARG002 - of whichever
        """Count or uncount one pod's cards."""
        namespace, units = read
        left = self.requested.get(namespace, 0) + sign * units * int(self.tables.cards.unit_mib[row]) * _MIB
        if left:
            self.requested[namespace] = left
        else:
            self.requested.pop(namespace, None)
