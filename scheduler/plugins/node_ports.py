"""NodePorts: two pods of one node do not share a host port.

Source: kube-scheduler, plugins/nodeports/node_ports.go; what conflicts is in `scheduler.state.host_ports`.
"""

from collections.abc import Sequence
from typing import ClassVar, Final

import numpy as np

from scheduler.framework.cycle_state import CycleState
from scheduler.framework.plugin import FilterPlugin, Objection, PreFilterPlugin, PreFilterResult, Relevance
from scheduler.pods.pod import Pod
from scheduler.state.arrays import Int64Array, RowArray, Rows
from scheduler.state.tables import Tables

REASON: Final = "node(s) didn't have free ports for the requested pod ports"


class NodePorts(PreFilterPlugin, FilterPlugin):
    """Judges the host ports that pods on the nodes have taken."""

    name: ClassVar[str] = "NodePorts"

    def pre_filter(self, pod: Pod, tables: Tables, state: CycleState) -> PreFilterResult:  # noqa: ARG002 - the pod says all
        """Leave pods alone that want no host port."""
        return Relevance.JUDGE if pod.template.host_ports else Relevance.SKIP

    def filter(self, pod: Pod, tables: Tables, state: CycleState, rows: Rows) -> Sequence[Objection]:  # noqa: ARG002
        """Nodes where one of the ports is taken."""
        taken = tables.host_ports.in_conflict(pod.template.host_ports, rows, tables.capacity)
        return (Objection(taken, REASON),)

    def room(self, pod: Pod, tables: Tables, rows: RowArray) -> Int64Array | None:  # noqa: ARG002 - as above
        """One: copies want the same ports."""
        return np.ones(len(rows), dtype=np.int64) if pod.template.host_ports else None
