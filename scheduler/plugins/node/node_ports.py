"""NodePorts: two pods on one node cannot use the same host port."""

from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING, ClassVar, Final, TypeAlias

from scheduler.framework.cycle_state import CycleState
from scheduler.framework.plugin import FilterPlugin, PreFilterPlugin, PreFilterResult, Rejection, Relevance
from scheduler.pods.pod import HostPort, Pod
from scheduler.state.changes import Change
from scheduler.state.columns.arrays import BoolArray, Rows
from scheduler.state.columns.row_masks import mask_of
from scheduler.state.facts.fact import NodeFact

if TYPE_CHECKING:
    from scheduler.state.tables import Tables

REASON: Final = "node(s) didn't have free ports for the requested pod ports"
_EVERY_ADDRESS: Final = frozenset({"", "0.0.0.0"})  # noqa: S104 - compared with, not bound to
_Port: TypeAlias = tuple[str, int]


class NodePorts(PreFilterPlugin, FilterPlugin):
    """Rejects nodes on which another pod already uses one of the pod's host ports.

    Two ports are the same when protocol and port are, and the address is, or one of the two is every address (none, or
    `0.0.0.0`). Ports of containers and sidecars count.

    - `node(s) didn't have free ports for the requested pod ports`

    Source: kube-scheduler, plugins/nodeports/node_ports.go.
    """

    name: ClassVar[str] = "NodePorts"
    on_by_default: ClassVar[bool] = True
    depends: ClassVar[Change] = Change.PORTS

    def pre_filter(self, pod: Pod, tables: "Tables", state: CycleState) -> PreFilterResult:  # noqa: ARG002 - the pod says all
        """Skip pods that request no host port."""
        return Relevance.EVALUATE if pod.template.host_ports else Relevance.SKIP

    def filter(self, pod: Pod, tables: "Tables", state: CycleState, rows: Rows) -> Sequence[Rejection]:  # noqa: ARG002
        """Reject nodes on which one of the ports is taken."""
        return (Rejection(tables.fact(HostPorts).in_conflict(pod.template.host_ports, rows), REASON),)


class HostPorts(NodeFact[frozenset[HostPort]]):
    """Host ports in use on each row: the addresses of each port, with the number of pods that use them."""

    booking_change: ClassVar[Change] = Change.PORTS

    def __init__(self, tables: "Tables") -> None:
        super().__init__(tables)
        self._taken: dict[_Port, dict[int, Counter[str]]] = {}

    def read(self, pod: Pod) -> frozenset[HostPort] | None:
        """Return the pod's host ports."""
        return pod.template.host_ports or None

    def book(self, row: int, read: frozenset[HostPort], sign: int) -> None:
        """Add or remove a pod's ports."""
        for port in read:
            key = (port.protocol, port.port)
            rows = self._taken.setdefault(key, {})
            addresses = rows.setdefault(row, Counter())
            addresses[port.ip] += sign
            if not addresses[port.ip]:
                del addresses[port.ip]
            if not addresses:
                del rows[row]
            if not rows:
                del self._taken[key]

    def in_conflict(self, wanted: frozenset[HostPort], rows: Rows) -> BoolArray:
        """Return bool[rows]: one of `wanted` is taken there.

        Source: kube-scheduler, framework/types.go, HostPortInfo.CheckConflict.
        """
        found = {
            row
            for port in wanted
            for row in self._rows_with(port, rows)
            if _conflicts(port.ip, self._taken[port.protocol, port.port][row])
        }
        return mask_of(found, rows, self.tables.capacity)

    def _rows_with(self, port: HostPort, rows: Rows) -> Sequence[int]:
        """Return the subset of `rows` on which the port is in use. For a single row, only that row is examined."""
        taken = self._taken.get((port.protocol, port.port), {})
        if isinstance(rows, slice) and rows.stop is not None:
            return [row for row in range(rows.start or 0, rows.stop) if row in taken]
        return list(taken)


def _conflicts(address: str, taken: Counter[str]) -> bool:
    return address in taken or address in _EVERY_ADDRESS or not _EVERY_ADDRESS.isdisjoint(taken)
