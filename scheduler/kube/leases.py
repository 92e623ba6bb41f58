"""Leases (coordination.k8s.io/v1), as leader election writes them: one holder, renewed before its time is over.

Pure data, as `objects`. Source: staging/src/k8s.io/client-go/tools/leaderelection/resourcelock/leaselock.go.
"""

from typing import Final

import msgspec

from scheduler.kube.objects import ApiObject, Int32
from scheduler.kube.resource_versions import is_version

# Written by who gives the Lease up: see `leader_election`.
PODS_SEEN: Final = "gpushare/pods-seen"
# Written by the holder, where other replicas reach its web page.
PAGE_URL: Final = "gpushare/page-url"


class LeaseSpec(msgspec.Struct, rename="camel", frozen=True):
    """holder_identity: "" for nobody. lease_duration_seconds: how long after a renewal others keep off.

    acquire_time, renew_time: metav1.MicroTime, by the holder's clock: for people; nobody compares it with another.
    """

    holder_identity: str = ""
    lease_duration_seconds: Int32 = 0
    acquire_time: str | None = None
    renew_time: str | None = None
    lease_transitions: Int32 = 0


class Lease(ApiObject, frozen=True):
    """As the API server has it."""

    spec: LeaseSpec = LeaseSpec()

    @property
    def pods_version(self) -> str | None:
        """The resource version that who gave it up has written, None without."""
        written = (self.metadata.annotations or {}).get(PODS_SEEN, "")
        return written if is_version(written) else None

    @property
    def page_url(self) -> str | None:
        """Where the holder says that its web page is, None without. Whoever may write the Lease may write anything."""
        return (self.metadata.annotations or {}).get(PAGE_URL)
