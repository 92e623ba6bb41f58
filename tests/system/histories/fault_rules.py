"""Faults between the scheduler and the API server, of the scheduler's processes, and of the Lease that they share."""

import asyncio
import math
from typing import Final

from hypothesis import strategies as st

from config.protocol import names
from scheduler.kube.leases import LeaseSpec
from scheduler.kube.port import CONFIG_MAPS, NAMESPACES, NODES, PODS, WantedLease, lease_kind
from scheduler.testing.cluster.faults import (
    Break,
    Effect,
    Fail,
    Overtaken,
    Refuse,
    RequestFault,
    Silence,
    Slow,
    Stranger,
    Throttle,
    Verb,
    WatchBreaks,
)
from scheduler.testing.cluster.world import World
from tests.support.service.process import EPOCH_S
from tests.system.histories.happening import happens
from tests.system.histories.history import BIND_TIMEOUT_S, LATEST_S, LEASE, History
from tests.system.histories.pod_templates import ours

KINDS: Final = (None, PODS, NODES, NAMESPACES, CONFIG_MAPS)
# A late request takes effect within the 60 s that the server gives it; one that was answered with 500 is over.
LATE_S: Final = (None, 0.05, 2.0, 20.0, 50.0)
ANYWHERE: Final[tuple[RequestFault, ...]] = (
    Throttle(),
    Throttle(0.0),
    Throttle(5.0),
    Throttle(86_400.0),
    Refuse(403),
    Refuse(404),
    Stranger(404),
    Stranger(200),
    Fail(500),
    Fail(503),
    Silence(),
    Silence(after_s=0.0),
    Slow(0.05, 0.05),
)
WRITES: Final[tuple[RequestFault, ...]] = (
    Refuse(409),
    Refuse(422),
    Fail(500, Effect.AT_ONCE),
    Stranger(200, Effect.AT_ONCE),
    Stranger(502, Effect.AT_ONCE),
    Stranger(502, Effect.LATER, 20.0),
    Fail(504, Effect.AT_ONCE),
    Silence(Effect.AT_ONCE),
    Silence(Effect.AT_ONCE, after_s=0.0),
    Slow(0.0, 1.0),
    Slow(1.0, 0.0),
    Slow(3.0, 3.0),
    Slow(8.0, 0.0),
    *(Fail(504, Effect.LATER, late_s) for late_s in LATE_S),
    *(Silence(Effect.LATER, late_s=late_s) for late_s in LATE_S),
    *(Silence(Effect.LATER, after_s=0.0, late_s=late_s) for late_s in LATE_S),
)
OVERTAKEN: Final = (
    Overtaken(),
    Overtaken("twin"),
    Overtaken("small", {names.MEM_IDX: "0", names.UNIT_MIB: "1024"}),
    Overtaken("nowhere"),
)
WATCHES: Final = (Refuse(410), *(WatchBreaks(how, after) for how in Break for after in (0, 1, 3)))
# 404 for a pod that exists is what a load balancer brings from elsewhere. 410 for anything but a watch nobody answers.
POSSIBLE: Final = [
    *((Verb.BIND, fault) for fault in (*ANYWHERE, *WRITES, *OVERTAKEN)),
    *((Verb.WATCH, fault) for fault in (*ANYWHERE, *WATCHES)),
    *((Verb.READ_POD, fault) for fault in ANYWHERE),
    *((verb, fault) for verb in (Verb.SET_CONDITION, Verb.CREATE_EVENT, Verb.UPDATE_EVENT) for fault in ANYWHERE),
    *((verb, fault) for verb in (Verb.SET_CONDITION, Verb.CREATE_EVENT, Verb.UPDATE_EVENT) for fault in WRITES),
    *((verb, fault) for verb in (Verb.NOMINATE, Verb.DELETE_POD) for fault in (*ANYWHERE, *WRITES)),
]


def takes_effect_within_s(fault: RequestFault) -> float:
    """Seconds after a binding was sent, infinite where nobody knows."""
    match fault:
        case Silence(Effect.LATER, after_s, late_s):
            return math.inf if late_s is None else late_s + (BIND_TIMEOUT_S if after_s is None else after_s)
        case Fail(_, Effect.LATER, late_s) | Stranger(_, Effect.LATER, late_s):
            return math.inf if late_s is None else late_s
        case Slow(before_s, _):
            return before_s
    return 0.0


class FaultRules(History):
    @happens(
        4,
        what=st.sampled_from(POSSIBLE),
        count=st.sampled_from([1, 1, 2, 5, None]),
        probability=st.sampled_from([0.5, 1.0]),
    )
    def requests_go_wrong(self, what: tuple[Verb, RequestFault], count: int | None, probability: float) -> None:
        verb, fault = what
        if verb is Verb.BIND and not self.may_happen_to_a_binding(fault):
            return
        self.process.wire.faults.add(verb, fault, count=count, probability=probability)
        self.watches_hang |= verb is Verb.WATCH and isinstance(fault, Silence)
        self.happened[f"{verb.value}: {type(fault).__name__}"] += 1

    @happens(6, faults=st.lists(st.sampled_from((*ANYWHERE, *WRITES, *OVERTAKEN)), min_size=1, max_size=3))
    def binds_go_wrong_one_after_the_other(self, faults: list[RequestFault]) -> None:
        for fault in filter(self.may_happen_to_a_binding, faults):
            self.process.wire.faults.add(Verb.BIND, fault, count=1)
            self.happened[f"bind: {type(fault).__name__}"] += 1

    @happens(2, fault=st.sampled_from((Fail(500), Refuse(403), Silence(), Stranger(404))))
    def binds_of_one_namespace_go_wrong(self, fault: RequestFault) -> None:
        self.process.wire.faults.add(Verb.BIND, fault, when=lambda request: request.about.startswith("other/"))

    @happens(4)
    def nothing_goes_wrong_any_more(self) -> None:
        self.spare_requests()

    @happens(3, how=st.sampled_from(sorted(Break, key=lambda how: how.name)), kind=st.sampled_from(KINDS))
    def watches_break(self, how: Break, kind: object) -> None:
        self.process.wire.break_watches(how, kind)  # type: ignore[arg-type]  # of whatever type its objects are

    @happens(1)
    def stalled_watches_go_on(self) -> None:
        for one in self.replicas:
            one.wire.resume_watches()

    @happens(2)
    def history_is_compacted(self) -> None:
        self.world.compact_history()

    @happens(3)
    def late_requests_take_effect(self) -> None:
        self.happened["late requests"] += self.process.wire.deliver_late()

    @happens(18, seconds=st.sampled_from([0.0, 0.01, 0.2, 1.0, 1.0, 3.0, 10.0, 30.0, 100.0, 330.0]))
    def time_passes(self, seconds: float) -> None:
        self.pass_time(seconds)

    @happens(
        1,
        down_s=st.sampled_from([0.0, 0.5, 10.0]),
        late_s=st.sampled_from([0.0, 0.1, 1.0, BIND_TIMEOUT_S - 0.1]),
        delivered=st.booleans(),
    )
    def process_is_killed_and_another_started(self, down_s: float, late_s: float, delivered: bool) -> None:  # noqa: FBT001 - hypothesis draws it
        """What it has sent may still take effect until the time-out of its requests."""
        dead = self.process.wire
        self.run(self.process.kill())
        self.posts.end_by(self.loop.time() + BIND_TIMEOUT_S)
        self.run(asyncio.sleep(min(down_s, late_s)))
        if late_s <= down_s:
            self.last_requests_of(dead, delivered=delivered)
        self.run(asyncio.sleep(max(0.0, down_s - late_s)))
        self.run(self.begin_process())
        if late_s > down_s:
            self.pass_time(late_s - down_s)
            self.last_requests_of(dead, delivered=delivered)
        self.pass_time()

    @happens(1, within_s=st.sampled_from([0.1, 10.0]))
    def process_is_stopped_and_another_started(self, within_s: float) -> None:
        dead = self.process.wire
        self.run(self.process.stop(within_s))
        self.posts.end_by(self.loop.time())
        self.last_requests_of(dead, delivered=True)
        self.run(self.begin_process())

    def may_happen_to_a_binding(self, fault: RequestFault) -> bool:
        """Where there is another replica, none takes effect when that one may bind."""
        return not self.replicated or takes_effect_within_s(fault) <= LATEST_S

    def last_requests_of(self, dead: object, *, delivered: bool) -> None:
        """From now on nothing that a dead process has sent takes effect."""
        if delivered:
            self.happened["late requests of the dead"] += dead.deliver_late()  # type: ignore[attr-defined]
        dead.world = World(lambda: EPOCH_S)  # type: ignore[attr-defined]


_OTHER_HOLDERS: Final = ("", "somebody-else")
# Over the version that was seen, a write may be as late as it likes.
_OF_LEASES: Final = (
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
_POSSIBLE_FOR_LEASES: Final = [
    *((Verb.WRITE_LEASE, fault) for fault in _OF_LEASES),
    *((verb, fault) for verb in (Verb.LAST_CHANGE, Verb.LAST_SCHEDULED) for fault in ANYWHERE),
]


def _has_a_standby(history: History) -> bool:
    return history.standby is not None


class ReplicaRules(History):
    @happens(
        2,
        _has_a_standby,
        what=st.sampled_from(_POSSIBLE_FOR_LEASES),
        count=st.sampled_from([1, 2, 5, None]),
        of=st.booleans(),
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

    @happens(1, _has_a_standby, of=st.booleans())
    def watches_of_the_lease_stall(self, of: bool) -> None:  # noqa: FBT001 - as above
        self.replicas[0 if of else -1].wire.break_watches(Break.STALLED, lease_kind(*LEASE))

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

    @happens(1, lambda self: self.standby is not None and self.lease() is not None, to=st.sampled_from(_OTHER_HOLDERS))
    def somebody_edits_the_lease(self, to: str) -> None:
        lease = self.lease()
        assert lease is not None
        spec = LeaseSpec(to, 1, "then", "edited", lease.spec.lease_transitions)
        version = lease.metadata.resource_version
        self.world.leases.write(WantedLease(namespace=LEASE[0], name=LEASE[1], version=version, spec=spec))

    @happens(1, _has_a_standby)
    def the_standby_is_killed_and_another_started(self) -> None:
        assert self.standby is not None
        self.run(self.standby.kill())
        self.run(self.begin_standby())

    def a_pod_comes(self) -> None:
        self.made += 1
        self.world.pods.create(ours("one unit", f"cut-off-{self.made}", f"uid-{self.made}", "default"))
        self.pass_time()
