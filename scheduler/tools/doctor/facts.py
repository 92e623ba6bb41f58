"""Input of `kubectl gpushare doctor`. Pure."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from scheduler.kube import objects
from scheduler.kube.leases import Lease
from scheduler.kube.versions import ServerVersion
from scheduler.pods.gpu_request import ResourceNames

PLUGIN_LABEL: Final = ("app.kubernetes.io/name", "gpushare-scheduler-device-plugin")
SCHEDULER_LABEL: Final = ("app.kubernetes.io/name", "gpushare-scheduler")
FINISHED: Final = frozenset({"Succeeded", "Failed"})


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterFacts:
    """A cluster, read once.

    unit_mib: MiB in one unit of the scheduler. scheduler_names: ours. lease_name: `namespace/name`, "" without leader
    election. lease: None if it does not exist. lease_age_s: since its last renewal, by its holder's clock; None if
    unknown. lease_is_renewed: whether it was renewed during the read, or shortly before. policies: admission policies
    by name, and whether they are enforced everywhere; None if the API server has no such API.
    version: the API server's, None if unknown. away_since: by node, since when its device plugin has not been ready,
    RFC 3339. waiting_s: age of each pod without a node by uid, by this machine's clock; pods whose
    age is unknown are left out.
    unread: kinds that could not be read -> why.
    """

    nodes: Sequence[objects.Node]
    pods: Sequence[objects.PodObject]
    resources: ResourceNames
    unit_mib: int
    scheduler_names: frozenset[str]
    lease_name: str
    lease: Lease | None = None
    lease_age_s: float | None = None
    lease_is_renewed: bool = True
    policies: Mapping[str, bool] | None = field(default_factory=dict[str, bool])
    version: ServerVersion | None = None
    away_since: Mapping[str, str] = field(default_factory=dict[str, str])
    waiting_s: Mapping[str, float] = field(default_factory=dict[str, float])
    unread: Mapping[str, str] = field(default_factory=dict[str, str])

    @property
    def nobody_schedules(self) -> bool:
        """True if it is certain that no replica is the leader."""
        if not self.lease_name or "leases" in self.unread:
            return False
        return self.lease is None or not self.lease.spec.holder_identity or not self.lease_is_renewed
