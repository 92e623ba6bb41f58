"""NodeDeclaredFeatures: a pod that needs a kubelet feature goes only to nodes that declare it.

Source: kube-scheduler, plugins/nodedeclaredfeatures/nodedeclaredfeatures.go; a pod's features are in
`scheduler.pods.declared_features`.
"""

from collections.abc import Sequence
from typing import ClassVar, Final

import numpy as np

from scheduler.framework.cycle_state import CycleState
from scheduler.framework.plugin import FilterPlugin, PreFilterPlugin, PreFilterResult, Rejection, Relevance
from scheduler.kube.objects import Node
from scheduler.pods.declared_features import FEATURES
from scheduler.pods.pod import Pod
from scheduler.state.changes import Change
from scheduler.state.columns.arrays import BoolArray, Rows, resized
from scheduler.state.facts.fact import Columns, Fact
from scheduler.state.tables import Tables

REASON: Final = "node(s) didn't match Pod's required features"


class NodeDeclaredFeatures(PreFilterPlugin, FilterPlugin):
    """Rejects nodes whose kubelet does not declare a feature that the pod needs.

    | the pod has | the node declares, in `status.declaredFeatures` |
    |---|---|
    | `restartPolicyRules` with the action `RestartAllContainers` | `RestartAllContainersOnContainerExits` |
    | `hostNetwork: true` with `hostUsers: false` | `UserNamespacesHostNetworkSupport` |

    - `node(s) didn't match Pod's required features`

    Source: kube-scheduler, plugins/nodedeclaredfeatures/nodedeclaredfeatures.go; component-helpers,
    nodedeclaredfeatures/features.
    """

    name: ClassVar[str] = "NodeDeclaredFeatures"
    on_by_default: ClassVar[bool] = True
    depends: ClassVar[Change] = Change.FEATURES

    def pre_filter(self, pod: Pod, tables: Tables, state: CycleState) -> PreFilterResult:  # noqa: ARG002 - the pod says all
        """Skip pods that need no feature."""
        return Relevance.EVALUATE if pod.template.required_features else Relevance.SKIP

    def filter(self, pod: Pod, tables: Tables, state: CycleState, rows: Rows) -> Sequence[Rejection]:  # noqa: ARG002
        """Reject nodes that lack a feature."""
        declared = tables.fact(DeclaredFeatures).declared
        lacking = [~declared[feature][rows] for feature in sorted(pod.template.required_features)]
        return (Rejection(np.logical_or.reduce(lacking), REASON),)


class DeclaredFeatures(Fact):
    """Nodes by declared feature. declared: feature -> bool[nodes], for features that pods can need."""

    def __init__(self, tables: Columns) -> None:
        super().__init__(tables)
        self.declared: dict[str, BoolArray] = {name: np.zeros(tables.capacity, dtype=np.bool_) for name in FEATURES}

    def node_changed(self, row: int, node: Node | None) -> Change:
        of_node = () if node is None else node.status.declared_features
        for name, column in self.declared.items():
            column[row] = name in of_node
        return Change(0)

    def grow(self, capacity: int) -> None:
        self.declared = {name: resized(column, (capacity,), 0) for name, column in self.declared.items()}
