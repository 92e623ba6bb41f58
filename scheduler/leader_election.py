"""Which of several replicas schedules: the one that holds the Lease. client-go's leaderelection, pure.

                 the Lease is free, was given up, or has not changed for its own duration; our write is accepted
    STANDBY ────────────────────────────────────────────────────────────────▶ LEADING
       ▲                                                                        │ another one holds it, or
       │                                                                        │ for renew_deadline no renewal
       └──────── (a process that has led does not: it ends) ◀── LOST ◀──────────┘

Only differences of one's own monotonic clock count: how long ago this process has seen the Lease change, and how long
ago it has sent the renewal that was accepted last. So clocks that differ, or are set, do no harm.

No bind request is sent after `renew_deadline`, and each ends within the bind time-out, which is shorter than
`lease_duration` less `renew_deadline`: when others may take the Lease, none of ours can take effect any more.

Source: staging/src/k8s.io/client-go/tools/leaderelection/leaderelection.go.
"""

from dataclasses import dataclass
from typing import Final

from scheduler.kube.leases import LeaseSpec

# Of the pause between two tries to become the leader, at most so much more at random: so replicas do not march in step.
JITTER: Final = 1.2
# Who gives the Lease up says so by this duration.
_GIVEN_UP_S: Final = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Timing:
    """Seconds; KubeSchedulerConfiguration's leaderElection.

    lease_duration_s: whole ones; so long after a renewal others keep off. renew_deadline_s: so long the leader goes on
    without one. retry_period_s: between two tries.
    """

    lease_duration_s: int
    renew_deadline_s: float
    retry_period_s: float


class LeaderElection:
    """What one replica knows of the Lease. Owned by the event loop."""

    def __init__(self, identity: str, timing: Timing) -> None:
        """identity: of this process; no other one has it."""
        self.identity = identity
        self._timing = timing
        self._seen: LeaseSpec | None = None
        self._version = ""
        self._changed_s = 0.0
        self._renewed_s: float | None = None

    @property
    def holder(self) -> str:
        """Who was seen to hold the Lease last, "" for nobody."""
        return "" if self._seen is None else self._seen.holder_identity

    def observe(self, spec: LeaseSpec | None, version: str, now_s: float) -> None:
        """The API server has shown the Lease, None: there is none."""
        if spec != self._seen:
            self._seen, self._changed_s = spec, now_s
        self._version = version

    def wanted(self, now_s: float, wall: str) -> tuple[LeaseSpec, str] | None:
        """What to write, and over which version ("": there is none yet); None while another one holds the Lease.

        wall: the time, as RFC 3339.
        """
        seen, mine = self._seen, self.identity
        if seen is None:
            return self._of_mine(wall, acquired=wall, transitions=0), ""
        if seen.holder_identity == mine:
            return self._of_mine(wall, acquired=seen.acquire_time, transitions=seen.lease_transitions), self._version
        if seen.holder_identity and now_s - self._changed_s < seen.lease_duration_seconds:
            return None
        return self._of_mine(wall, acquired=wall, transitions=seen.lease_transitions + 1), self._version

    def written(self, spec: LeaseSpec, version: str, sent_s: float) -> None:
        """The API server has accepted what was sent at sent_s."""
        self.observe(spec, version, sent_s)
        self._renewed_s = sent_s

    def given_up(self, wall: str) -> tuple[LeaseSpec, str] | None:
        """What to write at a clean end, so that another one need not wait; None where the Lease is not ours."""
        if self._seen is None or self._seen.holder_identity != self.identity:
            return None
        spec = LeaseSpec("", _GIVEN_UP_S, wall, wall, self._seen.lease_transitions)
        return spec, self._version

    def leads_until_s(self) -> float | None:
        """Until when this replica may send requests as the leader, by its clock; None: it has never led."""
        return None if self._renewed_s is None else self._renewed_s + self._timing.renew_deadline_s

    def is_lost(self, now_s: float) -> bool:
        """It has led, and another one holds the Lease, or it has not been renewed in time."""
        until_s = self.leads_until_s()
        return until_s is not None and (now_s >= until_s or self.holder != self.identity)

    def _of_mine(self, wall: str, *, acquired: str, transitions: int) -> LeaseSpec:
        return LeaseSpec(self.identity, self._timing.lease_duration_s, acquired, wall, transitions)
