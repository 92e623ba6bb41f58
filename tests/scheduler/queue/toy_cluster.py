"""A cluster of rows with free units, a queue of pods that request units, and a driver for both."""

from collections.abc import Callable, Hashable

import numpy as np
from msgspec.structs import replace

from scheduler.pods.pod import Pod
from scheduler.queue.scheduling_queue import SchedulingQueue
from scheduler.queue.waking import QueueingHint, SomeRows
from scheduler.state.amounts import ANY_BIT, NOTHING, Amount, AvailableOnCards
from scheduler.state.changes import Change, ClusterEvents
from scheduler.state.columns.arrays import Int64Array, RowArray
from scheduler.state.minimum_request import NO_MINIMUM, MinimumRequest
from tests.support import builders

GATED = "waits for its gates"
ANY = int(Change.ANY)


def events_on(*rows: int, kinds: int = ANY, everywhere: int = 0) -> ClusterEvents:
    """Cluster events on these rows, or everywhere."""
    found = ClusterEvents()
    for row in rows:
        found.note(row, kinds)
    found.note_everywhere(everywhere)
    return found


def pod(
    name: str, units: int = 1, *, priority: int = 0, gates: tuple[str, ...] = (), namespace: str = "default"
) -> Pod:
    """A waiting pod; its uid is its name, and pods with equal requests share a template."""
    gated = [{"name": gate} for gate in gates]
    return builders.pod(name, units, uid=name, priority=priority, namespace=namespace, schedulingGates=gated)


def pods(count: int, units: int = 1, prefix: str = "p") -> list[Pod]:
    """Equal pods p0, p1 and so on."""
    return [pod(f"{prefix}{index}", units) for index in range(count)]


class Plenty:
    """Like `ToyCluster.amounts`, but with enough of every amount: only the rules decide."""

    def amounts(self, rows: RowArray) -> Int64Array:
        return np.full((len(Amount), len(rows)), 1000, dtype=np.int64)

    def cards(self, _row: int) -> AvailableOnCards:
        return one_card(1000)


plenty = Plenty()


def one_card(units: int) -> AvailableOnCards:
    """A card that fits any model and UUID."""
    bits = np.full(1, ANY_BIT, dtype=np.int64)
    return AvailableOnCards(np.full(1, units, dtype=np.int64), np.ones(1, dtype=np.bool_), bits, bits, bits)


class Gates:
    """The PreEnqueue rule of scheduling gates."""

    def pre_enqueue(self, pod: Pod) -> str | None:
        return GATED if pod.gates else None


def key_of(pod: Pod) -> Hashable:
    """Signature of a cluster whose rules read every label."""
    return (pod.template, *sorted(pod.labels.items()))


def minimum(pod: Pod) -> MinimumRequest:
    """Minimum request of the pod."""
    asked = np.full(len(Amount), NOTHING, dtype=np.int64)
    asked[Amount.CARD_UNITS] = pod.template.gpu_units
    return MinimumRequest(amounts=asked)


class ToyCluster:
    """room: free units by row. placed: uid -> (pod, row), assumed or bound."""

    def __init__(self, *room: int) -> None:
        self.room = list(room)
        self.placed: dict[str, tuple[Pod, int]] = {}
        self.queue = SchedulingQueue(pre_enqueue={"gpushare-scheduler": (Gates(),)})
        self.now_s = 0.0
        self.asked: list[QueueingHint] = []

    def add(self, *pods: Pod) -> None:
        for each in pods:
            self.queue.add_or_update(each, self.now_s, key_of)

    def capacity(self, units: int, rows: SomeRows) -> int:
        """How many such pods fit on the rows now."""
        return sum(self.room[row] // units for row in (range(len(self.room)) if rows is None else rows))

    def amounts(self, rows: RowArray) -> Int64Array:
        """See AvailableOnRows; units are those of one card."""
        left = np.zeros((len(Amount), len(rows)), dtype=np.int64)
        left[Amount.CARD_UNITS] = [self.room[row] for row in rows]
        return left

    def cards(self, row: int) -> AvailableOnCards:
        """See AvailableOnRows."""
        return one_card(self.room[row])

    def decide(self) -> str | None:
        """One attempt, after every hint before it; returns the uid of its pod, None if no pod is ready."""
        while self.run_hint() is not None:
            pass
        queued = self.queue.pop(self.now_s)
        if queued is None:
            return None
        uid, units = queued.pod.key.uid, queued.pod.template.gpu_units
        row = next((row for row, room in enumerate(self.room) if room >= units), None)
        if row is None:
            signature = key_of(queued.pod)
            self.queue.unschedulable(uid, signature, self.now_s, wakes_on=ANY, minimum=minimum(queued.pod))
        else:
            self.room[row] -= units
            self.placed[uid] = (queued.pod, row)
        return uid

    def settle(self) -> list[str]:
        """Attempts until no pod is ready; returns the pods in order of their attempts."""
        decided = []
        while (uid := self.decide()) is not None:
            decided.append(uid)
        return decided

    def next_hint(self) -> QueueingHint | None:
        return self.queue.next_hint(self)

    def the_hint(self) -> QueueingHint:
        """The next hint by the rules alone, which there must be."""
        hint = self.queue.next_hint(plenty)
        assert hint is not None
        return hint

    def asked_in_vain(self) -> list[QueueingHint]:
        """All hints by the rules alone, each answered with no."""
        asked = []
        while (hint := self.queue.next_hint(plenty)) is not None:
            asked.append(hint)
            self.queue.fits_not(hint, wakes_on=ANY)
        return asked

    def run_hint(self) -> bool | None:
        """Answer one hint; returns whether the pod fits, None without a hint."""
        hint = self.next_hint()
        return None if hint is None else self.answer(hint)

    def answer(self, hint: QueueingHint) -> bool:
        self.asked.append(hint)
        signature = key_of(hint.pod)
        if signature != hint.signature:
            self.queue.reclassify(hint, signature, minimum(hint.pod))
            return False
        fits = self.capacity(hint.pod.template.gpu_units, hint.rows) > 0
        if fits:
            self.queue.fits(hint, self.now_s)
        else:
            self.queue.fits_not(hint, wakes_on=ANY)
        return fits

    def bound(self, uid: str) -> None:
        self.queue.done(uid)

    def bind_failed(self, uid: str) -> None:
        """The bind failed: the room is free again."""
        self.queue.failed(uid, self.now_s)
        self.leave(uid)

    def leave(self, uid: str) -> None:
        """A placed pod is gone."""
        pod, row = self.placed.pop(uid)
        self.free(row, pod.template.gpu_units)

    def free(self, row: int, units: int) -> None:
        """The row gets more room."""
        self.room[row] += units
        self.queue.note_events(events_on(row))

    def after(self, seconds: float) -> None:
        self.now_s += seconds
        self.queue.flush(self.now_s)


def full(*waiting: Pod, rows: int = 1) -> ToyCluster:
    """A cluster without room, whose pods all found that out."""
    cluster = ToyCluster(*[0] * rows)
    cluster.add(*waiting)
    cluster.settle()
    return cluster


def in_vain(
    *waiting: Pod,
    of_class: Callable[[Pod], Hashable] = key_of,
    wakes_on: int = ANY,
    minimum: MinimumRequest = NO_MINIMUM,
) -> ToyCluster:
    """A cluster without room, whose pods have all been told so by rules of their own. of_class: their signatures."""
    cluster = ToyCluster(0)
    for each in waiting:
        cluster.add(each)
        cluster.queue.pop(0.0)
        cluster.queue.unschedulable(each.key.uid, of_class(each), 0.0, wakes_on=wakes_on, minimum=minimum)
    return cluster


def with_labels(pod: Pod, **labels: str) -> Pod:
    return replace(pod, labels=labels)
