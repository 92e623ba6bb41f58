"""VolumeRestrictions: disks that two pods on a node may not share, and claims that only one pod may use.

Source: kube-scheduler, plugins/volumerestrictions/volume_restrictions.go.
"""

from collections import Counter
from collections.abc import Hashable, Sequence
from typing import TYPE_CHECKING, ClassVar, Final, TypeAlias

import numpy as np

from scheduler.framework.cycle_state import CycleState
from scheduler.framework.plugin import FilterPlugin, PreFilterPlugin, PreFilterResult, Rejected, Rejection, Relevance
from scheduler.pods.pod import Pod
from scheduler.pods.pod_volumes import ClaimKey, DiskUse
from scheduler.state.changes import Change
from scheduler.state.columns.arrays import BoolArray, Rows
from scheduler.state.columns.row_masks import count_of, mask_of
from scheduler.state.facts.fact import NodeFact
from scheduler.state.tables import Tables

if TYPE_CHECKING:
    from scheduler.state.facts.fact import Columns

DISK_CONFLICT: Final = "node(s) had no available disk"
ONE_POD_CONFLICT: Final = (
    "node(s) unavailable due to PersistentVolumeClaim with ReadWriteOncePod access mode already in-use by another pod"
)


class VolumeRestrictions(PreFilterPlugin, FilterPlugin):
    """Rejects nodes on which another pod uses a disk that cannot be shared; all nodes while another pod uses its claim.

    Two pods on a node may share a `gcePersistentDisk`, `iscsi` or `rbd` disk only if both read it; they may never share
    an `awsElasticBlockStore` disk. Only one pod of the cluster may use a claim with the access mode `ReadWriteOncePod`.

    - `node(s) had no available disk`
    - `node(s) unavailable due to PersistentVolumeClaim with ReadWriteOncePod access mode already in-use by another pod`
    - `persistentvolumeclaim "data" not found`

    The first two are Unschedulable, so preemption may help; the last one is UnschedulableAndUnresolvable.
    Source: kube-scheduler, plugins/volumerestrictions/volume_restrictions.go.
    """

    name: ClassVar[str] = "VolumeRestrictions"
    on_by_default: ClassVar[bool] = True
    depends: ClassVar[Change] = Change.PODS | Change.VOLUMES

    def signature(self, pod: Pod, tables: Tables) -> Hashable:
        """Return the pod's disks, its missing claim, and whether one of its ReadWriteOncePod claims is in use."""
        if not (pod.volumes.claims or pod.volumes.disks):
            return None
        return (pod.volumes.disks, tables.volumes.of_pod(pod).missing, self._in_use(pod, tables))

    def pre_filter(self, pod: Pod, tables: Tables, state: CycleState) -> PreFilterResult:  # noqa: ARG002 - the pod and its claims say all
        """Reject a pod with a claim that does not exist."""
        missing = tables.volumes.of_pod(pod).missing
        if missing:
            return Rejected(f'persistentvolumeclaim "{missing}" not found', Change.VOLUMES)
        judges = pod.volumes.disks or self._in_use(pod, tables)
        return Relevance.EVALUATE if judges else Relevance.SKIP

    def filter(self, pod: Pod, tables: Tables, state: CycleState, rows: Rows) -> Sequence[Rejection]:  # noqa: ARG002 - as above
        """Reject nodes with one of the pod's disks, or all nodes."""
        shared: BoolArray = np.zeros(count_of(rows, tables.capacity), dtype=np.bool_)
        if pod.volumes.disks:
            in_use = tables.fact(DisksInUse)
            for use in pod.volumes.disks:
                shared |= in_use.conflicts(use, rows)
        if self._in_use(pod, tables):
            # Nodes with the disk come first, because theirs is the first of the two reasons.
            return (Rejection(shared, DISK_CONFLICT), Rejection(~shared, ONE_POD_CONFLICT))
        return (Rejection(shared, DISK_CONFLICT),)

    @staticmethod
    def _in_use(pod: Pod, tables: Tables) -> bool:
        one_pod = tables.volumes.of_pod(pod).one_pod
        return bool(one_pod) and any(tables.fact(ClaimsInUse).users[key] for key in one_pod)


class ClaimsInUse(NodeFact[tuple[ClaimKey, ...]]):
    """Uses of claims. users: claim -> number of pods with a node that use it; ephemeral volumes are left out."""

    def __init__(self, tables: "Columns") -> None:
        super().__init__(tables)
        self.users: Counter[ClaimKey] = Counter()

    def read(self, pod: Pod) -> tuple[ClaimKey, ...] | None:
        """Return the claims of the pod; None if it has none."""
        if not pod.volumes.claims:
            return None
        return tuple((pod.key.namespace, claim.name) for claim in pod.volumes.claims if not claim.ephemeral) or None

    def book(self, row: int, read: tuple[ClaimKey, ...], sign: int) -> None:  # noqa: ARG002 - wherever it is
        """Add or remove a pod's claims."""
        for key in read:
            self.users[key] += sign
            if not self.users[key]:
                del self.users[key]


_Uses: TypeAlias = tuple[DiskUse, ...]


class DisksInUse(NodeFact[_Uses]):
    """Disks that the pods of each node use, and how they use them."""

    def __init__(self, tables: "Columns") -> None:
        super().__init__(tables)
        self._rows_with: dict[DiskUse, Counter[int]] = {}

    def read(self, pod: Pod) -> _Uses | None:
        """Return the disks of the pod; None if it has none."""
        return pod.volumes.disks or None

    def book(self, row: int, read: _Uses, sign: int) -> None:
        """Add or remove a pod's disks."""
        for use in read:
            rows = self._rows_with.setdefault(use, Counter())
            rows[row] += sign
            if not rows[row]:
                del rows[row]
            if not rows:
                del self._rows_with[use]

    def conflicts(self, use: DiskUse, rows: Rows) -> BoolArray:
        """Return bool[rows]: a pod there has the disk, and one of the two writes."""
        against = [DiskUse(use.disk, read_only=False)]
        if not use.read_only:
            against.append(DiskUse(use.disk, read_only=True))
        found: dict[int, int] = {}
        for other in against:
            found |= self._rows_with.get(other, {})
        return mask_of(found, rows, self.tables.capacity)
