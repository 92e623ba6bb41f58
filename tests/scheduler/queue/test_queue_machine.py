"""Random histories of pods, decisions, binds and rows, compared with a model of the queue."""

from collections import Counter
from collections.abc import Iterable
from math import inf
from typing import Final

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from msgspec.structs import replace

from scheduler.pods.pod import Pod
from scheduler.queue.entry import PodState
from tests.scheduler.queue.toy_cluster import ANY, ToyCluster, events_on, key_of, pod

UNITS: Final = st.integers(1, 3)
ROWS: Final = 3
NAMESPACES: Final = ("a", "b", "c")
# Index of the pod that a step concerns, modulo their number.
PICK: Final = st.integers(0, 30)
# (units, priority, whether it has a gate).
PODS: Final = st.lists(st.tuples(UNITS, st.integers(0, 2), st.integers(0, 7).map(lambda n: n == 7)), max_size=6)
SELDOM: Final = st.integers(0, 9).map(lambda n: n == 9)


class QueueMachine(RuleBasedStateMachine):
    """pods: waiting or in flight, latest version. place: order of arrival, none for a gated pod.

    errors: in a row. back_at_s: error back-offs. no_fits: attempts. vain_until_s: back-offs after wake-ups in vain.
    gone: deleted in flight. hopeless: pods that only a change of their own helps.
    """

    def __init__(self) -> None:
        super().__init__()
        self.cluster = ToyCluster(*[0] * ROWS)
        self.queue = self.cluster.queue
        self.pods: dict[str, Pod] = {}
        self.place: dict[str, int] = {}
        self.arrivals = 0
        self.names = 0
        self.errors: Counter[str] = Counter()
        self.back_at_s: dict[str, float] = {}
        self.gone: set[str] = set()
        self.hopeless: set[str] = set()
        self.no_fits: Counter[str] = Counter()
        self.vain_until_s: dict[str, float] = {}
        self.changes: dict[str, tuple[int, float]] = {}

    # The model

    def in_state(self, state: PodState) -> list[str]:
        return [uid for uid in self.pods if self.queue.state(uid) is state]

    def sort_key(self, uid: str) -> tuple[int, int]:
        return -self.pods[uid].priority, self.place[uid]

    def units(self, uid: str) -> int:
        return self.pods[uid].template.gpu_units

    def room_for(self, units: int) -> int:
        return self.cluster.capacity(units, None)

    def see(self, seen: Pod) -> None:
        """The pod as a watch shows it."""
        uid = seen.key.uid
        if seen.gates and self.queue.state(uid) is not PodState.IN_FLIGHT:
            self.place.pop(uid, None)
        elif not seen.gates and uid not in self.place:
            self.arrivals += 1
            self.place[uid] = self.arrivals
        self.gone.discard(uid)
        self.pods[uid] = seen
        self.cluster.add(seen)

    def forget(self, uid: str) -> None:
        for kept in (self.pods, self.place, self.back_at_s, self.errors, self.no_fits):
            kept.pop(uid, None)
        self.vain_until_s.pop(uid, None)
        self.changes.pop(uid, None)
        for some in (self.gone, self.hopeless):
            some.discard(uid)

    def decided(self, *uids: str) -> None:
        for uid in uids:
            self.hopeless.discard(uid)
            if self.queue.state(uid) is not PodState.IN_FLIGHT:
                self.errors[uid] = 0
                self.no_fits[uid] += 1

    def nth(self, uids: Iterable[str], pick: int) -> str:
        ordered = sorted(uids)
        return ordered[pick % len(ordered)]

    # Pods are created, changed and deleted

    @initialize(pods=PODS, more=PODS)
    def begin(self, pods: list[tuple[int, int, bool]], more: list[tuple[int, int, bool]]) -> None:
        self.add([*pods, *more])
        self.decided(*self.cluster.settle())

    @rule(pods=PODS)
    def add(self, pods: list[tuple[int, int, bool]]) -> None:
        for units, priority, gated in pods:
            self.names += 1
            namespace = NAMESPACES[self.names % len(NAMESPACES)]
            gates = ("g",) if gated else ()
            self.see(pod(f"p{self.names}", units, priority=priority, namespace=namespace, gates=gates))

    @precondition(lambda self: self.pods)
    @rule(pick=PICK)
    def status_changes(self, pick: int) -> None:
        uid = self.nth(self.pods, pick)
        before = self.queue.state(uid)
        self.see(replace(self.pods[uid], reason=self.pods[uid].reason + "."))
        assert self.queue.state(uid) is before

    @precondition(lambda self: self.pods)
    @rule(pick=PICK, units=UNITS)
    def ask_changes(self, pick: int, units: int) -> None:
        uid = self.nth(self.pods, pick)
        before = self.queue.state(uid)
        if units == self.units(uid):
            return
        old = self.pods[uid]
        self.see(pod(uid, units, priority=old.priority, namespace=old.key.namespace, gates=old.gates))
        self.hopeless.discard(uid)
        self.vain_until_s.pop(uid, None)
        stays = before in {PodState.GATED, PodState.IN_FLIGHT} or uid in self.back_at_s
        waits = not stays and before not in {PodState.ACTIVE, PodState.THROTTLED} and self.changes_too_often(uid)
        assert self.queue.state(uid) is (before if stays else PodState.BACKING_OFF if waits else PodState.ACTIVE)

    def changes_too_often(self, uid: str) -> bool:
        """The first change is tried at once, the next ones after 1, 2, 4, 8, 10, 10, … seconds without one."""
        now_s = self.cluster.now_s
        count, last_s = self.changes.get(uid, (0, -inf))
        if now_s - last_s > 10.0:
            count = 0
        ready_s = last_s + (min(10.0, 2.0 ** (count - 1)) if count else 0.0)
        self.changes[uid] = (count + 1, max(now_s, ready_s))
        if ready_s > now_s:
            self.back_at_s[uid] = ready_s
        return ready_s > now_s

    @precondition(lambda self: self.in_state(PodState.GATED))
    @rule(pick=PICK)
    def gates_open(self, pick: int) -> None:
        uid = self.nth(self.in_state(PodState.GATED), pick)
        self.see(replace(self.pods[uid], gates=()))
        assert self.queue.state(uid) is PodState.ACTIVE

    @precondition(lambda self: self.pods)
    @rule(pick=PICK)
    def delete(self, pick: int) -> None:
        uid = self.nth(self.pods, pick)
        flying = self.queue.state(uid) is PodState.IN_FLIGHT
        self.queue.delete(uid)
        if flying:
            self.gone.add(uid)
        else:
            self.forget(uid)
        assert (uid in self.queue) == flying

    # Throttled namespaces

    @rule(namespaces=st.sets(st.sampled_from(NAMESPACES)), most=st.integers(1, 6))
    def throttle(self, namespaces: set[str], most: int) -> None:
        """namespaces: those that may not bind."""
        for _ in range(most):
            served = [uid for uid in self.in_state(PodState.THROTTLED) if self.namespace(uid) not in namespaces]
            back = [min(served, key=self.sort_key)] if served else []
            head = min([*self.in_state(PodState.ACTIVE), *back], key=self.sort_key, default=None)
            holds = head is not None and self.namespace(head) in namespaces
            found = self.queue.ready(lambda name: name not in namespaces, self.cluster.now_s)
            assert (None if found is None else found.key.uid) == head
            assert self.queue.throttle(lambda name: name not in namespaces) == holds
            assert [self.queue.state(uid) for uid in back] == [PodState.ACTIVE] * len(back)
            if not holds or head is None:
                return
            assert self.queue.state(head) is PodState.THROTTLED

    def namespace(self, uid: str) -> str:
        return self.pods[uid].key.namespace

    # Attempts

    @rule(vain=SELDOM, hopeless=SELDOM)
    def decide(self, vain: bool, hopeless: bool) -> None:  # noqa: FBT001 - hypothesis draws them
        self.answer_all()
        ready = self.in_state(PodState.ACTIVE)
        if not ready:
            assert self.cluster.decide() is None
            return
        expected = min(ready, key=self.sort_key)
        for uid in self.sleepers():
            # A new pod never takes the room that a better pod waits for.
            assert self.sort_key(uid) > self.sort_key(expected) or not self.room_for(self.units(uid))
        if vain or hopeless:
            self.decide_in_vain(expected, hopeless=hopeless)
        else:
            assert self.cluster.decide() == expected
            self.decided(expected)

    def decide_in_vain(self, uid: str, *, hopeless: bool) -> None:
        queued = self.queue.pop(self.cluster.now_s)
        assert queued is not None
        assert queued.pod is self.pods[uid]
        now_s, wakes_on = self.cluster.now_s, 0 if hopeless else ANY
        self.queue.unschedulable(uid, key_of(queued.pod), now_s, wakes_on=wakes_on, rejected=not hopeless)
        self.decided(uid)
        if hopeless:
            self.hopeless.add(uid)
        else:
            self.vain_until_s[uid] = now_s + min(10.0, 2.0 ** (self.no_fits[uid] - 1))

    def sleepers(self) -> list[str]:
        return [uid for uid in self.in_state(PodState.UNSCHEDULABLE) if uid not in self.hopeless]

    def answer_all(self) -> None:
        while self.cluster.run_hint() is not None:
            self.queue.validate()

    @precondition(lambda self: self.in_state(PodState.IN_FLIGHT))
    @rule(pick=PICK, outcome=st.sampled_from(["bound", "refused", "refused", "gone"]))
    def bind_ends(self, pick: int, outcome: str) -> None:
        uid = self.nth(self.in_state(PodState.IN_FLIGHT), pick)
        if outcome == "refused":
            self.cluster.bind_failed(uid)
            self.errors[uid] += 1
            self.back_at_s[uid] = self.cluster.now_s + min(10.0, 2.0 ** (self.errors[uid] - 1))
        elif outcome == "gone":
            self.queue.delete(uid)
            self.cluster.bound(uid)
            self.cluster.leave(uid)
        else:
            self.cluster.bound(uid)
        if uid in self.gone or outcome in {"bound", "gone"}:
            self.forget(uid)

    @precondition(lambda self: self.cluster.placed.keys() - self.pods.keys())
    @rule(pick=PICK)
    def placed_pod_ends(self, pick: int) -> None:
        self.cluster.leave(self.nth(self.cluster.placed.keys() - self.pods.keys(), pick))

    # The cluster changes

    @rule(row=st.integers(0, ROWS - 1), units=st.integers(1, 5))
    def row_grows(self, row: int, units: int) -> None:
        self.cluster.free(row, units)

    @precondition(lambda self: any(self.cluster.room))
    @rule(row=st.integers(0, ROWS - 1))
    def row_is_taken_by_somebody_else(self, row: int) -> None:
        self.cluster.room[row] = 0

    @rule()
    def everything_changes(self) -> None:
        self.queue.note_events(events_on(everywhere=ANY))

    @rule(seconds=st.sampled_from([0.0, 0.5, 1.0, 1.0, 11.0, 300.0]))
    def time_passes(self, seconds: float) -> None:
        self.cluster.after(seconds)
        ready_s = self.queue.next_ready_s()
        assert ready_s is None or ready_s > self.cluster.now_s
        if seconds >= 300.0:
            assert not self.in_state(PodState.UNSCHEDULABLE)
            assert not self.in_state(PodState.BACKING_OFF)
        for uid in [uid for uid, at_s in self.back_at_s.items() if at_s <= self.cluster.now_s]:
            del self.back_at_s[uid]
            assert self.queue.state(uid) is PodState.ACTIVE
        for uid in [uid for uid, at_s in self.vain_until_s.items() if at_s <= self.cluster.now_s]:
            del self.vain_until_s[uid]
            assert self.queue.state(uid) is PodState.ACTIVE

    # Hints

    @precondition(lambda self: self.in_state(PodState.UNSCHEDULABLE))
    @rule()
    def run_hint(self) -> None:
        hint = self.cluster.next_hint()
        if hint is None:
            return
        units, best = self.units(hint.pod.key.uid), hint.pod.key.uid
        alike = [uid for uid in self.sleepers() if self.units(uid) == units]
        assert best == min(alike, key=self.sort_key)
        states = {uid: self.queue.state(uid) for uid in self.pods if uid != best}
        fits = self.cluster.answer(hint)
        assert fits == bool(self.cluster.capacity(units, hint.rows))
        assert self.queue.state(best) is (PodState.ACTIVE if fits else PodState.UNSCHEDULABLE)
        assert {uid: self.queue.state(uid) for uid in states} == states

    @rule()
    def nobody_sleeps_beside_room(self) -> None:
        """After all hints and decisions, no room is left for waiting pods."""
        while self.in_state(PodState.THROTTLED):
            assert self.queue.ready(lambda _: True, self.cluster.now_s) is not None
        self.decided(*self.cluster.settle())
        assert self.cluster.next_hint() is None
        assert not self.in_state(PodState.ACTIVE)
        for uid in self.sleepers():
            assert not self.room_for(self.units(uid))

    # Always

    @invariant()
    def everything_adds_up(self) -> None:
        self.queue.validate()
        lengths = self.queue.lengths()
        assert sum(lengths.values()) + len(self.in_state(PodState.IN_FLIGHT)) == len(self.pods)
        assert all(uid in self.queue for uid in self.pods)

    @invariant()
    def back_off_is_served(self) -> None:
        for uid in (*self.back_at_s, *self.vain_until_s):
            assert self.queue.state(uid) in {PodState.BACKING_OFF, PodState.GATED}


QueueMachine.TestCase.settings = settings(max_examples=150, stateful_step_count=80)
TestQueue = QueueMachine.TestCase
