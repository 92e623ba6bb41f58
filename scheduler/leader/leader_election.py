"""Leader election: the holder of the Lease is active. client-go's leaderelection, without I/O or clock.

              the Lease is free, or unchanged for its own duration; our write is accepted
    STANDBY ───────────────────────────────────────────────────────────────────▶ LEADING
                                                                 for renew_deadline  │ ▲  our renewal over the version
                                                                 no renewal          ▼ │  that we wrote is accepted
                             the process ends ◀── LOST ◀─────────────────────── SENDS NOTHING
                                                another replica holds it

Only time differences by this process's own clock count: the time since it saw the Lease change, and since it sent the
last accepted renewal. So clocks may differ, or be adjusted.

The leader sends nothing after `renew_deadline`. Each of its bind requests ends within the bind time-out, which is
shorter than `lease_duration` less `renew_deadline`. So when others may take the Lease, none of its Bindings can take
effect. After a longer outage of the API server, the leader can resume: a renewal over the version that it wrote itself
is accepted only if no other replica held the Lease in between. A deleted Lease still counts as held for its duration,
because a deletion does not prove that there is no leader.

Source: staging/src/k8s.io/client-go/tools/leaderelection/leaderelection.go, where the process ends at renew_deadline.
"""

from dataclasses import dataclass
from typing import Final

from scheduler.kube.leases import Lease, LeaseSpec
from scheduler.kube.port import WantedLease
from scheduler.kube.resource_versions import version_number

# Duration that marks a Lease as released.
_GIVEN_UP_S: Final = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Timing:
    """Durations in seconds, as in KubeSchedulerConfiguration's leaderElection.

    lease_duration_s: whole seconds; other replicas wait this long after a renewal. renew_deadline_s: the leader
    continues this long without a renewal. retry_period_s: interval between attempts.
    """

    lease_duration_s: int
    renew_deadline_s: float
    retry_period_s: float


@dataclass(frozen=True, slots=True)
class TakeOver:
    """How this replica took over the Lease.

    pods_version: resource version of the last pod change that the previous leader had seen once all its bind requests
    were answered; None if unknown. sends_for_s: how long a previous leader may continue to send requests; None if none
    can be running. first: whether there was no Lease, and we have never seen one.
    """

    pods_version: str | None = None
    sends_for_s: float | None = None
    first: bool = False


class LeaderElection:
    """A replica's knowledge of the Lease. Owned by the event loop."""

    def __init__(self, namespace: str, name: str, identity: str, timing: Timing) -> None:
        """namespace, name: the Lease's. identity: this process's; unique among running processes."""
        self.namespace = namespace
        self.name = name
        self.identity = identity
        self.timing = timing
        # None until this replica takes over the Lease.
        self.taken_over: TakeOver | None = None
        self._version = ""
        self._spec: LeaseSpec | None = None
        self._pods_version: str | None = None
        self._changed_s = 0.0
        self._renewed_s = 0.0
        self._tried_s: float | None = None
        self._taking_over = TakeOver()

    @property
    def holder(self) -> str:
        """Last seen holder of the Lease; "" if none."""
        return "" if self._spec is None else self._spec.holder_identity

    def observe(self, lease: Lease, now_s: float) -> None:
        """Record a Lease from a watch event; it may be older than the known version."""
        version = lease.metadata.resource_version
        if self._version and version_number(version) <= version_number(self._version):
            return
        if lease.spec != self._spec:
            self._changed_s, self._tried_s = now_s, None
        self._spec, self._version, self._pods_version = lease.spec, version, lease.pods_version

    def gone(self, now_s: float) -> None:
        """Record that, according to a watch, there is no Lease."""
        if self._version:
            self._version, self._changed_s, self._tried_s = "", now_s, None

    def wanted(self, now_s: float, wall: str) -> WantedLease | None:
        """The write that is due; None before that, while another replica holds the Lease, or once lost.

        wall: RFC 3339.
        """
        if now_s < self.due_s() or self.lost(now_s):
            return None
        self._tried_s = now_s
        spec, mine = self._spec, self.holder == self.identity
        self._taking_over = self._take_over()
        acquired = spec.acquire_time if spec is not None and mine else wall
        transitions = 0 if spec is None else spec.lease_transitions + (not mine)
        ours = LeaseSpec(self.identity, self.timing.lease_duration_s, acquired, wall, transitions)
        return self._write(ours)

    def due_s(self) -> float:
        """Time when the next write is due."""
        if self.taken_over is not None:
            due_s = self._renewed_s + self.timing.retry_period_s if self._version else 0.0
        elif self._spec is None or self.holder in {"", self.identity}:
            due_s = 0.0
        else:
            due_s = self._changed_s + max(self._spec.lease_duration_seconds, self.timing.lease_duration_s)
        return due_s if self._tried_s is None else max(due_s, self._tried_s + self.timing.retry_period_s)

    def written(self, wanted: WantedLease, version: str, sent_s: float) -> None:
        """Record that the API server accepted the write sent at `sent_s`: this replica holds the Lease."""
        if self.taken_over is None:
            self.taken_over = self._taking_over
        self._renewed_s, self._tried_s = sent_s, None
        if not self._version or version_number(version) >= version_number(self._version):
            # Otherwise a watch has already shown a later version.
            self._spec, self._version, self._pods_version, self._changed_s = (
                wanted.spec,
                version,
                wanted.pods_version,
                sent_s,
            )

    def given_up(self, wall: str, pods_version: str) -> WantedLease | None:
        """The write that releases the Lease on an orderly exit; None if this replica does not hold it.

        pods_version: resource version of the last pod change in our tables, which include all our bindings.
        """
        if self._spec is None or self.taken_over is None or self.holder != self.identity or not self._version:
            return None
        return self._write(
            LeaseSpec("", _GIVEN_UP_S, wall, wall, self._spec.lease_transitions), pods_version=pods_version
        )

    def leads(self, now_s: float) -> bool:
        """Whether this replica may send a request as the leader."""
        return self.taken_over is not None and now_s < self.ends_s() and not self.lost(now_s)

    def lost(self, now_s: float) -> str:
        """Why this replica, which was the leader, no longer leads; "" if it still leads, or has never led."""
        if self.taken_over is None:
            return ""
        if self.holder != self.identity:
            return f"{self.holder or 'no one'} holds it now"
        if not self._version and now_s >= self.ends_s() - self.request_timeout_s:
            return f"it was deleted, and was not renewed for {now_s - self._renewed_s:.0f} s"
        return ""

    @property
    def request_timeout_s(self) -> float:
        """Time-out of one write."""
        return self.timing.renew_deadline_s / 2

    def ends_s(self) -> float:
        """Time when leadership ends unless it is renewed."""
        return self._renewed_s + self.timing.renew_deadline_s

    def _take_over(self) -> TakeOver:
        """Return how we took over the Lease. Only a write over the version seen proves that nobody held it since."""
        if self.holder not in {"", self.identity} and self._version:
            return TakeOver()
        if self._version and not self.holder and self._pods_version is not None:
            return TakeOver(self._pods_version)
        # There is no Lease, or its holder was removed: a leader may not know that yet. The same applies if this replica
        # is the holder: its write took effect without an answer.
        return TakeOver(sends_for_s=self.timing.renew_deadline_s, first=self._spec is None and not self._version)

    def _write(self, spec: LeaseSpec, *, pods_version: str | None = None) -> WantedLease:
        return WantedLease(
            namespace=self.namespace,
            name=self.name,
            version=self._version,
            spec=spec,
            pods_version=pods_version,
        )
