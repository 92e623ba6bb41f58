"""NodeName: a pod that names its node goes only to that node.

Source: kube-scheduler, plugins/nodename/node_name.go.
"""

from collections.abc import Hashable, Sequence
from typing import ClassVar, Final

from scheduler.framework.cycle_state import CycleState
from scheduler.framework.plugin import FilterPlugin, PreFilterPlugin, PreFilterResult, Rejection, Relevance
from scheduler.pods.pod import Pod
from scheduler.state.changes import Change
from scheduler.state.columns.arrays import Rows
from scheduler.state.columns.row_masks import mask_of
from scheduler.state.tables import Tables

REASON: Final = "node(s) didn't match the requested node name"


class NodeName(PreFilterPlugin, FilterPlugin):
    """Sends a pod with `spec.nodeName` to that node only.

    A pod that waits for a scheduler names no node, so the rule is skipped.

    - `node(s) didn't match the requested node name`

    Source: kube-scheduler, plugins/nodename/node_name.go.
    """

    name: ClassVar[str] = "NodeName"
    on_by_default: ClassVar[bool] = True
    depends: ClassVar[Change] = Change(0)

    def pre_filter(self, pod: Pod, tables: Tables, state: CycleState) -> PreFilterResult:  # noqa: ARG002 - the pod says all
        """Skip pods that name no node."""
        return Relevance.EVALUATE if pod.node_name else Relevance.SKIP

    def filter(self, pod: Pod, tables: Tables, state: CycleState, rows: Rows) -> Sequence[Rejection]:  # noqa: ARG002
        """Reject every node but the named one."""
        row = tables.row_of.get(pod.node_name)
        named = mask_of(() if row is None else (row,), rows, tables.capacity)
        return (Rejection(~named, REASON),)

    def signature(self, pod: Pod, tables: Tables) -> Hashable:  # noqa: ARG002 - as above
        """Return the name of the node, if there is one."""
        return pod.node_name or None
