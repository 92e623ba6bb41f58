"""Pods that found no fit, by class, until a place for them is shown.

    add ──▶ UNSCHEDULABLE ◀──(the rows are full, or changed again)── BACKING_OFF ◀── add, while rows are open
                 │                                                        │
                 ├── wake: a check showed a place ──▶ ACTIVE              │
                 └── take_ready: leftover             ACTIVE ◀── take_ready: back-off ended

A pod is woken straight to active, whatever its no-fit back-off, since the true filters have shown its place. No
more are woken than the place holds: pods of the class that are woken and not decided yet count as holding theirs.
When these have been decided, bound or not, and the rows have not been found full, the class is asked for again, and
so the next ones follow. The no-fit back-off is served only by a pod to which a place was shown in vain.
Where kube-scheduler differs: its queueing hints judge pod by pod, and an event wakes every pod that it may concern.
Owned by the scheduling queue. No method awaits, so each one is atomic.
"""

from collections.abc import Callable, Hashable, Iterator
from typing import Final

from scheduler.pods.pod import Pod
from scheduler.pods.transitions import expect
from scheduler.queue.backoff import backoff_s
from scheduler.queue.entry import Entry, State
from scheduler.queue.heap import Heap
from scheduler.queue.waking import NO_ROWS, Check, PodClass, Rounds, union

# Source: kube-scheduler, backend/queue/scheduling_queue.go, DefaultPodMaxInUnschedulablePodsDuration.
_LEFTOVER_S: Final = 300.0


class UnschedulablePods:
    """unschedulable, backing_off: the pods in these states, by the time that ends them; for the owner to read.

    rounds: told of changes by the owner, as long as there are classes.
    """

    def __init__(self, *, initial_backoff_s: float, max_backoff_s: float) -> None:
        """As `backoff_s`."""
        self.rounds = Rounds()
        self.classes: dict[Hashable, PodClass] = {}
        self._initial_s = initial_backoff_s
        self._max_s = max_backoff_s
        self.unschedulable: Heap[float, Entry] = Heap()
        self.backing_off: Heap[float, Entry] = Heap()

    def add(self, entry: Entry, signature: Hashable, now_s: float, wakes_on: int) -> None:
        """An attempt found no fit. signature: None when no change of the cluster helps. wakes_on: bits of what does."""
        wait_s = backoff_s(entry.no_fits, initial_s=self._initial_s, max_s=self._max_s)
        entry.signature = signature
        entry.ready_s = now_s + wait_s
        # A back-off longer than that is served first; kube-scheduler moves such a pod to its back-off queue.
        entry.leftover_s = now_s + max(_LEFTOVER_S, wait_s)
        if signature is None:
            self._rest(entry)
            return
        pod_class = self._class(signature)
        pod_class.wakes_on |= wakes_on
        if pod_class.open:
            entry.state = State.BACKING_OFF
            entry.tried_at = self.rounds.changes
            self.backing_off.push(entry, entry.ready_s)
            pod_class.tried.push(entry, entry.sort_key)
        else:
            self._wait(entry, pod_class)
            self.rounds.reorder(pod_class)
        self._settle(pod_class)

    def decide(self, entry: Entry) -> None:
        """A woken pod is popped, so it is as good as decided.

        Its class stays, even empty: the rows that it was woken for may have been shown to it in vain.
        """
        pod_class = self.classes[entry.signature]
        del pod_class.woken[entry]
        entry.woken = False
        entry.signature = None
        self._settle(pod_class)

    def remove(self, entry: Entry) -> None:
        """The pod leaves, woken or not."""
        entry.woken = False
        self.unschedulable.discard(entry)
        self.backing_off.discard(entry)
        pod_class = self.classes.get(entry.signature)
        entry.signature = None
        if pod_class is not None:
            pod_class.waiting.discard(entry)
            pod_class.tried.discard(entry)
            pod_class.woken.pop(entry, None)
            if pod_class.empty:
                self._drop(pod_class)
            elif pod_class.open:
                # If it was woken, the place that it leaves is free now, whatever becomes of the others.
                self.rounds.ask_for(pod_class)

    def take_ready(self, now_s: float) -> Iterator[Entry]:
        """Take the pods whose back-off ended, and those left over for too long."""
        for heap in (self.backing_off, self.unschedulable):
            for entry in heap.pop_until(now_s):
                self.remove(entry)
                yield entry

    def next_ready_s(self) -> float | None:
        """When `take_ready` will next have something."""
        firsts = (heap.first() for heap in (self.backing_off, self.unschedulable))
        return min((first[0] for first in firsts if first is not None), default=None)

    def next_check(self) -> Check | None:
        """The next question; None when no class is due."""
        if self.rounds.begin():
            for pod_class in tuple(self.classes.values()):
                if pod_class.empty:
                    self._drop(pod_class)
                elif self.rounds.concerns(pod_class):
                    self._restore(pod_class, self.rounds.changes)
                    self.rounds.ask_for(pod_class)
        return self.rounds.next_check()

    def wake(self, check: Check, room: int, wakes_on: int) -> list[Entry]:
        """Take the pods that `room` places are for, in queue order; they count as woken until `decide` or `remove`."""
        pod_class = self.classes.get(check.signature)
        if pod_class is None:
            return []
        pod_class.wakes_on |= wakes_on
        self.rounds.drop(pod_class)
        if room <= 0:
            pod_class.open_rows = NO_ROWS
            self._restore(pod_class, self.rounds.changes + 1)
            return []
        pod_class.open_rows = check.rows
        woken = list(self._take_best(pod_class, room))
        if pod_class.waiting and len(pod_class.woken) < room:
            # A better pod of another class comes first.
            self.rounds.ask_for(pod_class)
        return woken

    def reclassify(self, check: Check, key_of: Callable[[Pod], Hashable]) -> None:
        """Give each pod of the class its signature again; all are asked for again about the rows of `check`."""
        stale = self.classes.pop(check.signature)
        self.rounds.drop(stale)
        for entry in (*stale.waiting, *stale.tried, *stale.woken):
            entry.signature = key_of(entry.pod)
            pod_class = self._class(entry.signature)
            pod_class.open_rows = union(pod_class.open_rows, check.rows)
            pod_class.wakes_on |= stale.wakes_on
            if entry.woken:
                pod_class.woken[entry] = None
            elif entry in stale.tried:
                pod_class.tried.push(entry, entry.sort_key)
            else:
                pod_class.waiting.push(entry, entry.sort_key)
            self.rounds.ask_for(pod_class)

    def validate(self) -> None:
        """Recompute every cross-reference; TransitionError names the first that is wrong."""
        for key, pod_class in self.classes.items():
            members = (*pod_class.waiting, *pod_class.tried, *pod_class.woken)
            expect(not pod_class.tried or pod_class.open, f"class {key!r} has tried pods; expected open rows")
            for entry in members:
                expect(entry.signature == key, f"pod {entry.pod.key} is in class {key!r}, not {entry.signature!r}")
                expect(entry.woken == (entry in pod_class.woken), f"pod {entry.pod.key} is woken: {entry.woken}")
        for entry in self.unschedulable:
            waits = entry.signature is None or entry in self.classes[entry.signature].waiting
            expect(waits and entry.state is State.UNSCHEDULABLE, f"pod {entry.pod.key} is {entry.state.name}")
        for entry in self.backing_off:
            tried = entry in self.classes[entry.signature].tried
            expect(tried and entry.state is State.BACKING_OFF, f"pod {entry.pod.key} is {entry.state.name}")
        waiting = sum(len(pod_class.waiting) for pod_class in self.classes.values())
        hopeless = sum(entry.signature is None for entry in self.unschedulable)
        expect(waiting + hopeless == len(self.unschedulable), f"{waiting} pods wait in classes")
        tried_pods = sum(len(pod_class.tried) for pod_class in self.classes.values())
        expect(tried_pods == len(self.backing_off), f"{tried_pods} pods tried in vain in classes")

    def _take_best(self, pod_class: PodClass, room: int) -> Iterator[Entry]:
        limit = self.rounds.best_due()
        while len(pod_class.woken) < room:
            first = pod_class.waiting.first()
            if first is None or (limit is not None and first[0] > limit):
                return
            entry = first[1]
            pod_class.waiting.discard(entry)
            self.unschedulable.discard(entry)
            pod_class.woken[entry] = None
            entry.woken = True
            yield entry

    def _class(self, key: Hashable) -> PodClass:
        pod_class = self.classes.get(key)
        if pod_class is None:
            pod_class = self.classes[key] = PodClass(key=key)
        return pod_class

    def _rest(self, entry: Entry) -> None:
        entry.state = State.UNSCHEDULABLE
        self.unschedulable.push(entry, entry.leftover_s)

    def _wait(self, entry: Entry, pod_class: PodClass) -> None:
        self._rest(entry)
        pod_class.waiting.push(entry, entry.sort_key)

    def _restore(self, pod_class: PodClass, before: int) -> None:
        """Let pods wait again that were tried earlier than change number `before`."""
        for entry in [entry for entry in pod_class.tried if entry.tried_at < before]:
            pod_class.tried.discard(entry)
            self.backing_off.discard(entry)
            self._wait(entry, pod_class)

    def _settle(self, pod_class: PodClass) -> None:
        """After a pod came or left: ask for the class again when its woken pods are all decided."""
        if pod_class.open and not pod_class.woken:
            self.rounds.ask_for(pod_class)

    def _drop(self, pod_class: PodClass) -> None:
        self.rounds.drop(pod_class)
        del self.classes[pod_class.key]
