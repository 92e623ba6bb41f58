"""What happens to replicas of the scheduler, and to the Lease that they share."""

from typing import Final

from hypothesis import strategies as st

from scheduler.kube.leases import LeaseSpec
from scheduler.kube.port import WantedLease, lease_kind
from scheduler.testing.cluster.faults import Break, Effect, Fail, Refuse, Silence, Slow, Verb
from tests.system.fault_rules import ANYWHERE, LATE_S
from tests.system.happening import happens
from tests.system.history import LEASE, History
from tests.system.pod_templates import ours

_OTHER_HOLDERS: Final = ("", "somebody-else")
# Over the version that was seen, a write may be as late as it likes.
_WRITES: Final = (
    *ANYWHERE,
    Refuse(409),
    Fail(500, Effect.AT_ONCE),
    Fail(504, Effect.AT_ONCE),
    Silence(Effect.AT_ONCE),
    Silence(Effect.AT_ONCE, after_s=0.0),
    Slow(0.0, 1.0),
    Slow(3.0, 1.0),
    *(Silence(Effect.LATER, late_s=late_s) for late_s in LATE_S),
    *(Silence(Effect.LATER, after_s=0.0, late_s=late_s) for late_s in LATE_S),
)
_POSSIBLE: Final = [
    *((Verb.WRITE_LEASE, fault) for fault in _WRITES),
    *((verb, fault) for verb in (Verb.LAST_CHANGE, Verb.LAST_SCHEDULED) for fault in ANYWHERE),
]


def _has_a_standby(history: History) -> bool:
    return history.standby is not None


class ReplicaRules(History):
    @happens(
        2, _has_a_standby, what=st.sampled_from(_POSSIBLE), count=st.sampled_from([1, 2, 5, None]), of=st.booleans()
    )
    def requests_for_the_lease_go_wrong(
        self,
        what: tuple[Verb, object],
        count: int | None,
        of: bool,  # noqa: FBT001 - hypothesis draws it
    ) -> None:
        """of: the leader, otherwise the standby."""
        verb, fault = what
        self.replicas[0 if of else -1].wire.faults.add(verb, fault, count=count)  # type: ignore[arg-type]
        self.happened[f"{verb.value}: {type(fault).__name__}"] += 1
        self.pass_time()

    @happens(1, _has_a_standby, of=st.booleans())
    def watches_of_the_lease_stall(self, of: bool) -> None:  # noqa: FBT001 - as above
        self.replicas[0 if of else -1].wire.break_watches(Break.STALLED, lease_kind(*LEASE))
        self.pass_time()

    @happens(2, _has_a_standby, of=st.booleans(), for_s=st.sampled_from([1.0, 8.0, 12.0, 20.0, 60.0]))
    def a_replica_is_cut_off(self, of: bool, for_s: float) -> None:  # noqa: FBT001 - as above
        """Nothing gets through to it or from it; pods come, and the leader tries to bind the first of them."""
        wire = self.replicas[0 if of else -1].wire
        rules = [wire.faults.add(verb, Silence()) for verb in Verb]
        self.a_pod_comes()
        wire.break_watches(Break.STALLED)
        wire.break_watches(Break.STALLED, lease_kind(*LEASE))
        self.pass_time(for_s / 2)
        self.a_pod_comes()
        self.pass_time(for_s / 2)
        for rule in rules:
            wire.faults.remove(rule)
        wire.resume_watches()
        self.pass_time()

    @happens(1, lambda self: self.standby is not None and self.lease() is not None)
    def somebody_deletes_the_lease(self) -> None:
        self.world.leases.delete(*LEASE)
        self.pass_time()

    @happens(1, lambda self: self.standby is not None and self.lease() is not None, to=st.sampled_from(_OTHER_HOLDERS))
    def somebody_edits_the_lease(self, to: str) -> None:
        lease = self.lease()
        assert lease is not None
        spec = LeaseSpec(to, 1, "then", "edited", lease.spec.lease_transitions)
        version = lease.metadata.resource_version
        self.world.leases.write(WantedLease(namespace=LEASE[0], name=LEASE[1], version=version, spec=spec))
        self.pass_time()

    @happens(1, _has_a_standby)
    def the_standby_is_killed_and_another_started(self) -> None:
        assert self.standby is not None
        self.run(self.standby.kill())
        self.run(self.begin_standby())
        self.pass_time()

    def a_pod_comes(self) -> None:
        self.made += 1
        self.world.pods.create(ours("one unit", f"cut-off-{self.made}", f"uid-{self.made}", "default"))
        self.pass_time()
