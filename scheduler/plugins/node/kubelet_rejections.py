"""KubeletRejections: avoids a node whose kubelet has just rejected a similar pod.

Not a rule of kube-scheduler, which sends the next pod of a ReplicaSet to the same node repeatedly.
"""

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Final

import numpy as np

from scheduler.framework.cycle_state import CycleState
from scheduler.framework.plugin import Detail, FilterPlugin, PreFilterPlugin, PreFilterResult, Rejection, Relevance
from scheduler.pods.pod import Pod
from scheduler.state.changes import Change
from scheduler.state.columns.arrays import BoolArray, Rows
from scheduler.state.columns.row_masks import mask_of, places_of
from scheduler.state.kubelet_rejections import likeness
from scheduler.state.tables import Tables

REASON: Final = "node(s) had rejected such a pod"
_MOST_NAMED: Final = 3


@dataclass(frozen=True, slots=True)
class Because(Detail):
    """Reasons that the kubelets gave."""

    reasons: frozenset[str]

    def worded(self, reason: str) -> str:
        """Return text such as `node(s) had rejected such a pod (OutOfcpu)`."""
        named = sorted(self.reasons)[:_MOST_NAMED]
        more = ["…"] * (len(self.reasons) > _MOST_NAMED)
        return f"{reason} ({', '.join([*named, *more])})"

    def joined(self, other: Any) -> "Because":  # noqa: ANN401 - another of its own class
        return Because(self.reasons | other.reasons)


class KubeletRejections(PreFilterPlugin, FilterPlugin):
    """Temporarily rejects nodes whose kubelet has rejected a similar pod at admission.

    The kubelet may reject a pod that was bound to its node, with a reason such as `OutOfcpu` or
    `UnexpectedAdmissionError`. The node is then left out for pods with the same controller (or the same name without
    one) and the same requests. This lasts 10 s, doubles with each further rejection up to 5 minutes, and ends when such
    a pod runs there. Until then, nothing is preempted for such pods.

    - `node(s) had rejected such a pod (OutOfcpu)`

    Source: a rule of gpushare-scheduler.
    """

    name: ClassVar[str] = "KubeletRejections"
    on_by_default: ClassVar[bool] = True
    depends: ClassVar[Change] = Change.REJECTIONS

    def signature(self, pod: Pod, tables: Tables) -> Hashable:
        """Return the key that similar pods share, while a rejection lasts; otherwise None."""
        return likeness(pod) if tables.rejections.reasons(pod) else None

    def pre_filter(self, pod: Pod, tables: Tables, state: CycleState) -> PreFilterResult:  # noqa: ARG002 - nothing to keep
        """Skip pods that no kubelet has rejected."""
        return Relevance.EVALUATE if tables.rejections.reasons(pod) else Relevance.SKIP

    def filter(self, pod: Pod, tables: Tables, state: CycleState, rows: Rows) -> Sequence[Rejection]:  # noqa: ARG002
        """Reject nodes that are left out for the pod."""
        by_name = tables.rejections.reasons(pod)
        reasons = {tables.row_of[node]: why for node, why in by_name.items() if node in tables.row_of}

        def because(mask: BoolArray) -> Detail:
            counted = set(np.flatnonzero(mask).tolist())
            return Because(frozenset(reasons[row] for place, row in places_of(reasons, rows) if place in counted))

        return (Rejection(mask_of(reasons, rows, tables.capacity), REASON, because),)
