"""Which of several replicas schedules: the one that holds the Lease. client-go's leaderelection, without I/O or clock.

              the Lease is free, or has not changed for its own duration; our write is accepted
    STANDBY ───────────────────────────────────────────────────────────────────▶ LEADING
                                                                 for renew_deadline  │ ▲  our renewal over the version
                                                                 no renewal          ▼ │  that we wrote is accepted
                             the process ends ◀── LOST ◀─────────────────────── SENDS NOTHING
                                                    another one holds it

Only differences of one's own clock count: how long ago this process has seen the Lease change, and how long ago it has
sent the renewal that was accepted last. So clocks that differ, or are set, do no harm.

The leader sends nothing after `renew_deadline`, and each of its bind requests ends within the bind time-out, which is
shorter than `lease_duration` less `renew_deadline`: when others may take the Lease, no Binding of ours can take effect.
An API server that was away for longer costs no leader: a renewal over the version that it wrote itself is accepted only
when nobody has held the Lease in between. A Lease that is gone counts as held for its duration, too: one deletion is no
proof that nobody leads.

Source: staging/src/k8s.io/client-go/tools/leaderelection/leaderelection.go, where the process ends at renew_deadline.
"""

from dataclasses import dataclass
from typing import Final

from scheduler.kube.leases import Lease, LeaseSpec
from scheduler.kube.port import WantedLease
from scheduler.kube.resource_versions import version_number

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


@dataclass(frozen=True, slots=True)
class TakeOver:
    """How the Lease became ours.

    pods_version: the last change of a pod that the leader before had seen once all its bind requests were answered; None
    where nobody says. sends_for_s: for so long a leader before, of which we have not seen how it ended, may go on to
    send requests; None where none does. first: there was no Lease, and we have never seen one.
    """

    pods_version: str | None = None
    sends_for_s: float | None = None
    first: bool = False


class LeaderElection:
    """What one replica knows of the Lease. Owned by the event loop."""

    def __init__(self, namespace: str, name: str, identity: str, timing: Timing) -> None:
        """namespace, name: of the Lease. identity: of this process; no other one that runs has it."""
        self.namespace = namespace
        self.name = name
        self.identity = identity
        self.timing = timing
        # Where other replicas reach the web page of this one; None where they do not.
        self.own_page: str | None = None
        # How it became ours, None as long as it is not.
        self.taken_over: TakeOver | None = None
        self._version = ""
        self._spec: LeaseSpec | None = None
        self._pods_seen: str | None = None
        self._page: str | None = None
        self._changed_s = 0.0
        self._renewed_s = 0.0
        self._tried_s: float | None = None
        self._taking_over = TakeOver()

    @property
    def holder(self) -> str:
        """Who was seen to hold the Lease last, "" for nobody."""
        return "" if self._spec is None else self._spec.holder_identity

    @property
    def leader_page(self) -> str | None:
        """Where the Lease says that the web page of another holder is; None without, or where nobody else holds it."""
        return None if self.holder in {"", self.identity} else self._page

    def observe(self, lease: Lease, now_s: float) -> None:
        """A watch shows the Lease, perhaps older than what is known already."""
        version = lease.metadata.resource_version
        if self._version and version_number(version) <= version_number(self._version):
            return
        if lease.spec != self._spec:
            self._changed_s, self._tried_s = now_s, None
        self._spec, self._version, self._pods_seen, self._page = lease.spec, version, lease.pods_version, lease.page_url

    def gone(self, now_s: float) -> None:
        """A watch shows that there is no Lease."""
        if self._version:
            self._version, self._changed_s, self._tried_s = "", now_s, None

    def wanted(self, now_s: float, wall: str) -> WantedLease | None:
        """What to write now; None before it is due, while another one holds the Lease, or once lost. wall: RFC 3339."""
        if now_s < self.due_s() or self.lost(now_s):
            return None
        self._tried_s = now_s
        spec, mine = self._spec, self.holder == self.identity
        self._taking_over = self._take_over()
        acquired = spec.acquire_time if spec is not None and mine else wall
        transitions = 0 if spec is None else spec.lease_transitions + (not mine)
        ours = LeaseSpec(self.identity, self.timing.lease_duration_s, acquired, wall, transitions)
        return self._write(ours, page_url=self.own_page)

    def due_s(self) -> float:
        """When to write next."""
        if self.taken_over is not None:
            due_s = self._renewed_s + self.timing.retry_period_s if self._version else 0.0
        elif self._spec is None or self.holder in {"", self.identity}:
            due_s = 0.0
        else:
            due_s = self._changed_s + max(self._spec.lease_duration_seconds, self.timing.lease_duration_s)
        return due_s if self._tried_s is None else max(due_s, self._tried_s + self.timing.retry_period_s)

    def written(self, wanted: WantedLease, version: str, sent_s: float) -> None:
        """The API server has accepted what was sent at sent_s: the Lease is ours."""
        if self.taken_over is None:
            self.taken_over = self._taking_over
        self._renewed_s, self._tried_s = sent_s, None
        if not self._version or version_number(version) >= version_number(self._version):
            # Otherwise a watch has shown a later one meanwhile.
            self._spec, self._version, self._pods_seen, self._changed_s = (
                wanted.spec,
                version,
                wanted.pods_version,
                sent_s,
            )
            self._page = wanted.page_url

    def given_up(self, wall: str, pods_version: str) -> WantedLease | None:
        """What to write at an end in good order, so that nobody has to wait; None when the Lease is not ours.

        pods_version: the last change of a pod in our tables, with all that we have bound.
        """
        if self._spec is None or self.taken_over is None or self.holder != self.identity or not self._version:
            return None
        return self._write(
            LeaseSpec("", _GIVEN_UP_S, wall, wall, self._spec.lease_transitions), pods_version=pods_version
        )

    def leads(self, now_s: float) -> bool:
        """Whether a request may be sent as the leader."""
        return self.taken_over is not None and now_s < self.ends_s() and not self.lost(now_s)

    def lost(self, now_s: float) -> str:
        """Why this replica, which has led, does not lead any more; "" while it does, or has not led."""
        if self.taken_over is None:
            return ""
        if self.holder != self.identity:
            return f"{self.holder or 'nobody'} holds it now"
        if not self._version and now_s >= self.ends_s() - self.request_timeout_s:
            return f"it is gone, and was not renewed for {now_s - self._renewed_s:.0f} s"
        return ""

    @property
    def request_timeout_s(self) -> float:
        """Of one write."""
        return self.timing.renew_deadline_s / 2

    def ends_s(self) -> float:
        """Until when this replica leads without another renewal."""
        return self._renewed_s + self.timing.renew_deadline_s

    def _take_over(self) -> TakeOver:
        """Only a write over the version that was seen proves that nobody has held the Lease since."""
        if self.holder not in {"", self.identity} and self._version:
            return TakeOver()
        if self._version and not self.holder and self._pods_seen is not None:
            return TakeOver(self._pods_seen)
        # There is none, or somebody has taken its holder away: a leader may not know yet. So it is where the holder is
        # ourselves: a write of ours was executed unseen.
        return TakeOver(sends_for_s=self.timing.renew_deadline_s, first=self._spec is None and not self._version)

    def _write(self, spec: LeaseSpec, *, pods_version: str | None = None, page_url: str | None = None) -> WantedLease:
        return WantedLease(
            namespace=self.namespace,
            name=self.name,
            version=self._version,
            spec=spec,
            pods_version=pods_version,
            page_url=page_url,
        )
