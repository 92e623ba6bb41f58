"""VolumeZone: a volume with a zone in its labels is used in that zone.

Source: kube-scheduler, plugins/volumezone/volume_zone.go.
"""

from collections.abc import Hashable, Sequence
from typing import ClassVar, Final

import numpy as np

from scheduler.framework.cycle_state import CycleState, StateKey
from scheduler.framework.plugin import FilterPlugin, PreFilterPlugin, PreFilterResult, Rejected, Rejection, Relevance
from scheduler.pods.pod import Pod
from scheduler.state.changes import Change
from scheduler.state.columns.arrays import BoolArray, Rows
from scheduler.state.columns.labels import ABSENT
from scheduler.state.columns.row_masks import count_of
from scheduler.state.columns.selectors import Expression, Operator
from scheduler.state.tables import Tables
from scheduler.state.volumes.volume import BETA_KEYS, TOPOLOGY_KEYS, Zone

REASON: Final = "node(s) had no available volume zone"
_ZONES: Final[StateKey[tuple[Zone, ...]]] = StateKey("volume_zone.zones")


class VolumeZone(PreFilterPlugin, FilterPlugin):
    """Rejects nodes outside the zones and regions that the labels of the pod's bound volumes name.

    The labels are `topology.kubernetes.io/zone` and `…/region`, and the older `failure-domain.beta.kubernetes.io/…`; a
    label may name several zones, `a__b`. A node without these labels accepts every volume. Generic ephemeral
    volumes are ignored, as in kube-scheduler.

    - `node(s) had no available volume zone`
    - `persistentvolume "pv" not found`

    Both are UnschedulableAndUnresolvable, so preemption does not help.
    Source: kube-scheduler, plugins/volumezone/volume_zone.go.
    """

    name: ClassVar[str] = "VolumeZone"
    on_by_default: ClassVar[bool] = True
    depends: ClassVar[Change] = Change.LABELS | Change.VOLUMES

    def signature(self, pod: Pod, tables: Tables) -> Hashable:
        """Return the zones of the pod's volumes, and which of the volumes exist."""
        if not pod.volumes.claims:
            return None
        return tuple((one.zones, "" if one.there else one.volume) for one in tables.volumes.of_pod(pod).bound)

    def pre_filter(self, pod: Pod, tables: Tables, state: CycleState) -> PreFilterResult:
        """Find the zones of the pod's volumes; reject the pod if a volume does not exist."""
        if not pod.volumes.claims:
            return Relevance.SKIP
        volumes = tables.volumes.of_pod(pod).bound
        for volume in volumes:
            if not volume.there:
                return Rejected(f'persistentvolume "{volume.volume}" not found', Change.VOLUMES)
        zones = tuple(dict.fromkeys(zone for volume in volumes for zone in volume.zones))
        state.write(_ZONES, zones)
        return Relevance.EVALUATE if zones else Relevance.SKIP

    def filter(self, pod: Pod, tables: Tables, state: CycleState, rows: Rows) -> Sequence[Rejection]:  # noqa: ARG002 - PreFilter has read it
        """Reject nodes in another zone."""
        somewhere: BoolArray = np.zeros(count_of(rows, tables.capacity), dtype=np.bool_)
        for key in TOPOLOGY_KEYS:
            somewhere |= tables.labels.column(key).codes[rows] != ABSENT
        outside = np.zeros_like(somewhere)
        for key, values in state.read(_ZONES):
            outside |= ~_is_in(tables, key, values, rows)
        return (Rejection(somewhere & outside, REASON),)


def _is_in(tables: Tables, key: str, values: frozenset[str], rows: Rows) -> BoolArray:
    """Return bool[rows]: the node has one of the values, under the old label or, without it, under the current."""
    column = tables.labels.column(key)
    codes = column.codes[rows]
    here: BoolArray = Expression(key, Operator.IN, values).verdicts(column)[codes]
    if key in BETA_KEYS:
        here = np.where(codes == ABSENT, _is_in(tables, BETA_KEYS[key], values, rows), here)
    return here
