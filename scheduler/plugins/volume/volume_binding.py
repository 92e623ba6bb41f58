"""VolumeBinding: a pod goes to a node where its claims have volumes or can get them.

The search covers all nodes at once:

    claims with a node ─┐
    claims ── volumes? ─┴─ none left ─▶ can one be made there? is there room for it?

Source: kube-scheduler, plugins/volumebinding/volume_binding.go; binder.go: FindPodVolumes, findMatchingVolumes,
checkVolumeProvisions.
"""

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, ClassVar, Final

import numpy as np
from pydantic import Field, field_validator

from scheduler.framework.cycle_state import CycleState
from scheduler.framework.plugin import (
    POINT,
    Detail,
    FilterPlugin,
    PluginArgs,
    PreFilterPlugin,
    PreFilterResult,
    Rejected,
    Rejection,
    Relevance,
    Reservation,
    ReservePlugin,
    ScorePlugin,
)
from scheduler.plugins.utilization import UtilizationShape, UtilizationShapePoint, line_of, points_on
from scheduler.plugins.volume.storage_usage import StorageUsage
from scheduler.pods.gpu_request import ResourceNames
from scheduler.pods.pod import Pod
from scheduler.pods.pod_volumes import ClaimKey
from scheduler.process.terminal import typed
from scheduler.state.changes import Change
from scheduler.state.columns.arrays import BoolArray, Int64Array, RowArray, Rows
from scheduler.state.columns.node_terms import LabelledRows
from scheduler.state.columns.row_masks import count_of, mask_of
from scheduler.state.tables import Tables
from scheduler.state.volumes.claim import SELECTED_NODE, Wants
from scheduler.state.volumes.claim_state import Bound, Delayed, Immediate, Missing
from scheduler.state.volumes.plan import VolumePlan
from scheduler.state.volumes.storage_class import FreeVolumes
from scheduler.state.volumes.volumes import Volumes

if TYPE_CHECKING:
    from scheduler.state.volumes.reachable import Choice


# With more claims than this, grouping equal rows pays off.
_FEW_CLAIMS: Final = 4


@dataclass(slots=True)
class MatchResult:
    """Volumes found for the claims. satisfied: bool[rows], every claim gets a volume there, ignoring missing capacity.

    enough: bool[rows], capacity for the volumes to create. volumes: for each claim, smallest first, the name of its
    volume on the first of the rows; "" for a volume to create.
    """

    satisfied: BoolArray
    enough: BoolArray
    volumes: tuple[tuple[ClaimKey, str], ...]


def find(
    volumes: Volumes, claims: Sequence[Delayed], nodes: LabelledRows, rows: Rows, usage: StorageUsage | None = None
) -> MatchResult:
    """Find volumes for the claims of one pod. usage: receives what they use."""
    count = count_of(rows, nodes.capacity)
    begun = [one for one in claims if one.selected]
    elsewhere = np.zeros(count, dtype=np.bool_)
    for selected in {claim.selected for claim in begun}:
        row = nodes.row_of.get(selected)
        elsewhere |= ~mask_of(() if row is None else (row,), rows, nodes.capacity)
    provision = _Provision(volumes, nodes, rows, usage, alive=~elsewhere)
    everywhere = np.ones(count, dtype=np.bool_)
    for claim in begun:
        provision.need(claim, everywhere)
    names = [(claim.key, "") for claim in begun]
    waiting = sorted((one for one in claims if not one.selected), key=lambda one: one.claim.wants.size)
    free: dict[str, _Free] = {}
    for claim in waiting:
        wants = claim.claim.wants
        of_class = volumes.of_class(wants.class_name)
        if of_class is None:
            continue
        sizes: Int64Array | int
        if claim.kept:
            matched, sizes = _kept(volumes, claim, nodes, rows, count)
            name = claim.kept if count and matched[0] else ""
        else:
            if wants.class_name not in free:
                free[wants.class_name] = _Free(of_class.free, nodes, rows, many=len(waiting) > _FEW_CLAIMS)
            matched, sizes, name = free[wants.class_name].take(wants)
        if usage is not None:
            usage.existing(wants.class_name, matched, wants.size, sizes)
        names.append((claim.key, name))
        if not matched.all():
            provision.need(claim, ~matched)
    return MatchResult(provision.satisfied & ~elsewhere, provision.enough, tuple(names))


def _kept(volumes: Volumes, claim: Delayed, nodes: LabelledRows, rows: Rows, count: int) -> tuple[BoolArray, int]:
    """Return (rows where the volume reserved for the claim can be used, its size). No other volume is allowed."""
    volume = volumes.volume(claim.kept)
    reach = None if volume is None else volumes.reach(volume)
    matched = np.ones(count, dtype=np.bool_) if reach is None else reach.over(nodes, rows)
    return matched, 0 if volume is None else volume.size


class _Free:
    """Free volumes of a class. Claims take them in the order of their sizes, separately on each row."""

    def __init__(self, free: FreeVolumes, nodes: LabelledRows, rows: Rows, *, many: bool) -> None:
        """many: whether there are enough claims to group rows that reach the same volumes."""
        self._free = free
        self._nodes = nodes
        self._rows = rows
        self._near = free.reachable.near(nodes, rows)
        like = free.reachable.like(nodes, rows) if many and len(self._near) else None
        self._places: RowArray | slice = slice(None)
        if like is not None:
            self._rows, self._places = like
        self._count = count_of(self._rows, nodes.capacity)
        # Claims with equal requirements but for the size can use the candidates of an earlier one: each takes the next.
        self._choices: dict[Wants, Choice] = {}
        self._taken: dict[Wants, list[Int64Array]] = {}

    def take(self, wants: Wants) -> tuple[BoolArray, Int64Array, str]:
        """Return (rows where the claim gets a volume, its size on each, the volume's name on the first row or "")."""
        slots = self._free.reachable.slots_at(self._ranks(wants))[self._places]
        name = self._free.name(int(slots[0])) if len(slots) and slots[0] >= 0 else ""
        return slots >= 0, self._free.reachable.sizes[slots], name

    def _ranks(self, wants: Wants) -> Int64Array:
        """Return int64[rows]: rank of the claim's volume, which later claims cannot have."""
        alike, end = wants._replace(size=0), self._free.reachable.end
        mine = self._taken.setdefault(alike, [])
        too_small = self._free.reachable.below(wants.size)
        ranks = np.maximum(mine[-1], too_small) if mine else np.full(self._count, too_small, dtype=np.int64)
        mine.append(ranks)
        left = np.flatnonzero(ranks < end)
        others = [other for kind, of_kind in self._taken.items() if kind != alike for other in of_kind]
        while len(left):
            ranks[left] = found = self._choice(alike).next(ranks[left], left)
            taken = np.zeros(len(left), dtype=np.bool_)
            for other in others:
                taken |= other[left] == found
            left = left[taken & (found < end)]
        return ranks

    def _choice(self, alike: Wants) -> "Choice":
        found = self._choices.get(alike)
        if found is None:
            suiting = self._free.suiting(alike, self._near)
            found = self._choices[alike] = self._free.reachable.choice(suiting, self._nodes, self._rows)
        return found


class _Provision:
    """Check whether volumes can be created. The first claim without one gives the reason."""

    def __init__(
        self, volumes: Volumes, nodes: LabelledRows, rows: Rows, usage: StorageUsage | None, *, alive: BoolArray
    ) -> None:
        self._usage = usage
        self._volumes = volumes
        self._nodes = nodes
        self._rows = rows
        self._alive = alive
        # Already required on all rows, with the capacity there; a second volume of this size is created there, too.
        self._needed: dict[tuple[str, int | None], Int64Array | None] = {}
        self.satisfied = np.ones_like(alive)
        self.enough = np.ones_like(alive)

    def need(self, claim: Delayed, on: BoolArray) -> None:
        """Require a new volume for the claim on these rows."""
        wants = claim.claim.wants
        asked = (wants.class_name, wants.size if claim.claim.has_size else None)
        if asked in self._needed:
            totals = self._needed[asked]
        else:
            totals = self._require(claim, on)
            if on.all():
                self._needed[asked] = totals
        if totals is not None and self._usage is not None:
            self._usage.new(wants.class_name, on & self._alive, wants.size, totals)

    def _require(self, claim: Delayed, on: BoolArray) -> Int64Array | None:
        """Return int64[rows]: capacity of the claim's class; None if it does not count."""
        wants = claim.claim.wants
        active = on & self._alive
        of_class = self._volumes.of_class(wants.class_name)
        if of_class is None or of_class.known is None or not active.any():
            return None
        can = np.zeros_like(active)
        if of_class.known.provisions:
            reach = of_class.known.reach()
            can = np.ones_like(active) if reach is None else reach.over(self._nodes, self._rows)
        self.satisfied &= ~(active & ~can)
        active &= can
        self._alive &= ~on | can
        if not (claim.claim.has_size and self._volumes.tells_capacity(of_class.known.provisioner)):
            return None
        totals = of_class.capacities.room(wants.size, self._nodes, self._rows)
        room = totals >= 0
        self.enough &= ~(active & ~room)
        self._alive &= ~active | room
        return totals


UNBOUND: Final = "pod has unbound immediate PersistentVolumeClaims"
BIND_CONFLICT: Final = "node(s) didn't find available persistent volumes to bind"
NODE_CONFLICT: Final = "node(s) didn't match PersistentVolume's node affinity"
NOT_ENOUGH_SPACE: Final = "node(s) did not have enough free storage"
NO_VOLUME: Final = "node(s) unavailable due to one or more pvc(s) bound to non-existent pv(s)"
_LONGEST_NODE: Final = 64


_EMPTIEST: Final = (UtilizationShapePoint(utilization=0, score=10), UtilizationShapePoint(utilization=100, score=0))


class VolumeBindingArgs(PluginArgs):
    """How long a placed pod waits for its volumes, and which storage it prefers."""

    bind_timeout_seconds: int = Field(
        default=600,
        ge=1,
        le=86_400,
        description="After this many seconds, the pod releases its allocation and is retried.",
    )
    shape: UtilizationShape = Field(
        default=_EMPTIEST,
        description="Line from utilization of the storage, in percent, to a score of 0 to 10. Empty: the default.",
    )

    @field_validator("shape")
    @classmethod
    def _some(cls, shape: tuple[UtilizationShapePoint, ...]) -> tuple[UtilizationShapePoint, ...]:
        return shape or _EMPTIEST


class VolumeBinding(PreFilterPlugin, FilterPlugin, ScorePlugin, ReservePlugin):
    """Rejects nodes that cannot use the volumes of the pod's claims, or for which no volume can be provided.

    Prefers nodes where these claims use little of the storage: for each class, the requested bytes in percent of the
    volumes that exist, or, on nodes where no claim gets one, of the CSIStorageCapacity from which the class creates
    them; `shape` turns it into points, and the score is their mean. Of several capacities with room, the smallest
    counts; kube-scheduler takes any. Before 1.37, kube-scheduler does not score storage by default.

    A claim that is **bound** uses its volume's node affinity. A claim of a class with `WaitForFirstConsumer` gets the
    smallest suitable free volume of the class on each node. Otherwise the class creates one, if `allowedTopologies`
    allow it and, for a driver with `storageCapacity`, a CSIStorageCapacity has room. A claim whose volume is being
    created already has its node. Generic ephemeral volumes are claims named `<pod>-<volume>`.

    - `pod has unbound immediate PersistentVolumeClaims`
    - `waiting for ephemeral volume controller to create the persistentvolumeclaim "p-scratch"`
    - `persistentvolumeclaim "data" not found`, `… bound to non-existent persistentvolume "pv"`, `… is being deleted`
    - `PVC ns/p-scratch was not created for pod ns/p (pod is not owner)`
    - `persistentvolume "pv" exceeds a limit of this scheduler: scheduling terms larger than 128`
    - `storageclass "fast" exceeds a limit of this scheduler: scheduling terms larger than 128`
    - `node(s) didn't match PersistentVolume's node affinity`
    - `node(s) didn't find available persistent volumes to bind`; if a claim's selected node is gone, with the claim
    - `node(s) did not have enough free storage`
    - `node(s) unavailable due to one or more pvc(s) bound to non-existent pv(s)`

    All of them are UnschedulableAndUnresolvable, so preemption does not help. Once a node is chosen, the pod reserves
    the volumes. Before the Binding, the scheduler writes `spec.claimRef` of each free volume, or
    `volume.kubernetes.io/selected-node` of each claim whose volume the class will create, and waits until all claims
    are bound. Between several volumes reserved for the claim, and between volumes of one size, the name decides;
    kube-scheduler takes any of them.
    Volumes of in-tree plugins are evaluated by their own labels and node affinity; kube-scheduler translates them if
    CSINode says so.
    Source: kube-scheduler, plugins/volumebinding.
    """

    name: ClassVar[str] = "VolumeBinding"
    on_by_default: ClassVar[bool] = True
    depends: ClassVar[Change] = Change.LABELS | Change.VOLUMES
    Args = VolumeBindingArgs
    args: VolumeBindingArgs

    def __init__(self, args: VolumeBindingArgs | None = None, resources: ResourceNames = ResourceNames()) -> None:  # noqa: B008 - immutable
        super().__init__(args, resources)
        self._points = points_on(line_of(self.args.shape))

    def signature(self, pod: Pod, tables: Tables) -> Hashable:
        """Return the state of the pod's claims."""
        return tables.volumes.of_pod(pod).alike if pod.volumes.claims else None

    def cache_key(self, pod: Pod, tables: Tables) -> Hashable:
        """Return the versions of the available volumes in the classes of the pod's claims."""
        return tables.volumes.of_pod(pod).cache_key if pod.volumes.claims else None

    def pre_filter(self, pod: Pod, tables: Tables, state: CycleState) -> PreFilterResult:  # noqa: ARG002 - the claims are looked up again
        """Reject a pod with a claim that makes it unschedulable on every node."""
        if not pod.volumes.claims:
            return Relevance.SKIP
        claim_states = tables.volumes.of_pod(pod).claim_states
        for claim_state in claim_states:
            if isinstance(claim_state, Missing):
                return Rejected(claim_state.reason, Change.VOLUMES)
        if any(isinstance(claim_state, Immediate) for claim_state in claim_states):
            return Rejected(UNBOUND, Change.VOLUMES)
        return Relevance.EVALUATE

    def filter(self, pod: Pod, tables: Tables, state: CycleState, rows: Rows) -> Sequence[Rejection]:  # noqa: ARG002 - as above
        """Reject nodes that can neither use nor get a volume of the pod."""
        claim_states = tables.volumes.of_pod(pod).claim_states
        rejections = _bound([one for one in claim_states if isinstance(one, Bound)], tables, rows)
        delayed = [one for one in claim_states if isinstance(one, Delayed)]
        if delayed:
            found = find(tables.volumes, delayed, tables, rows)
            stuck = [one for one in delayed if one.selected and one.selected not in tables.row_of]
            told = partial(_selected_node_gone, stuck) if stuck else None
            rejections += [
                Rejection(~found.satisfied, BIND_CONFLICT, told),
                Rejection(~found.enough, NOT_ENOUGH_SPACE),
            ]
        return rejections

    def scores(self, pod: Pod) -> bool:
        """Score pods with claims."""
        return bool(pod.volumes.claims)

    def score(self, pod: Pod, tables: Tables, state: CycleState, rows: Rows) -> Int64Array:  # noqa: ARG002 - as above
        """Return int64[rows]: 0..MAX_SCORE."""
        delayed = [one for one in tables.volumes.of_pod(pod).claim_states if isinstance(one, Delayed)]
        usage = StorageUsage(count_of(rows, tables.capacity))
        if delayed:
            find(tables.volumes, delayed, tables, rows, usage)
        return usage.points(self._points) * POINT

    def reserve(self, pod: Pod, tables: Tables, state: CycleState, row: int, now_ns: int) -> Reservation:  # noqa: ARG002 - as every Reserve
        """Reserve the volumes that the pod's claims get on the node."""
        claim_states = tables.volumes.of_pod(pod).claim_states
        delayed = [claim_state for claim_state in claim_states if isinstance(claim_state, Delayed)]
        if not delayed:
            return Reservation()
        found = find(tables.volumes, delayed, tables, slice(row, row + 1)).volumes
        taken = tuple((volume, key) for key, volume in found if volume)
        made = tuple(key for key, volume in found if not volume)
        return Reservation(volumes=VolumePlan(tables.names[row], taken, made, float(self.args.bind_timeout_seconds)))


def shown(node: str) -> str:
    """Return the name of a node from an annotation, which may contain any text."""
    return node[:_LONGEST_NODE] if node.isprintable() else repr(node[:_LONGEST_NODE])


@dataclass(frozen=True, slots=True)
class SelectedNodeGone(Detail):
    """Claim whose volume is being created on a node that does not exist. more: number of further such claims."""

    claim: ClaimKey
    node: str
    more: int

    def worded(self, reason: str) -> str:
        """Return text such as `…: claim data is waiting for a volume on node b, which does not exist; …`."""
        (namespace, name), more = self.claim, f" (and {self.more} more)" if self.more else ""
        remedy = typed("kubectl", "-n", namespace, "annotate", "pvc", name, f"{SELECTED_NODE}-")
        return (
            f"{reason}: claim {name}{more} is waiting for a volume on node {shown(self.node)}, "
            f"which does not exist; to reselect a node, run: {remedy}"
        )

    def joined(self, other: "SelectedNodeGone") -> "SelectedNodeGone":  # noqa: ARG002 - the same claims, whatever the nodes
        """Return the first one."""
        return self


def _selected_node_gone(claims: Sequence[Delayed], counted: BoolArray) -> SelectedNodeGone:  # noqa: ARG001 - as joined
    first = min(claims, key=lambda one: one.key)
    return SelectedNodeGone(first.key, first.selected, len(claims) - 1)


def _bound(claims: Sequence[Bound], tables: Tables, rows: Rows) -> list[Rejection]:
    """Return, for each node, the reason of the first claim that rejects it."""
    mismatch: BoolArray = np.zeros(count_of(rows, tables.capacity), dtype=np.bool_)
    for claim in claims:
        if not claim.there:
            return [
                Rejection(mismatch, NODE_CONFLICT),
                Rejection(~mismatch, NO_VOLUME),
            ]
        if claim.reach is not None:
            mismatch |= ~claim.reach.over(tables, rows)
    return [Rejection(mismatch, NODE_CONFLICT)] if claims else []
