"""Leader election: random histories of replicas, lost and late answers, deleted Leases."""

from dataclasses import dataclass
from enum import Enum
from itertools import count
from typing import Final

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from scheduler.kube.leases import PODS_SEEN, Lease, LeaseSpec
from scheduler.kube.objects import ObjectMeta
from scheduler.kube.port import WantedLease
from scheduler.leader.leader_election import LeaderElection, TakeOver, Timing

TIMING: Final = Timing(lease_duration_s=15, renew_deadline_s=10.0, retry_period_s=2.0)
BIND_TIMEOUT_S: Final = 4.0
REPLICAS: Final = 3
AFTER_S: Final = st.sampled_from([0.0, 0.0, 0.0, 0.5, 5.0])
WHICH: Final = st.integers(0, REPLICAS - 1)


def lease(holder: str, version: int = 7, *, pods_version: str | None = None, transitions: int = 3) -> Lease:
    annotations = {} if pods_version is None else {PODS_SEEN: pods_version}
    metadata = ObjectMeta("leads", "kube-system", resource_version=str(version), annotations=annotations)
    return Lease(metadata, LeaseSpec(holder, 15, "then", f"renewed {version}", transitions))


def election(identity: str = "me") -> LeaderElection:
    return LeaderElection("kube-system", "leads", identity, TIMING)


def due(of: LeaderElection, now_s: float, renewed: str = "now") -> WantedLease:
    """The write that it has to make."""
    wanted = of.wanted(now_s, renewed)
    assert wanted is not None
    return wanted


def taken(of: LeaderElection, now_s: float) -> TakeOver:
    """The replica writes, and the API server accepts."""
    wanted = due(of, now_s)
    of.written(wanted, "100", now_s)
    assert of.taken_over is not None
    return of.taken_over


def test_a_lease_that_does_not_exist_is_made_at_once() -> None:
    one = election()
    wanted = due(one, 5.0)
    assert (wanted.version, wanted.spec) == ("", LeaseSpec("me", 15, "now", "now", 0))
    assert not one.leads(5.0)
    one.written(wanted, "8", 5.0)
    assert one.leads(5.0)
    assert one.taken_over == TakeOver(sends_for_s=10.0, first=True)


def test_what_another_one_holds_is_left_for_as_long_as_the_lease_says_after_the_last_change() -> None:
    one = election()
    one.observe(lease("other", 7), 5.0)
    assert one.wanted(19.9, "now") is None
    one.observe(lease("other", 8), 15.0)
    assert one.wanted(29.9, "now") is None
    wanted = due(one, 30.0)
    assert (wanted.version, wanted.spec) == ("8", LeaseSpec("me", 15, "now", "now", 4))
    assert taken(one, 32.0) == TakeOver()


def test_a_lease_that_is_gone_says_nothing_of_who_has_held_it_since() -> None:
    for shown in (lease("", 8, pods_version="41"), lease("other", 8)):
        one = election()
        one.observe(shown, 0.0)
        one.gone(1.0)
        assert taken(one, 20.0) == TakeOver(sends_for_s=10.0)


def test_a_lease_given_up_is_taken_at_once_with_what_its_holder_had_seen() -> None:
    one = election()
    one.observe(lease("other", 7), 5.0)
    one.observe(lease("", 8, pods_version="41"), 6.0)
    assert taken(one, 6.0) == TakeOver("41")


@pytest.mark.parametrize("holder", ["", "me"])
def test_a_lease_that_nobody_gave_up_in_good_order_is_taken_in_doubt(holder: str) -> None:
    one = election()
    one.observe(lease(holder, 8), 6.0)
    assert taken(one, 6.0) == TakeOver(sends_for_s=10.0)


def test_a_write_of_ours_that_was_executed_unseen_leaves_the_doubt() -> None:
    """Its answer is lost, the watch shows it: a leader whose Lease was deleted may not know yet."""
    one = election()
    wanted = due(one, 0.0)
    one.observe(Lease(ObjectMeta("leads", resource_version="9"), wanted.spec), 0.5)
    assert taken(one, 3.0) == TakeOver(sends_for_s=10.0)


def test_our_own_write_seen_before_its_answer_does_not_hide_how_the_lease_became_ours() -> None:
    one = election()
    one.observe(lease("", 8, pods_version="41"), 6.0)
    wanted = due(one, 6.0)
    one.observe(Lease(ObjectMeta("leads", resource_version="9"), wanted.spec), 6.1)
    one.written(wanted, "9", 6.0)
    assert one.taken_over == TakeOver("41")


def test_the_leader_renews_each_period_and_sends_nothing_while_it_cannot() -> None:
    one = election()
    taken(one, 0.0)
    assert one.wanted(1.9, "later") is None
    wanted = due(one, 2.0, "later")
    assert (wanted.version, wanted.spec) == ("100", LeaseSpec("me", 15, "now", "later", 0))
    assert one.wanted(3.9, "later") is None  # it may still be on its way, or has failed
    assert one.wanted(4.0, "later") is not None
    assert (one.leads(9.9), one.leads(10.0)) == (True, False)
    assert one.lost(10.0) == ""


def test_a_renewal_over_the_version_that_it_wrote_makes_it_lead_again_however_late() -> None:
    one = election()
    taken(one, 0.0)
    wanted = due(one, 60.0, "later")
    assert wanted.version == "100"
    one.written(wanted, "101", 60.0)
    assert (one.leads(69.9), one.taken_over) == (True, TakeOver(sends_for_s=10.0, first=True))


def test_a_lease_that_is_gone_for_too_long_is_not_made_again() -> None:
    one = election()
    taken(one, 0.0)
    one.gone(1.0)
    assert (one.lost(4.9), one.lost(5.0)) == ("", "it was deleted, and was not renewed for 5 s")
    assert one.wanted(5.0, "later") is None


def test_a_leader_that_sees_another_holder_is_lost() -> None:
    one = election()
    taken(one, 0.0)
    one.observe(lease("other", 101), 1.0)
    assert (one.leads(1.0), one.lost(1.0)) == (False, "other holds it now")
    assert one.given_up("now", "5") is None


def test_who_has_lost_the_lease_never_writes_it_again() -> None:
    one = election()
    taken(one, 0.0)
    one.gone(1.0)
    one.observe(lease("other", 102), 1.0)
    assert one.wanted(100.0, "now") is None


def test_an_older_sight_of_the_lease_changes_nothing() -> None:
    one = election()
    taken(one, 0.0)
    one.observe(lease("other", 99), 1.0)
    assert one.leads(1.0)


def test_the_leader_makes_a_lease_again_that_is_gone_and_others_wait_as_if_it_was_held() -> None:
    leader, standby = election(), election("other")
    taken(leader, 0.0)
    standby.observe(lease("me", 100), 0.0)
    for one in (leader, standby):
        one.gone(1.0)
    wanted = due(leader, 1.0, "later")
    assert wanted.version == ""
    assert (standby.wanted(15.9, "now"), standby.wanted(16.0, "now") is None) == (None, False)


def test_what_is_given_up_says_what_was_seen() -> None:
    one = election()
    taken(one, 0.0)
    given_up = one.given_up("end", "77")
    assert given_up is not None
    assert (given_up.spec.holder_identity, given_up.pods_version, given_up.version) == ("", "77", "100")


def test_only_a_version_is_read_of_what_was_seen() -> None:
    assert [lease("", pods_version=text).pods_version for text in ("12", "", "-1", "x", "9" * 21)] == ["12"] + [
        None
    ] * 4


class Answer(Enum):
    """Fate of a request."""

    GIVEN = "executed, and answered"
    LOST = "executed, and not answered"
    NOT_EXECUTED = "neither"


@dataclass
class Replica:
    """may_bind_from_s: earliest bind, None while it may not. bound_s: latest possible bind."""

    election: LeaderElection
    seen: int = 0
    may_bind_from_s: float | None = None
    bound_s: float = -1e9


class Replicas(RuleBasedStateMachine):
    """Whatever is lost or late: while one replica may bind, no request of another can take effect."""

    def __init__(self) -> None:
        super().__init__()
        self.now_s = 0.0
        self.names = count()
        self.version = 0
        self.stored: Lease | None = None
        # The Lease after each version, None: deleted.
        self.history: list[Lease | None] = [None]
        self.gone: list[Replica] = []
        self.replicas = [Replica(election(f"r{next(self.names)}")) for _ in range(REPLICAS)]

    @rule(seconds=st.sampled_from([0.5, 1.0, 2.0, 3.0, 4.0]))
    def time_passes(self, seconds: float) -> None:
        self.now_s += seconds

    @rule(which=WHICH, how_many=st.sampled_from([0, 0, 1, 99]), answer=st.sampled_from(Answer), after_s=AFTER_S)
    def acts(self, which: int, how_many: int, answer: Answer, after_s: float) -> None:
        """It sees a part of the history, and writes if due."""
        one = self.replicas[which]
        self._show(one, how_many)
        sent_s, wanted = self.now_s, one.election.wanted(self.now_s, f"at {self.now_s}")
        if wanted is None or answer is Answer.NOT_EXECUTED or not self._accepts(wanted):
            return
        self.now_s += after_s
        if answer is Answer.LOST:
            return
        one.election.written(wanted, str(self.version), sent_s)
        over = one.election.taken_over
        if one.may_bind_from_s is None and over is not None:
            fenced_for_s = 0.0 if over.sends_for_s is None else over.sends_for_s + BIND_TIMEOUT_S
            one.may_bind_from_s = self.now_s + fenced_for_s

    @invariant()
    def whoever_may_bind_does_and_nobody_else_still_can(self) -> None:
        for one in self.replicas:
            if one.may_bind_from_s is None or self.now_s < one.may_bind_from_s or not one.election.leads(self.now_s):
                continue
            one.bound_s = self.now_s
            others = [other for other in (*self.replicas, *self.gone) if other is not one]
            late = [other for other in others if other.bound_s + BIND_TIMEOUT_S > self.now_s]
            assert late == [], f"{late[0].election.identity} may still bind, and {one.election.identity} binds"

    @rule(which=WHICH, same_pod=st.booleans())
    def is_killed_and_started_again(self, which: int, same_pod: bool) -> None:  # noqa: FBT001
        old = self.replicas[which]
        self.gone.append(old)
        new = Replica(election(old.election.identity if same_pod else f"r{next(self.names)}"))
        # A watch begins with the current state.
        new.seen = len(self.history) - 1
        if self.stored is not None:
            new.election.observe(self.stored, self.now_s)
        self.replicas[which] = new

    @rule(which=WHICH)
    def ends_in_good_order(self, which: int) -> None:
        """All its bind requests are answered."""
        one = self.replicas[which]
        wanted = one.election.given_up("end", "1")
        if wanted is None or one.may_bind_from_s is None or not one.election.leads(self.now_s):
            return
        if self.now_s < one.may_bind_from_s:
            return
        self._accepts(wanted)
        one.bound_s = -1e9
        self.is_killed_and_started_again(which, same_pod=False)

    @rule()
    def somebody_deletes_the_lease(self) -> None:
        if self.stored is not None:
            self.version += 1
            self.stored = None
            self.history.append(None)

    def _show(self, one: Replica, how_many: int) -> None:
        for shown in self.history[one.seen + 1 :][:how_many]:
            if shown is None:
                one.election.gone(self.now_s)
            else:
                one.election.observe(shown, self.now_s)
            one.seen += 1

    def _accepts(self, wanted: WantedLease) -> bool:
        version = "" if self.stored is None else self.stored.metadata.resource_version
        if wanted.version != version:
            return False
        self.version += 1
        annotations = None if wanted.pods_version is None else {PODS_SEEN: wanted.pods_version}
        metadata = ObjectMeta("leads", resource_version=str(self.version), annotations=annotations)
        self.stored = Lease(metadata, wanted.spec)
        self.history.append(self.stored)
        return True


TestReplicas = Replicas.TestCase
TestReplicas.settings = settings(stateful_step_count=120)
