"""NodeUnschedulable: no new pods on a node that was cordoned with `kubectl cordon`.

Source: kube-scheduler, plugins/nodeunschedulable/node_unschedulable.go.
"""

from collections.abc import Sequence
from typing import ClassVar, Final

from scheduler.framework.cycle_state import CycleState
from scheduler.framework.plugin import FilterPlugin, PreFilterPlugin, PreFilterResult, Rejection, Relevance
from scheduler.kube.objects import Taint
from scheduler.plugins.node.taint_toleration import tolerated
from scheduler.pods.pod import Pod
from scheduler.state.changes import Change
from scheduler.state.columns.arrays import Rows
from scheduler.state.tables import Tables

REASON: Final = "node(s) were unschedulable"
# The node controller sets this taint together with `spec.unschedulable`, so tolerating the taint means tolerating both.
_TAINT: Final = Taint("node.kubernetes.io/unschedulable", "NoSchedule")


class NodeUnschedulable(PreFilterPlugin, FilterPlugin):
    """Rejects nodes that were cordoned with `kubectl cordon`.

    A pod that tolerates the taint `node.kubernetes.io/unschedulable:NoSchedule` is not rejected.

    - `node(s) were unschedulable`

    Source: kube-scheduler, plugins/nodeunschedulable/node_unschedulable.go.
    """

    name: ClassVar[str] = "NodeUnschedulable"
    on_by_default: ClassVar[bool] = True
    depends: ClassVar[Change] = Change.UNSCHEDULABLE

    def pre_filter(self, pod: Pod, tables: Tables, state: CycleState) -> PreFilterResult:  # noqa: ARG002 - the pod says all
        """Skip pods that tolerate the taint."""
        return Relevance.SKIP if tolerated(_TAINT, pod.template.tolerations) else Relevance.EVALUATE

    def filter(self, pod: Pod, tables: Tables, state: CycleState, rows: Rows) -> Sequence[Rejection]:  # noqa: ARG002
        """Reject cordoned nodes."""
        return (Rejection(tables.unschedulable[rows], REASON),)
