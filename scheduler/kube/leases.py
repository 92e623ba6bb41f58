"""Leases (coordination.k8s.io/v1), as leader election writes them: one holder, renewed before its time is over.

Source: staging/src/k8s.io/client-go/tools/leaderelection/resourcelock/leaselock.go.
"""

import msgspec

from scheduler.kube import objects


class LeaseSpec(msgspec.Struct, rename="camel", omit_defaults=True, frozen=True):
    """holder_identity: "" for nobody. lease_duration_seconds: how long after a renewal others keep off.

    acquire_time, renew_time: metav1.MicroTime, by the holder's clock: for people; nobody else's clock is compared.
    """

    holder_identity: str = ""
    lease_duration_seconds: int = 0
    acquire_time: str = ""
    renew_time: str = ""
    lease_transitions: int = 0


class Lease(msgspec.Struct, omit_defaults=True, frozen=True):
    """As the API server has it."""

    metadata: objects.ObjectMeta
    spec: LeaseSpec = LeaseSpec()
