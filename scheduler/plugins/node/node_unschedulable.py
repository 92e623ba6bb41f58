"""NodeUnschedulable: no new pods on a node that `kubectl cordon` took out of use.

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
# The taint that the node controller sets with `spec.unschedulable`: tolerating one means tolerating the other.
_TAINT: Final = Taint("node.kubernetes.io/unschedulable", "NoSchedule")


class NodeUnschedulable(PreFilterPlugin, FilterPlugin):
    """Rejects nodes that `kubectl cordon` took out of use.

    A pod that tolerates the taint `node.kubernetes.io/unschedulable:NoSchedule` is let through.

    - `node(s) were unschedulable`

    Source: kube-scheduler, plugins/nodeunschedulable/node_unschedulable.go.
    """

    name: ClassVar[str] = "NodeUnschedulable"
    on_by_default: ClassVar[bool] = True
    depends: ClassVar[Change] = Change.UNSCHEDULABLE

    def pre_filter(self, pod: Pod, tables: Tables, state: CycleState) -> PreFilterResult:  # noqa: ARG002 - the pod says all
        """Leave pods alone that tolerate it."""
        return Relevance.SKIP if tolerated(_TAINT, pod.template.tolerations) else Relevance.EVALUATE

    def filter(self, pod: Pod, tables: Tables, state: CycleState, rows: Rows) -> Sequence[Rejection]:  # noqa: ARG002
        """Nodes out of use."""
        return (Rejection(tables.unschedulable[rows], REASON),)
