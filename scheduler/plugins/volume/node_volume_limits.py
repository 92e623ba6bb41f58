"""NodeVolumeLimits: a node attaches a limited number of volumes per CSI driver, and may need the driver itself.

AttachedVolumes counts the attached volumes per CSI driver and node, and keeps the nodes' drivers and limits. A volume
counts once for a node, however many pods use it, even if only the API server shows it as attached. A claim's driver
changes when the claim gets its volume. For updates of facts, see `fact`.
Source: kube-scheduler, plugins/nodevolumelimits/csi.go.
"""

from collections import Counter
from collections.abc import Collection, Hashable, Mapping, Sequence
from typing import ClassVar, Final, NamedTuple

import numpy as np

from scheduler.framework.cycle_state import CycleState
from scheduler.framework.plugin import FilterPlugin, PreFilterPlugin, PreFilterResult, Rejection, Relevance
from scheduler.kube.objects import Node
from scheduler.pods.pod import Pod
from scheduler.pods.pod_volumes import Attachable, ClaimKey
from scheduler.state.changes import Change
from scheduler.state.columns.arrays import BoolArray, Int64Array, Rows, resized
from scheduler.state.columns.row_masks import count_of, mask_of
from scheduler.state.facts.fact import Columns, NodeFact
from scheduler.state.tables import Tables
from scheduler.state.volumes.volumes import Changes

UNLIMITED: Final = -1
_NOT_INSTALLED: Final = -2


class PodUses(NamedTuple):
    """Attachments of a pod: by its claims, and disks that it names itself."""

    claims: tuple[ClaimKey, ...]
    disks: tuple[Attachable, ...]


class AttachedVolumes(NodeFact[PodUses]):
    """Attached volumes: an entry per volume and node in use, and a column per driver."""

    def __init__(self, tables: Columns) -> None:
        super().__init__(tables)
        # By driver, int64[nodes]: distinct volumes attached; limit of the node. By driver: nodes with it; with a limit.
        self._counts: dict[str, Int64Array] = {}
        self._limits: dict[str, Int64Array] = {}
        self._installed: Counter[str] = Counter()
        self._limited: Counter[str] = Counter()
        # For pods: volume -> row -> uses; claim -> row -> uses; the claim's volume.
        self._uses: dict[Attachable, Counter[int]] = {}
        self._rows_of: dict[ClaimKey, Counter[int]] = {}
        self._counted_as: dict[ClaimKey, Attachable | None] = {}
        # By row: attachments shown by the API server; drivers with their limits.
        self._shown: dict[int, frozenset[Attachable]] = {}
        self._drivers_on: dict[int, Mapping[str, int | None]] = {}
        self._node_of: dict[int, str] = {}

    def read(self, pod: Pod) -> PodUses | None:
        """Return the claims and disks of the pod; None if it has none."""
        volumes = pod.volumes
        if not (volumes.claims or volumes.attached):
            return None
        return PodUses(tuple(dict.fromkeys(pod.claim_keys)), tuple(dict.fromkeys(volumes.attached)))

    def book(self, row: int, read: PodUses, sign: int) -> None:
        for disk in read.disks:
            self._use(disk, row, sign)
        for key in read.claims:
            rows = self._rows_of.get(key)
            if rows is None:
                rows = self._rows_of[key] = Counter()
                self._counted_as[key] = self.tables.volumes.attached(key)
            counted = self._counted_as[key]
            rows[row] += sign
            if not rows[row]:
                del rows[row]
            if not rows:
                del self._rows_of[key], self._counted_as[key]
            if counted is not None:
                self._use(counted, row, sign)

    def node_changed(self, row: int, node: Node | None) -> Change:
        if node is None:
            self._node_of.pop(row, None)
        else:
            self._node_of[row] = node.metadata.name
        self._look_at_node(row)
        return Change(0)

    def volumes_changed(self, changes: Changes) -> Collection[int]:
        """Recount the changed claims and attachments."""
        moved: set[int] = set()
        for key in changes.claims:
            if key in self._counted_as:
                moved |= self._recount(key)
        for node in changes.nodes:
            row = self.tables.row_of.get(node)
            if row is not None:
                self._look_at_node(row)
        return moved

    def grow(self, capacity: int) -> None:
        self._counts = {driver: resized(column, (capacity,), 0) for driver, column in self._counts.items()}
        self._limits = {driver: resized(column, (capacity,), _NOT_INSTALLED) for driver, column in self._limits.items()}

    def asked(self, pod: Pod) -> dict[str, list[Attachable]]:
        """Return the volumes that the pod would attach, by driver; only drivers that some node limits or needs."""
        found: dict[str, list[Attachable]] = {}
        needed = self.tables.volumes.needed_drivers
        if not (self._limited or needed):
            return found
        uses = (*pod.volumes.attached, *self.tables.volumes.of_pod(pod).attached)
        for one in dict.fromkeys(uses):
            if one is not None and (one[0] in self._limited or one[0] in needed):
                found.setdefault(one[0], []).append(one)
        return found

    def signature(self, pod: Pod) -> Hashable:
        """Return a key that is equal for pods with equal requests.

        Volumes of claims that no node has attached are interchangeable. Disks that pods name directly are not, because
        a later attachment does not search for pods that name its disk.
        """
        asked, needed = sorted(self.asked(pod).items()), self.tables.volumes.needed_drivers
        used = [
            (driver, driver in needed, len(all_of), tuple(sorted(one for one in all_of if one in self._uses)))
            for driver, all_of in asked
        ]
        return (pod.volumes.attached, *used) if used else ()

    def exceeded(self, driver: str, asked: list[Attachable], rows: Rows) -> BoolArray:
        """Return bool[rows]: with these volumes of the driver, the node would exceed its limit."""
        capacity = self.tables.capacity
        here = np.zeros(count_of(rows, capacity), dtype=np.int64)
        if driver not in self._limited:
            return here > 0
        for one in asked:
            if one in self._uses:
                here += mask_of(self._uses[one], rows, capacity)
        new = len(asked) - here
        counts, limits = self._counts.get(driver), self._limits[driver][rows]
        total = new if counts is None else counts[rows] + new
        over: BoolArray = (limits >= 0) & (new > 0) & (total > limits)
        return over

    def missing(self, driver: str, rows: Rows) -> BoolArray:
        """Return bool[rows]: the node needs the driver for its volumes and lacks it."""
        count = count_of(rows, self.tables.capacity)
        if driver not in self.tables.volumes.needed_drivers:
            return np.zeros(count, dtype=np.bool_)
        if driver not in self._limits:
            return np.ones(count, dtype=np.bool_)
        return np.asarray(self._limits[driver][rows] == _NOT_INSTALLED, dtype=np.bool_)

    def _use(self, volume: Attachable, row: int, pods: int) -> None:
        """Add `pods`, which may be negative, to the number of the row's pods that use the volume."""
        rows = self._uses.setdefault(volume, Counter())
        before = rows[row]
        rows[row] += pods
        if not rows[row]:
            del rows[row]
        if not rows:
            del self._uses[volume]
        if bool(before) == bool(before + pods):
            return
        if volume not in self._shown.get(row, ()):
            self._count(volume[0], row, 1 if pods > 0 else -1)
        if pods > 0:
            # Another pod with this volume does not count again towards the node's limit.
            self.moved |= int(Change.ATTACHMENTS)

    def _count(self, driver: str, row: int, sign: int) -> None:
        column = self._counts.get(driver)
        if column is None:
            column = self._counts[driver] = np.zeros(self.tables.capacity, dtype=np.int64)
        column[row] += sign

    def _recount(self, key: ClaimKey) -> set[int]:
        """Update a claim that now counts for another volume, or counts for the first time."""
        old, new = self._counted_as[key], self.tables.volumes.attached(key)
        if old == new:
            return set()
        self._counted_as[key] = new
        for row, uses in self._rows_of[key].items():
            if old is not None:
                self._use(old, row, -uses)
            if new is not None:
                self._use(new, row, uses)
        return set(self._rows_of[key])

    def _look_at_node(self, row: int) -> None:
        """Update the node's drivers, their limits, and the attachments shown for it."""
        name, volumes = self._node_of.get(row), self.tables.volumes
        self._install(row, {} if name is None else volumes.attachments.drivers(name))
        shown = frozenset() if name is None else volumes.attached_to(name)
        before = self._shown.pop(row, frozenset())
        for one in before ^ shown:
            if row not in self._uses.get(one, ()):
                self._count(one[0], row, 1 if one in shown else -1)
        if shown:
            self._shown[row] = shown

    def _install(self, row: int, drivers: Mapping[str, int | None]) -> None:
        for driver, limit in self._drivers_on.pop(row, {}).items():
            self._limits[driver][row] = _NOT_INSTALLED
            self._installed[driver] -= 1
            self._limited[driver] -= limit is not None
            if not self._limited[driver]:
                del self._limited[driver]
            if not self._installed[driver]:
                del self._installed[driver], self._limits[driver]
        for driver, limit in drivers.items():
            self._installed[driver] += 1
            if driver not in self._limits:
                self._limits[driver] = np.full(self.tables.capacity, _NOT_INSTALLED, dtype=np.int64)
            self._limits[driver][row] = UNLIMITED if limit is None else limit
            if limit is not None:
                self._limited[driver] += 1
        if drivers:
            self._drivers_on[row] = drivers


REASON: Final = "node(s) exceed max volume count"


class NodeVolumeLimits(PreFilterPlugin, FilterPlugin):
    """Rejects nodes that would exceed their limit of attached volumes of a CSI driver, or lack a driver that they need.

    The limit is `allocatable.count` of the driver in the node's CSINode; without it there is no limit. These count once
    each: volumes of the claims of the node's pods, in-tree disks of a kind that a CSI driver has taken over, and other
    volumes in VolumeAttachments. A claim without a volume counts for its class's driver.

    A node needs the driver of each volume if its CSIDriver says `preventPodSchedulingIfMissing`; kube-scheduler
    does so from 1.37 on.

    - `ebs.csi.aws.com CSI driver is not installed on the node`
    - `node(s) exceed max volume count`

    The reasons are Unschedulable, so preemption may help.
    Source: kube-scheduler, plugins/nodevolumelimits/csi.go.
    """

    name: ClassVar[str] = "NodeVolumeLimits"
    on_by_default: ClassVar[bool] = True
    depends: ClassVar[Change] = Change.PODS | Change.ATTACHMENTS

    def start(self, tables: Tables) -> None:
        """Count from the first pod on: with thousands of pods, the first decision would otherwise take long."""
        tables.fact(AttachedVolumes)

    def signature(self, pod: Pod, tables: Tables) -> Hashable:
        """Return the number of volumes of each driver, and the volumes that are attached somewhere."""
        if not (pod.volumes.claims or pod.volumes.attached):
            return None
        return tables.fact(AttachedVolumes).signature(pod)

    def pre_filter(self, pod: Pod, tables: Tables, state: CycleState) -> PreFilterResult:  # noqa: ARG002 - the pod and its claims say all
        """Skip pods that would attach nothing that a node limits."""
        if not (pod.volumes.claims or pod.volumes.attached):
            return Relevance.SKIP
        return Relevance.EVALUATE if tables.fact(AttachedVolumes).asked(pod) else Relevance.SKIP

    def filter(self, pod: Pod, tables: Tables, state: CycleState, rows: Rows) -> Sequence[Rejection]:  # noqa: ARG002 - as above
        """Reject nodes without a driver that they need, and nodes that would have too many volumes."""
        attached = tables.fact(AttachedVolumes)
        none = np.zeros(count_of(rows, tables.capacity), dtype=np.bool_)
        exceeded, missing, rejections = none.copy(), none.copy(), []
        for driver, asked in sorted(attached.asked(pod).items()):
            exceeded |= attached.exceeded(driver, asked, rows)
            lacks = attached.missing(driver, rows) & ~missing
            missing |= lacks
            if lacks.any():
                rejections.append(Rejection(lacks, f"{driver} CSI driver is not installed on the node"))
        return (*rejections, Rejection(exceeded & ~missing, REASON))
