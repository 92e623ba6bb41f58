"""Reservations for starving pods, so that smaller pods cannot keep them waiting forever.

    starving ── search, in steps ──▶ RESERVED ── a pod leaves, and it fits ──▶ decided, like any other pod
       ▲             └─ no node ──┐     ├─ expired ──▶ rests as long as the reservation lasted
       └──── in five minutes ─────┘     └─ node, card or nomination lost ──▶ starving

At each priority one pod at a time has a reservation: the first that has waited for `after_s`; namespaces take turns. A
reservation is a nomination without victims (`scheduler.state.nominations`). Pods of its priority or lower see it as
booked. The pod itself does not, and takes the first room that fits. It evicts nothing: docs/develop/decisions/0047.
`look` needs no timer: it runs with the next event, and only an event could take the room. Owned by the event loop; no
method awaits, so each call is atomic. now_s: monotonic seconds.
"""

from collections.abc import Generator, Iterator, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Final

import msgspec
from cachetools import LRUCache

from config.settings import duration
from scheduler.core.scheduling_cycle import NoFit, SchedulingCycle
from scheduler.framework.diagnosis import Diagnosis
from scheduler.plugins.preemption.best_reservation import NO_CARD, best_reservation
from scheduler.plugins.preemption.victims import Candidate, shares_of
from scheduler.pods.pod import Pod
from scheduler.queue.entry import PodState
from scheduler.queue.longest_waiting import StarvingPod
from scheduler.queue.scheduling_queue import SchedulingQueue
from scheduler.state.available_after_preemption import AvailabilityByPriority
from scheduler.state.cards.booking import CardShare
from scheduler.state.nominations import Nomination, Nominations
from scheduler.state.tables import Tables

if TYPE_CHECKING:
    from scheduler.state.pod_record import PodRecord

# For all priorities together.
_MOST_RESERVED: Final = 16
# Interval between two runs of `look`, and pods searched for in one run.
_LOOK_EVERY_S: Final = 1.0
_MOST_SEARCHED: Final = 16
# Pause of a pod for which no node qualifies.
_PASSED_OVER_S: Final = 300.0
# A reservation lasts this many times `after_s`, and twice as long each further time.
_HELD: Final = 12
_MOST_DOUBLED: Final = 8
_MOST_REMEMBERED: Final = 1024
_MINUTE_S: Final = 60.0


class Reserved(msgspec.Struct, frozen=True, kw_only=True):
    """A reservation that a pod got or lost. diagnosis: the message for its user. kept: True if it got one."""

    pod: Pod
    diagnosis: Diagnosis
    kept: bool


class _Search(msgspec.Struct, frozen=True):
    starving: StarvingPod
    steps: Generator[None, None, Candidate | None]


class Reservations:
    """Reservations of starving pods and the search for them."""

    def __init__(
        self,
        tables: Tables,
        queue: SchedulingQueue,
        cycles: Mapping[str, SchedulingCycle],
        nominations: Nominations,
        *,
        after_s: float,
    ) -> None:
        """cycles: scheduler name -> its cycle. after_s: wait before a reservation; 0 turns reservations off."""
        self._tables = tables
        self._queue = queue
        self._cycles = cycles
        self._nominations = nominations
        self._after_s = after_s
        self._after_preemption = AvailabilityByPriority(tables)
        self._look_s = 0.0
        self._to_search: list[StarvingPod] = []
        self._search: _Search | None = None
        self._changes: list[Reserved] = []
        # By uid: expiry of the reservation, and records of the expired ones.
        self._until_s: dict[str, float] = {}
        self._expired: LRUCache[str, tuple[PodRecord, ...]] = LRUCache(maxsize=_MOST_REMEMBERED)
        # By (priority, namespace): number of the last turn; higher is later.
        self._turns: LRUCache[tuple[int, str], int] = LRUCache(maxsize=_MOST_REMEMBERED)
        self._turn = 0

    @property
    def any(self) -> bool:
        """True if `step` has work."""
        return self._search is not None or bool(self._changes)

    def look(self, now_s: float) -> None:
        """Drop expired reservations and start a search, at most once a second."""
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
        """Continue the search; return a change to report, if any."""
        if self._search is None:
            return self._changes.pop(0) if self._changes else None
        starving = self._search.starving
        with self._nominations.seen_by(starving.pod):
            try:
                next(self._search.steps)
            except StopIteration as ended:
                kept = self._kept(starving, ended.value, now_s)
            else:
                return None
        self._search_next()
        return None if kept is None else self._reserved(kept.pod, kept=True)

    def restore(self, kept: Nomination, now_s: float) -> None:
        """Restore the reservation that a pod gave up for a failed preemption, if it is still possible."""
        uid = kept.pod.key.uid
        if kept.node not in self._tables.row_of or not self._may_have(kept.pod):
            return
        written = kept.record.written
        shares = [CardShare(card, written.uuids.get(card, ""), units) for card, units in written.per_card.items()]
        if self._nominations.nominate(kept.pod, kept.node, tuple(shares), waited_s=kept.waited_s) is not None:
            self._until_s.setdefault(uid, now_s + self._hold_s(uid))

    def lost(self, kept: Nomination) -> None:
        """Drop a void reservation and search for another now."""
        self._look_s = 0.0
        self._end(kept)

    def _order(self, starving: StarvingPod) -> tuple[int, int]:
        """Return the sort key: best priority first, then the namespace with the oldest turn; otherwise queue order."""
        pod = starving.pod
        return -pod.priority, self._turns.get((pod.priority, pod.key.namespace), 0)

    def _search_next(self) -> None:
        self._search = None
        while self._to_search and self._search is None:
            starving = self._to_search.pop(0)
            if self._may_have(starving.pod):
                self._search = _Search(starving, self._steps(starving.pod))

    def _may_have(self, pod: Pod) -> bool:
        """Return whether the pod still waits without a nomination and its priority has no reservation."""
        waits = self._queue.state(pod.key.uid) is PodState.UNSCHEDULABLE
        return waits and self._nominations.of(pod.key.uid) is None and pod.priority not in self._nominations.reserved

    def _steps(self, pod: Pod) -> Generator[None, None, Candidate | None]:
        what_if = self._cycles[pod.scheduler_name].without_equals(pod, self._nominations, self._after_preemption)
        expired = frozenset(self._expired_slots(pod))
        return (yield from best_reservation(what_if, pod.priority, self._tables.resource_names.gpu_mem, expired))

    def _expired_slots(self, pod: Pod) -> Iterator[tuple[int, int]]:
        """Yield (row, slot) of the pod's expired reservations that still exist."""
        for record in self._expired.get(pod.key.uid, ()):
            row = self._tables.row_of.get(record.node)
            if row is not None and not record.written.per_card:
                yield row, NO_CARD
            elif row is not None:
                slots = enumerate(self._tables.cards.slots[row])
                yield from ((row, slot) for slot, its in slots if its.card.index in record.written.per_card)

    def _kept(self, starving: StarvingPod, candidate: Candidate | None, now_s: float) -> Nomination | None:
        pod, uid = starving.pod, starving.pod.key.uid
        if candidate is None:
            self._queue.pass_over(uid, now_s + _PASSED_OVER_S)
        if candidate is None or not self._may_have(pod):
            return None
        node, shares = self._tables.names[candidate.row], shares_of(pod, self._tables, candidate)
        kept = self._nominations.nominate(pod, node, shares, waited_s=starving.waited_s)
        if kept is not None:
            self._turn += 1
            self._turns[pod.priority, pod.key.namespace] = self._turn
            self._forget_ended()
            self._until_s[uid] = now_s + self._hold_s(uid)
        return kept

    def _hold_s(self, uid: str) -> float:
        return float(_HELD * self._after_s * 2 ** len(self._expired.get(uid, ())))

    def _give_up(self, kept: Nomination, now_s: float) -> None:
        uid = kept.pod.key.uid
        self._queue.pass_over(uid, now_s + self._hold_s(uid))
        self._expired[uid] = (*self._expired.get(uid, ()), kept.record)[-_MOST_DOUBLED:]
        self._end(kept)

    def _end(self, kept: Nomination) -> None:
        self._nominations.remove(kept.pod.key.uid)
        self._forget_ended()
        self._changes.append(self._reserved(kept.pod, kept=False))

    def _forget_ended(self) -> None:
        held = {one.pod.key.uid for one in self._nominations.reserved.values()}
        self._until_s = {uid: until_s for uid, until_s in self._until_s.items() if uid in held}

    def _reserved(self, pod: Pod, *, kept: bool) -> Reserved:
        cycle = self._cycles[pod.scheduler_name]
        with self._nominations.seen_by(pod):
            no_fit = with_reservation(cycle.no_fit(pod), cycle, self._nominations)
        return Reserved(pod=pod, diagnosis=no_fit.diagnosis, kept=kept)


def with_reservation(no_fit: NoFit, cycle: SchedulingCycle, nominations: Nominations) -> NoFit:
    """Add to the message the reservation that the pod waits for, or the one that keeps it off a node.

    Call this while the tables are as the pod sees them.
    """
    if not nominations.reserved or no_fit.by_permit:
        return no_fit
    own = nominations.of(no_fit.pod.key.uid)
    if own is not None and own.reserved:
        text = f"{_room(own)} reserved for this pod, which has waited {_waited(own)}"
    else:
        above = _above(no_fit.pod, nominations)
        kept = next((one for one in above if cycle.fits_without(no_fit.pod, one.record)), None)
        if kept is None:
            return no_fit
        whom = kept.pod.key.shown_in(no_fit.pod.key.namespace)
        text = f"{_room(kept)} reserved for {whom}, which has waited {_waited(kept)}"
    return replace(no_fit, diagnosis=replace(no_fit.diagnosis, reserved=text))


def _above(pod: Pod, nominations: Nominations) -> Iterator[Nomination]:
    """Yield the reservations that are booked for the pod, the most important first."""
    for priority, kept in sorted(nominations.reserved.items(), reverse=True):
        if priority >= pod.priority and kept.shown:
            yield kept


def _room(kept: Nomination) -> str:
    """Return text such as `card 0 of node a is`, `cards 0 and 1 of node a are` or `room on node a is`."""
    indexes = [str(index) for index in sorted(kept.record.written.per_card)]
    if not indexes:
        return f"room on node {kept.node} is"
    if len(indexes) == 1:
        return f"card {indexes[0]} of node {kept.node} is"
    return f"cards {', '.join(indexes[:-1])} and {indexes[-1]} of node {kept.node} are"


def _waited(kept: Nomination) -> str:
    """Return the wait in whole minutes, or in seconds if it is below one minute."""
    waited_s = kept.waited_s or 0.0
    return duration.text(waited_s // _MINUTE_S * _MINUTE_S if waited_s >= _MINUTE_S else round(waited_s))
