"""Leases (coordination.k8s.io/v1) as leader election writes them: the holder renews its Lease before it expires.

Pure data, like `objects`. Source: staging/src/k8s.io/client-go/tools/leaderelection/resourcelock/leaselock.go.
"""

from typing import Final

import msgspec

from scheduler.kube.objects import ApiObject, Int32
from scheduler.kube.resource_versions import is_version

# Annotation that the holder writes when it releases the Lease: see `leader_election`.
PODS_SEEN: Final = "gpushare/pods-seen"


class LeaseSpec(msgspec.Struct, rename="camel", frozen=True):
    """Specification of a Lease. holder_identity: "" if no replica holds it.

    lease_duration_seconds: validity after a renewal. acquire_time, renew_time: metav1.MicroTime by the holder's clock,
    for users only: they are never compared with another clock.
    """

    holder_identity: str = ""
    lease_duration_seconds: Int32 = 0
    acquire_time: str | None = None
    renew_time: str | None = None
    lease_transitions: Int32 = 0


class Lease(ApiObject, frozen=True):
    """A coordination.k8s.io/v1 Lease."""

    spec: LeaseSpec = LeaseSpec()

    @property
    def pods_version(self) -> str | None:
        """The resource version that the last holder wrote when it released the Lease; None if it wrote none."""
        written = (self.metadata.annotations or {}).get(PODS_SEEN, "")
        return written if is_version(written) else None
