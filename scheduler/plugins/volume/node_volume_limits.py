"""NodeVolumeLimits: a node attaches a limited number of volumes per CSI driver.

Source: kube-scheduler, plugins/nodevolumelimits/csi.go.
"""

from collections.abc import Hashable, Sequence
from typing import ClassVar, Final

from scheduler.framework.cycle_state import CycleState
from scheduler.framework.plugin import FilterPlugin, PreFilterPlugin, PreFilterResult, Rejection, Relevance
from scheduler.pods.pod import Pod
from scheduler.state.changes import Change
from scheduler.state.columns.arrays import Rows
from scheduler.state.facts.attached_volumes import AttachedVolumes
from scheduler.state.tables import Tables

REASON: Final = "node(s) exceed max volume count"


class NodeVolumeLimits(PreFilterPlugin, FilterPlugin):
    """Rejects nodes that would exceed their limit of attached volumes of a CSI driver.

    The limit is `allocatable.count` of the driver in the node's CSINode; without one there is none. The count has each
    volume of the claims of the node's pods once, in-tree disks of a kind that a CSI driver has taken over, and other
    volumes in VolumeAttachments. A claim without a volume counts for its class's driver.

    - `node(s) exceed max volume count`

    It is Unschedulable: preemption may help.
    Source: kube-scheduler, plugins/nodevolumelimits/csi.go.
    """

    name: ClassVar[str] = "NodeVolumeLimits"
    on_by_default: ClassVar[bool] = True
    depends: ClassVar[Change] = Change.PODS | Change.ATTACHMENTS
    # Counted from the start: with thousands of pods, the first decision would take long.
    facts = (AttachedVolumes,)

    def signature(self, pod: Pod, tables: Tables) -> Hashable:
        """How many volumes of each driver; which of them are attached somewhere."""
        if not (pod.volumes.claims or pod.volumes.attached):
            return None
        return tables.fact(AttachedVolumes).signature(pod)

    def pre_filter(self, pod: Pod, tables: Tables, state: CycleState) -> PreFilterResult:  # noqa: ARG002 - the pod and its claims say all
        """Leave pods alone that have nothing attached which a node limits."""
        if not (pod.volumes.claims or pod.volumes.attached):
            return Relevance.SKIP
        return Relevance.EVALUATE if tables.fact(AttachedVolumes).asked(pod) else Relevance.SKIP

    def filter(self, pod: Pod, tables: Tables, state: CycleState, rows: Rows) -> Sequence[Rejection]:  # noqa: ARG002 - as above
        """Nodes that would have too many."""
        attached = tables.fact(AttachedVolumes)
        exceeded = [attached.exceeded(driver, asked, rows) for driver, asked in attached.asked(pod).items()]
        if not exceeded:
            return ()
        for more in exceeded[1:]:
            exceeded[0] |= more
        return (Rejection(exceeded[0], REASON),)
