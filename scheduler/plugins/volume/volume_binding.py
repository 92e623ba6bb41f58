"""VolumeBinding: a pod goes where its claims have their volumes, or can get them.

Source: kube-scheduler, plugins/volumebinding: volume_binding.go, binder.go.
"""

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import ClassVar, Final

import numpy as np
from pydantic import Field

from scheduler.framework.cycle_state import CycleState
from scheduler.framework.plugin import (
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
)
from scheduler.pods.pod import Pod
from scheduler.pods.pod_volumes import ClaimKey
from scheduler.process.terminal import typed
from scheduler.state.changes import Change
from scheduler.state.columns.arrays import BoolArray, Rows
from scheduler.state.columns.row_masks import count_of
from scheduler.state.tables import Tables
from scheduler.state.volumes.claim import SELECTED_NODE
from scheduler.state.volumes.claim_state import Bound, Delayed, Immediate, Missing
from scheduler.state.volumes.matching import find
from scheduler.state.volumes.plan import VolumePlan

UNBOUND: Final = "pod has unbound immediate PersistentVolumeClaims"
BIND_CONFLICT: Final = "node(s) didn't find available persistent volumes to bind"
NODE_CONFLICT: Final = "node(s) didn't match PersistentVolume's node affinity"
NOT_ENOUGH_SPACE: Final = "node(s) did not have enough free storage"
NO_VOLUME: Final = "node(s) unavailable due to one or more pvc(s) bound to non-existent pv(s)"
_LONGEST_NODE: Final = 64


class VolumeBindingArgs(PluginArgs):
    """How long a pod with a node waits for its volumes."""

    bind_timeout_seconds: int = Field(
        default=600,
        ge=1,
        le=86_400,
        description="Seconds, at most; then the pod gives its place back and is tried again.",
    )


class VolumeBinding(PreFilterPlugin, FilterPlugin, ReservePlugin):
    """Rejects nodes that cannot use the volumes of the pod's claims, or for which no volume can be provided.

    A claim that is **bound**: its volume's node affinity. A claim of a class with `WaitForFirstConsumer`: on each node
    the smallest free volume of the class that suits it, or else the class makes one: where `allowedTopologies` allow
    it and, for a driver with `storageCapacity`, a CSIStorageCapacity has room. A claim for which a volume is being
    made has its node already. Generic ephemeral volumes are claims named `<pod>-<volume>`.

    - `pod has unbound immediate PersistentVolumeClaims`
    - `waiting for ephemeral volume controller to create the persistentvolumeclaim "p-scratch"`
    - `persistentvolumeclaim "data" not found`, `… bound to non-existent persistentvolume "pv"`, `… is being deleted`
    - `PVC ns/p-scratch was not created for pod ns/p (pod is not owner)`
    - `persistentvolume "pv" has more than this scheduler reads: 5000 node affinity terms (at most 64)`
    - `storageclass "fast" has more than this scheduler reads: 5000 topology terms (at most 64)`
    - `node(s) didn't match PersistentVolume's node affinity`
    - `node(s) didn't find available persistent volumes to bind`; if a claim's selected node is gone, with the claim
    - `node(s) did not have enough free storage`
    - `node(s) unavailable due to one or more pvc(s) bound to non-existent pv(s)`

    All of them are UnschedulableAndUnresolvable: preemption does not help. Once a node is chosen, the pod reserves the
    volumes. Before the Binding, the scheduler writes `spec.claimRef` of each free volume, or
    `volume.kubernetes.io/selected-node` of each claim whose volume the class will create, and waits until all claims
    are bound. A volume reserved for the claim, and ties between volumes of a size, are decided by name, where
    kube-scheduler takes any.
    `StorageCapacityScoring` is off by default in 1.36, and not supported. Volumes of in-tree plugins are evaluated by
    their own labels and node affinity; kube-scheduler translates them where CSINode says so.
    Source: kube-scheduler, plugins/volumebinding.
    """

    name: ClassVar[str] = "VolumeBinding"
    on_by_default: ClassVar[bool] = True
    depends: ClassVar[Change] = Change.LABELS | Change.VOLUMES
    Args = VolumeBindingArgs
    args: VolumeBindingArgs

    def signature(self, pod: Pod, tables: Tables) -> Hashable:
        """State of its claims."""
        return tables.volumes.of_pod(pod).alike if pod.volumes.claims else None

    def cache_key(self, pod: Pod, tables: Tables) -> Hashable:
        """Versions of the available volumes of its claims' classes."""
        return tables.volumes.of_pod(pod).cache_key if pod.volumes.claims else None

    def pre_filter(self, pod: Pod, tables: Tables, state: CycleState) -> PreFilterResult:  # noqa: ARG002 - the claims are looked up again
        """Reject a pod with a claim that no node can help."""
        if not pod.volumes.claims:
            return Relevance.SKIP
        claim_states = tables.volumes.of_pod(pod).claim_states
        for claim_state in claim_states:
            if isinstance(claim_state, Missing):
                return Rejected(claim_state.reason, Change.VOLUMES)
        if any(isinstance(claim_state, Immediate) for claim_state in claim_states):
            return Rejected(UNBOUND, Change.VOLUMES)
        for claim_state in claim_states:
            if isinstance(claim_state, Bound) and claim_state.excess:
                about = f'persistentvolume "{claim_state.volume}"'
                return Rejected(f"{about} has more than this scheduler reads: {claim_state.excess}", Change.VOLUMES)
        return Relevance.EVALUATE

    def filter(self, pod: Pod, tables: Tables, state: CycleState, rows: Rows) -> Sequence[Rejection]:  # noqa: ARG002 - as above
        """Nodes that cannot use, or cannot get, a volume."""
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

    def reserve(self, pod: Pod, tables: Tables, state: CycleState, row: int, now_ns: int) -> Reservation:  # noqa: ARG002 - as every Reserve
        """The volumes that its claims get on the node."""
        claim_states = tables.volumes.of_pod(pod).claim_states
        delayed = [claim_state for claim_state in claim_states if isinstance(claim_state, Delayed)]
        if not delayed:
            return Reservation()
        found = find(tables.volumes, delayed, tables, slice(row, row + 1)).volumes
        taken = tuple((volume, key) for key, volume in found if volume)
        made = tuple(key for key, volume in found if not volume)
        return Reservation(volumes=VolumePlan(tables.names[row], taken, made, float(self.args.bind_timeout_seconds)))


def shown(node: str) -> str:
    """The name of a node that an annotation has, which may be any text."""
    return node[:_LONGEST_NODE] if node.isprintable() else repr(node[:_LONGEST_NODE])


@dataclass(frozen=True, slots=True)
class SelectedNodeGone(Detail):
    """A claim whose volume is being created on a node that does not exist. more: number of further such claims."""

    claim: ClaimKey
    node: str
    more: int

    def worded(self, reason: str) -> str:
        """`…: claim data gets its volume on node b, which does not exist: kubectl …`."""
        (namespace, name), more = self.claim, f" (and {self.more} more)" if self.more else ""
        remedy = typed("kubectl", "-n", namespace, "annotate", "pvc", name, f"{SELECTED_NODE}-")
        return (
            f"{reason}: claim {name}{more} gets its volume on node {shown(self.node)}, which does not exist: {remedy}"
        )

    def joined(self, other: "SelectedNodeGone") -> "SelectedNodeGone":  # noqa: ARG002 - the same claims, whatever the nodes
        """The first one."""
        return self


def _selected_node_gone(claims: Sequence[Delayed], counted: BoolArray) -> SelectedNodeGone:  # noqa: ARG001 - as joined
    first = min(claims, key=lambda one: one.key)
    return SelectedNodeGone(first.key, first.selected, len(claims) - 1)


def _bound(claims: Sequence[Bound], tables: Tables, rows: Rows) -> list[Rejection]:
    """The reason of the first claim that rejects, on each node."""
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
