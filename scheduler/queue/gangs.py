"""Gangs of waiting pods: whether a gang is held, is attempted as a whole, or its pods are attempted alone.

    HELD      too few pods exist, or what they need is not known: its pods are GATED
    TOGETHER  one attempt for all; its pods are GATHERED
    ALONE     all but one of those it needs have a node, or some run and too few exist, so the others have ended

    Of a gang that is TOGETHER:

    asleep ── an event of the cluster, or a change of the gang ──▶ due ── back-off ended ──▶ ready ── its turn ──▶ led:
      ▲                                                                                              its first pod is
      └────────────────────────────── attempt failed ◀──────────────────────────────────────────────  ACTIVE

One gang of a priority is led at a time. After an attempt that failed, none is for as long as it took: so gangs that do
not fit take at most half of the time, and others do not wait behind all of them.

Pods in flight are not counted here: those that are placed are counted by the tables. Owned by the scheduling queue. No
method awaits, so each one is atomic. now_s: monotonic seconds.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from enum import Enum, auto
from itertools import chain, islice
from math import inf
from typing import Final

from scheduler.pods.gang import MOST_TOGETHER, Gang, GangKey
from scheduler.pods.pod import Pod, expect
from scheduler.queue.backoff import backoff_s
from scheduler.queue.entry import Entry, PodState, SortKey
from scheduler.queue.heap import Heap
from scheduler.state.gang_members import GangMembers

_INITIAL_S: Final = 1.0
_MAX_S: Final = 10.0
# Most gangs are complete sooner.
_TOLD_AFTER_S: Final = 5.0
# Pods that move in one step, because a gang may have thousands.
_MOST_MOVED: Final = 256


class Standing(Enum):
    """How the pods of a gang are attempted; see the module."""

    HELD = auto()
    TOGETHER = auto()
    ALONE = auto()


@dataclass(slots=True)
class _Gang:
    """Waiting pods of one gang. unreadable: those without a valid minimum. minimums, priorities: of the others.

    standing, reason, numbers: as of the last settlement: why it is HELD, and how many exist. to_move: pods that may not
    be where the standing wants them, the last one first. failures: attempts that failed since the last one that helped.
    ready_s: end of the back-off.
    """

    pods: dict[Entry, None] = field(default_factory=dict)
    unreadable: dict[Entry, None] = field(default_factory=dict)
    minimums: Counter[int] = field(default_factory=Counter)
    priorities: Counter[int] = field(default_factory=Counter)
    standing: Standing = Standing.HELD
    reason: str = ""
    numbers: str = ""
    to_move: list[Entry] = field(default_factory=list)
    leader: Entry | None = None
    failures: int = 0
    ready_s: float = -inf


class Gangs:
    """Waiting pods of each gang that nothing else gates. members: pods with a node.

    untold: gangs with held pods, by the time from which their owners are to be told. not_alone: pods that no longer
    wait alone, for the owner of the nominations. asleep: gangs that wait for an event.
    """

    def __init__(self, members: GangMembers) -> None:
        self.members = members
        self.untold: Heap[float, GangKey] = Heap()
        self.not_alone: list[Pod] = []
        # Minimums that PodGroups say.
        self._described: dict[GangKey, int] = {}
        self._gangs: dict[GangKey, _Gang] = {}
        self._changed: dict[GangKey, None] = {}
        self._moving: dict[GangKey, None] = {}
        self.asleep: dict[GangKey, None] = {}
        self._woken: dict[GangKey, None] = {}
        self._due: Heap[float, GangKey] = Heap()
        self._ready: Heap[SortKey, GangKey] = Heap()
        # Leaders that are ACTIVE.
        self._led: dict[GangKey, Entry] = {}
        self._rests_until_s = -inf
        # The gang of the attempt that is being made.
        self._attempted: GangKey | None = None

    # Changes

    def describe(self, key: GangKey, minimum: int | None) -> None:
        """Set how many pods a PodGroup says must start together; None if it does not exist."""
        if minimum is None:
            self._described.pop(key, None)
        else:
            self._described[key] = minimum
        self._changed[key] = None

    def change(self, pod: Pod) -> None:
        """Record that a pod of a gang came, changed or went."""
        if pod.gang is not None:
            self._changed[pod.gang.key] = None

    def note_events(self) -> None:
        """Record that something in the cluster changed that may help any gang."""
        self._woken.update(self.asleep)
        self.asleep.clear()

    def join(self, entry: Entry) -> Standing:
        """Count a waiting pod as it is now. Return how it is attempted."""
        gang = entry.pod.gang
        if gang is None or (entry.gang, entry.gang_priority) != (gang, entry.pod.priority):
            self.leave(entry)
        if gang is None:
            return Standing.ALONE
        found, is_new = self._gangs.get(gang.key), False
        if found is None:
            found, is_new = self._gangs.setdefault(gang.key, _Gang()), True
        if entry.gang is None:
            self._count(entry, gang, found)
        if is_new:
            found.standing, found.reason, found.numbers = self._standing(gang.key, found)
        return Standing.HELD if gang.problem else found.standing

    def leave(self, entry: Entry) -> None:
        """Uncount a pod, as it was when it was counted."""
        gang, entry.gang = entry.gang, None
        if gang is None:
            return
        found = self._gangs[gang.key]
        found.unreadable.pop(entry, None)
        if not gang.problem:
            del found.pods[entry]
            _uncount(found.minimums, gang.minimum)
            _uncount(found.priorities, entry.gang_priority)
        if found.leader is entry:
            self._end_lead(gang.key, found)
            self._due.push(gang.key, found.ready_s)
        self._forget_if_empty(gang.key, found)

    # Pods to move

    @property
    def settled(self) -> bool:
        """Whether no pod has to move, now or later."""
        return not (self.has_changed or self._due or self._ready)

    @property
    def has_changed(self) -> bool:
        """Whether a pod may have to move now."""
        return bool(self._changed or self.members.changed or self._moving or self._woken)

    def take_misplaced(self, now_s: float) -> Iterator[Entry]:
        """Yield pods that are not where the standing of their gang wants them. The caller moves each one at once."""
        self._changed.update(dict.fromkeys(self.members.take_changed()))
        for key in [*islice(self._changed, _MOST_MOVED)]:
            del self._changed[key]
            if (found := self._gangs.get(key)) is not None:
                self._settle(key, found, now_s)
        left = _MOST_MOVED
        while self._moving and left:
            key = next(iter(self._moving))
            found = self._gangs.get(key)
            while found is not None and found.to_move and left:
                entry = found.to_move.pop()
                left -= 1
                if entry in found.pods and _is_misplaced(entry, found):
                    yield entry
            if found is None or not found.to_move:
                del self._moving[key]

    def take_led(self, now_s: float) -> Iterator[Entry]:
        """Yield new leaders. The caller makes each one ACTIVE at once."""
        for key in [*islice(self._woken, _MOST_MOVED)]:
            del self._woken[key]
            self._due.push(key, self._gangs[key].ready_s)
        for key in islice(self._due.pop_until(now_s), _MOST_MOVED):
            first = self._first_gathered(key)
            if first is not None:
                self._ready.push(key, first.sort_key)
            elif key in self._moving:
                self._changed[key] = None  # once its pods have moved
        while now_s >= self._rests_until_s and (best := self._ready.first()) is not None:
            if any(leader.sort_key[0] <= best[0][0] for leader in self._led.values()):
                return
            self._ready.discard(best[1])
            leader = self._first_gathered(best[1])
            if leader is not None:
                self._gangs[best[1]].leader = self._led[best[1]] = leader
                yield leader

    def next_ready_s(self) -> float | None:
        """Return the time from which pods may have to move; None if none."""
        if self.has_changed:
            return -inf
        if self._ready and not self._led:
            return self._rests_until_s
        first = self._due.first()
        return None if first is None else first[0]

    def _first_gathered(self, key: GangKey) -> Entry | None:
        """Return the pod that may lead the gang; None if it is led, or not attempted together."""
        found = self._gangs.get(key)
        if found is None or found.standing is not Standing.TOGETHER or found.leader is not None:
            return None
        gathered = (entry for entry in found.pods if entry.state is PodState.GATHERED)
        return min(islice(gathered, MOST_TOGETHER), key=lambda entry: entry.sort_key, default=None)

    def throttled(self, entry: Entry) -> None:
        """Let other gangs be led while this leader's namespace may not bind."""
        if entry.gang is not None:
            self._led.pop(entry.gang.key, None)

    # Attempts

    def is_led_by(self, entry: Entry) -> bool:
        """Return whether an attempt for this pod is one for its gang."""
        return entry.gang is not None and self._gangs[entry.gang.key].leader is entry

    def begin(self, key: GangKey) -> Sequence[Entry]:
        """Return pods for the attempt of a gang, which has begun: as many as may start together."""
        found, self._attempted = self._gangs[key], key
        waiting = (entry for entry in found.pods if entry.state is PodState.GATHERED or entry is found.leader)
        return [*islice(waiting, MOST_TOGETHER)]

    def tried(self, key: GangKey, now_s: float, took_s: float, *, failed: bool) -> Entry | None:
        """Record an attempt. Return its leader if that was not taken; the caller gathers it.

        A failed gang sleeps even if it changed meanwhile: its next settlement wakes it. took_s: seconds of the attempt.
        """
        self._attempted = None
        found = self._gangs[key]
        leader = found.leader
        self._end_lead(key, found)
        found.failures = found.failures + 1 if failed else 0
        found.ready_s = now_s + backoff_s(found.failures, initial_s=_INITIAL_S, max_s=_MAX_S)
        self._due.discard(key)
        if failed:
            self._rests_until_s = now_s + took_s
            self.asleep[key] = None
        else:
            self._changed[key] = None
        self._forget_if_empty(key, found)
        return leader

    # What is known of a gang

    def minimum(self, key: GangKey) -> int:
        """Return how many pods must start together: as the PodGroup says, or the largest minimum of waiting pods."""
        if key.api_group:
            return self._described.get(key, 0)
        found = self._gangs.get(key)
        return 0 if found is None else max(found.minimums, default=0)

    def is_in_part(self, key: GangKey, minimum: int) -> bool:
        """Return whether some pods of the gang have a node, but too few, and none runs; not during its own attempt."""
        in_part = 0 < self.members.placed(key) < minimum and not self.members.runs(key)
        return in_part and key != self._attempted

    def standing(self, pod: Pod) -> Standing:
        """Return how the pod is attempted, as of the last settlement."""
        if pod.gang is None:
            return Standing.ALONE
        found = self._gangs.get(pod.gang.key)
        return Standing.HELD if pod.gang.problem or found is None else found.standing

    def held(self, key: GangKey) -> Sequence[Entry]:
        """Return the pods that are held, and those without a valid minimum."""
        found = self._gangs.get(key)
        if found is None:
            return ()
        return [*found.unreadable, *(found.pods if found.standing is Standing.HELD else ())]

    def gathered_of(self, key: GangKey) -> Sequence[Entry]:
        """Return the pods that wait for the gang's next attempt."""
        found = self._gangs.get(key)
        return () if found is None else [entry for entry in found.pods if entry.state is PodState.GATHERED]

    def gate(self, pod: Pod) -> tuple[str, str]:
        """Return why the pod is held, and the numbers; "" if it is not."""
        if pod.gang is None or pod.gang.problem:
            return "" if pod.gang is None else pod.gang.problem, ""
        found = self._gangs.get(pod.gang.key)
        return ("", "") if found is None or found.standing is not Standing.HELD else (found.reason, found.numbers)

    def tell_later(self, key: GangKey, now_s: float) -> None:
        """Let the owners of held pods be told soon why."""
        if key not in self.untold:
            self.untold.push(key, now_s + _TOLD_AFTER_S)

    def validate(self) -> None:
        """Recompute the counts. Raises TransitionError for the first error."""
        for key, found in self._gangs.items():
            for entry in chain(found.pods, found.unreadable):
                expect(entry.gang is not None and entry.gang.key == key, f"pod {entry.pod.key} is counted in {key}")
                expect(entry.state is not PodState.IN_FLIGHT, f"pod {entry.pod.key} in flight is counted in {key}")
            minimums = Counter(entry.gang.minimum for entry in found.pods if entry.gang is not None)
            expect(found.minimums == minimums, f"{key} has other minimums than its pods")
            expect(found.leader is None or found.leader in found.pods, f"the leader of {key} is none of its pods")

    def _count(self, entry: Entry, gang: Gang, found: _Gang) -> None:
        entry.gang, entry.gang_priority = gang, entry.pod.priority
        if gang.problem:
            found.unreadable[entry] = None
            return
        found.pods[entry] = None
        found.minimums[gang.minimum] += 1
        found.priorities[entry.gang_priority] += 1

    def _settle(self, key: GangKey, found: _Gang, now_s: float) -> None:
        """Take over a change of the gang."""
        before = found.standing
        found.standing, found.reason, found.numbers = self._standing(key, found)
        if found.standing is not Standing.TOGETHER:
            self._end_lead(key, found)
        if found.standing is not before:
            found.to_move = [*reversed(found.pods)]
            self._moving[key] = None
        if found.standing is Standing.HELD or found.unreadable:
            self.tell_later(key, now_s)
        if found.standing is Standing.TOGETHER and found.leader is None:
            for waking in (self.asleep, self._woken):
                waking.pop(key, None)
            self._due.push(key, found.ready_s)

    def _standing(self, key: GangKey, found: _Gang) -> tuple[Standing, str, str]:
        """Return the standing and, if HELD, why, and the numbers."""
        if key.api_group and key not in self._described:
            return Standing.HELD, f"waiting for {key}: it does not exist, or cannot be read", ""
        minimum, placed = self.minimum(key), self.members.placed(key)
        exist = len(found.pods) + placed
        if minimum - placed <= 1 or (exist < minimum and self.members.runs(key)):
            return Standing.ALONE, "", ""
        if minimum > MOST_TOGETHER:
            return Standing.HELD, f"{key} needs {minimum} pods at once; at most {MOST_TOGETHER} are supported", ""
        if exist < minimum:
            return Standing.HELD, f"waiting for more pods of {key}", f"{exist} of at least {minimum} exist."
        if len(found.priorities) > 1:
            several = ", ".join(map(str, sorted(islice(found.priorities, 3))))
            return Standing.HELD, f"pods of {key} have several priorities: {several}; expected one", ""
        return Standing.TOGETHER, "", ""

    def _end_lead(self, key: GangKey, found: _Gang) -> None:
        found.leader = None
        self._led.pop(key, None)

    def _forget_if_empty(self, key: GangKey, found: _Gang) -> None:
        if found.pods or found.unreadable or key == self._attempted:
            return
        del self._gangs[key]
        for waking in (self.asleep, self._woken):
            waking.pop(key, None)
        for heap in (self._due, self.untold):
            heap.discard(key)
        self._ready.discard(key)


def _is_misplaced(entry: Entry, found: _Gang) -> bool:
    if entry.state is PodState.BACKING_OFF and entry.errors:
        return False  # it is moved at the end of its back-off
    match found.standing:
        case Standing.HELD:
            return entry.state is not PodState.GATED
        case Standing.TOGETHER:
            return entry.state is not PodState.GATHERED and entry is not found.leader
        case Standing.ALONE:
            return entry.state in {PodState.GATED, PodState.GATHERED}


def _uncount(counts: Counter[int], counted: int) -> None:
    counts[counted] -= 1
    if not counts[counted]:
        del counts[counted]
