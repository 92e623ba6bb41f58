"""Places that are reserved for pods that have waited for long, so that smaller ones do not keep them waiting forever.

    starved ── search, in steps ──▶ RESERVED ── a pod leaves, and it fits ──▶ decided, as any other pod
       ▲             └─ no place ─┐     ├─ held for long enough ──▶ rests as long as it has held
       └──── in five minutes ─────┘     └─ the node, the card or the place is lost ──▶ starved

Of each priority one pod at a time has such a place: the first that has waited for `after_s`, and the namespaces have it
in turn. It is a nomination without victims (`scheduler.state.nominations`): booked for pods of its priority or a lower
one, and not for the pod itself, which takes whatever comes free first. Nobody is made to go (docs/decisions/0047).
Nothing here looks at the clock: a look comes with the next thing that happens, as only that could take a place.
Owned by the event loop. No method awaits, so each one is atomic. now_s: monotonic seconds.
"""

from collections.abc import Generator, Iterator, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Final

import msgspec
from cachetools import LRUCache

from config.settings import duration
from scheduler.core.scheduling_cycle import NoFit, SchedulingCycle
from scheduler.framework.diagnosis import Diagnosis
from scheduler.plugins.preemption.best_place import NO_CARD, best_place
from scheduler.plugins.preemption.victims import Candidate, shares_of
from scheduler.pods.pod import Pod
from scheduler.queue.entry import PodState
from scheduler.queue.longest_waiting import Starved
from scheduler.queue.scheduling_queue import SchedulingQueue
from scheduler.state.available_after_preemption import AvailabilityByPriority
from scheduler.state.cards.booking import CardShare
from scheduler.state.nominations import Nomination, Nominations
from scheduler.state.tables import Tables

if TYPE_CHECKING:
    from scheduler.state.pod_record import PodRecord

# Of all priorities together.
_MOST_RESERVED: Final = 16
# Between two looks; in one, so many pods are searched for.
_LOOK_EVERY_S: Final = 1.0
_MOST_SEARCHED: Final = 16
# A pod for which no node would do now is looked at again after that.
_PASSED_OVER_S: Final = 300.0
# A place is held for so many times `after_s`, for twice as long the next time, and so on.
_HELD: Final = 12
_MOST_DOUBLED: Final = 8
_MOST_REMEMBERED: Final = 1024
_MINUTE_S: Final = 60.0


class Reserved(msgspec.Struct, frozen=True, kw_only=True):
    """A pod has a place that is reserved for it, or has it no longer. diagnosis: what its user reads."""

    pod: Pod
    diagnosis: Diagnosis
    kept: bool


class _Search(msgspec.Struct, frozen=True):
    starved: Starved
    steps: Generator[None, None, Candidate | None]


class Reservations:
    """See the module."""

    def __init__(
        self,
        tables: Tables,
        queue: SchedulingQueue,
        cycles: Mapping[str, SchedulingCycle],
        nominations: Nominations,
        *,
        after_s: float,
    ) -> None:
        """cycles: by scheduler name. after_s: how long a pod waits before; 0: there are no such places."""
        self._tables = tables
        self._queue = queue
        self._cycles = cycles
        self._nominations = nominations
        self._after_s = after_s
        self._after_preemption = AvailabilityByPriority(tables)
        self._look_s = 0.0
        self._to_search: list[Starved] = []
        self._search: _Search | None = None
        self._news: list[Reserved] = []
        # By uid of the pod: until when its place is held, and the places that it has held in vain.
        self._until_s: dict[str, float] = {}
        self._in_vain: LRUCache[str, tuple[PodRecord, ...]] = LRUCache(maxsize=_MOST_REMEMBERED)
        # By priority and namespace: when they had their last turn, in numbers that go up.
        self._turns: LRUCache[tuple[int, str], int] = LRUCache(maxsize=_MOST_REMEMBERED)
        self._turn = 0

    @property
    def any(self) -> bool:
        """Whether `step` has something to do."""
        return self._search is not None or bool(self._news)

    def look(self, now_s: float) -> None:
        """Give up what was held for too long, and begin to search, if it is time for that."""
        if not self._after_s or now_s < self._look_s or self._search is not None:
            return
        self._look_s = now_s + _LOOK_EVERY_S
        for kept in list(self._nominations.reserved.values()):
            if now_s >= self._until_s.get(kept.pod.key.uid, now_s):
                self._give_up(kept, now_s)
        reserved = self._nominations.reserved
        if len(reserved) < _MOST_RESERVED:
            found = self._queue.longest.first(now_s - self._after_s, now_s, without=reserved)
            self._to_search = sorted(found, key=self._order)[:_MOST_SEARCHED]
            self._search_next()

    def step(self, now_s: float) -> Reserved | None:
        """A part of a search; what there is to tell, if there is."""
        if self._search is None:
            return self._news.pop(0) if self._news else None
        starved = self._search.starved
        with self._nominations.seen_by(starved.pod):
            try:
                next(self._search.steps)
            except StopIteration as ended:
                kept = self._kept(starved, ended.value, now_s)
            else:
                return None
        self._search_next()
        return None if kept is None else self._reserved(kept.pod, kept=True)

    def restore(self, kept: Nomination, now_s: float) -> None:
        """Reserve the place again that a pod gave up for a preemption, which has failed, if nobody has it by now."""
        uid = kept.pod.key.uid
        if kept.node not in self._tables.row_of or not self._may_have(kept.pod):
            return
        written = kept.record.written
        shares = [CardShare(card, written.uuids.get(card, ""), units) for card, units in written.per_card.items()]
        if self._nominations.nominate(kept.pod, kept.node, tuple(shares), waited_s=kept.waited_s) is not None:
            self._until_s.setdefault(uid, now_s + self._hold_s(uid))

    def lost(self, kept: Nomination) -> None:
        """The place is none any more: another is looked for at once."""
        self._look_s = 0.0
        self._end(kept)

    def _order(self, starved: Starved) -> tuple[int, int]:
        """The best priority first; of equals, whose namespace had its turn longest ago, and then as in the queue."""
        pod = starved.pod
        return -pod.priority, self._turns.get((pod.priority, pod.key.namespace), 0)

    def _search_next(self) -> None:
        self._search = None
        while self._to_search and self._search is None:
            starved = self._to_search.pop(0)
            if self._may_have(starved.pod):
                self._search = _Search(starved, self._steps(starved.pod))

    def _may_have(self, pod: Pod) -> bool:
        """Whether it waits still, and no place is kept for it or for another of its priority."""
        waits = self._queue.state(pod.key.uid) is PodState.UNSCHEDULABLE
        return waits and self._nominations.of(pod.key.uid) is None and pod.priority not in self._nominations.reserved

    def _steps(self, pod: Pod) -> Generator[None, None, Candidate | None]:
        what_if = self._cycles[pod.scheduler_name].without_equals(pod, self._nominations, self._after_preemption)
        in_vain = frozenset(self._places(pod))
        return (yield from best_place(what_if, pod.priority, self._tables.resource_names.gpu_mem, in_vain))

    def _places(self, pod: Pod) -> Iterator[tuple[int, int]]:
        """(row, slot) where it has waited in vain, as far as that is there."""
        for record in self._in_vain.get(pod.key.uid, ()):
            row = self._tables.row_of.get(record.node)
            if row is not None and not record.written.per_card:
                yield row, NO_CARD
            elif row is not None:
                slots = enumerate(self._tables.cards.slots[row])
                yield from ((row, slot) for slot, its in slots if its.card.index in record.written.per_card)

    def _kept(self, starved: Starved, place: Candidate | None, now_s: float) -> Nomination | None:
        pod, uid = starved.pod, starved.pod.key.uid
        if place is None:
            self._queue.pass_over(uid, now_s + _PASSED_OVER_S)
        if place is None or not self._may_have(pod):
            return None
        node, shares = self._tables.names[place.row], shares_of(pod, self._tables, place)
        kept = self._nominations.nominate(pod, node, shares, waited_s=starved.waited_s)
        if kept is not None:
            self._turn += 1
            self._turns[pod.priority, pod.key.namespace] = self._turn
            self._forget_ended()
            self._until_s[uid] = now_s + self._hold_s(uid)
        return kept

    def _hold_s(self, uid: str) -> float:
        return float(_HELD * self._after_s * 2 ** len(self._in_vain.get(uid, ())))

    def _give_up(self, kept: Nomination, now_s: float) -> None:
        uid = kept.pod.key.uid
        self._queue.pass_over(uid, now_s + self._hold_s(uid))
        self._in_vain[uid] = (*self._in_vain.get(uid, ()), kept.record)[-_MOST_DOUBLED:]
        self._end(kept)

    def _end(self, kept: Nomination) -> None:
        self._nominations.remove(kept.pod.key.uid)
        self._forget_ended()
        self._news.append(self._reserved(kept.pod, kept=False))

    def _forget_ended(self) -> None:
        held = {one.pod.key.uid for one in self._nominations.reserved.values()}
        self._until_s = {uid: until_s for uid, until_s in self._until_s.items() if uid in held}

    def _reserved(self, pod: Pod, *, kept: bool) -> Reserved:
        cycle = self._cycles[pod.scheduler_name]
        with self._nominations.seen_by(pod):
            no_fit = with_reserved_place(cycle.no_fit(pod), cycle, self._nominations)
        return Reserved(pod=pod, diagnosis=no_fit.diagnosis, kept=kept)


def with_reserved_place(no_fit: NoFit, cycle: SchedulingCycle, nominations: Nominations) -> NoFit:
    """With the reserved place that the pod waits for, or that keeps it away from where it would fit.

    The tables are as the pod sees them.
    """
    if not nominations.reserved or no_fit.by_permit:
        return no_fit
    own = nominations.of(no_fit.pod.key.uid)
    if own is not None and own.reserved:
        text = f"{_place(own)} kept for this pod, which has waited {_waited(own)}"
    else:
        above = _above(no_fit.pod, nominations)
        kept = next((one for one in above if cycle.fits_without(no_fit.pod, one.record)), None)
        if kept is None:
            return no_fit
        whom = kept.pod.key.told_in(no_fit.pod.key.namespace)
        text = f"{_place(kept)} kept for {whom}, which has waited {_waited(kept)}"
    return replace(no_fit, diagnosis=replace(no_fit.diagnosis, reserved=text))


def _above(pod: Pod, nominations: Nominations) -> Iterator[Nomination]:
    """Reserved places that are booked for the pod, the best first."""
    for priority, kept in sorted(nominations.reserved.items(), reverse=True):
        if priority >= pod.priority and kept.shown:
            yield kept


def _place(kept: Nomination) -> str:
    """`card 0 of node a is`, `cards 0 and 1 of node a are`, `room on node a is`."""
    indexes = [str(index) for index in sorted(kept.record.written.per_card)]
    if not indexes:
        return f"room on node {kept.node} is"
    if len(indexes) == 1:
        return f"card {indexes[0]} of node {kept.node} is"
    return f"cards {', '.join(indexes[:-1])} and {indexes[-1]} of node {kept.node} are"


def _waited(kept: Nomination) -> str:
    """In whole minutes, or seconds where it is less than one."""
    waited_s = kept.waited_s or 0.0
    return duration.text(waited_s // _MINUTE_S * _MINUTE_S if waited_s >= _MINUTE_S else round(waited_s))
