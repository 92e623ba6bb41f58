"""Reservations for starving pods, so that smaller pods cannot keep them waiting forever: EASY backfill.

    starving ── search, in steps ──▶ RESERVED ── a pod leaves, and it fits ──▶ decided, like any other pod
       ▲             └─ no node ──┐     ├─ expired ──▶ rests as long as the reservation lasted
       └──── in five minutes ─────┘     └─ node, card or nomination lost ──▶ starving

At each priority one pod at a time has a reservation: the one that has waited longest, if that is `after_s` or more. A
reservation is a nomination without victims (`scheduler.state.nominations`). Pods of its priority or lower see it as
booked. The pod itself does not, and takes the first room that fits. It evicts nothing: docs/develop/decisions/0047.
`step` needs no timer: it is called with the next event, and only an event could take the room. Owned by the event loop;
no method awaits, so each call is atomic. now_s: monotonic seconds.
"""

from collections.abc import Generator, Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Final

import msgspec
from cachetools import LRUCache

from config.settings import duration
from scheduler.core.agenda import FIRST, Rank, Work
from scheduler.core.effects import Effect, Nominate, Reserve
from scheduler.core.scheduling_cycle import NoFit, SchedulingCycle
from scheduler.core.shared import Shared
from scheduler.plugins.preemption.best_reservation import best_reservation
from scheduler.plugins.preemption.victims import Candidate, shares_of
from scheduler.pods.pod import Pod
from scheduler.queue.entry import PodState
from scheduler.queue.longest_waiting import StarvingPod
from scheduler.state.available_after_preemption import AvailabilityByPriority
from scheduler.state.nominations import Nomination, Nominations

if TYPE_CHECKING:
    from scheduler.state.pod_record import PodRecord

# Interval between two rounds of searches, and pods searched for in one round.
_ROUND_S: Final = 1.0
_MOST_SEARCHED: Final = 16
# Pause of a pod for which no node qualifies.
_PASSED_OVER_S: Final = 300.0
# A reservation lasts this many times `after_s`, and twice as long each further time.
_HELD: Final = 12
_MOST_DOUBLED: Final = 8
_MOST_REMEMBERED: Final = 1024
_MINUTE_S: Final = 60.0


class _Search(msgspec.Struct, frozen=True):
    starving: StarvingPod
    steps: Generator[None, None, Candidate | None]


class Reservations(Work):
    """Reservations of starving pods and the search for them."""

    def __init__(self, shared: Shared, *, after_s: float) -> None:
        """after_s: wait before a reservation; 0 turns reservations off."""
        self._shared = shared
        self._tables, self._queue = shared.tables, shared.queue
        self._cycles, self._nominations = shared.cycles, shared.nominations
        self._after_s = after_s
        self._after_preemption = AvailabilityByPriority(shared.tables)
        self._next_round_s = 0.0
        self._to_search: list[StarvingPod] = []
        self._search: _Search | None = None
        self._lost: list[Pod] = []
        # By uid: its expired reservations.
        self._expired: LRUCache[str, tuple[PodRecord, ...]] = LRUCache(maxsize=_MOST_REMEMBERED)

    def rank(self, now_s: float) -> Rank | None:
        """Return the priority of the pod that gets or loses a reservation; a round begins before everything else."""
        if self._lost:
            return self._lost[0].priority
        if self._search is not None:
            return self._search.starving.pod.priority
        return FIRST if self._after_s > 0 and now_s >= self._next_round_s else None

    def step(self, now_s: float, now_ns: int) -> Sequence[Effect] | None:  # noqa: ARG002 - writes no annotation
        """Report a lost reservation, continue the search, or begin the next round."""
        if self._lost:
            return self._changed(self._lost.pop(0), kept=False)
        if self._search is not None:
            return self._continue(self._search, now_s)
        if self.rank(now_s) is None:
            return None
        self._begin_round(now_s)
        return () if self._lost or self._search is not None else None

    def _continue(self, search: _Search, now_s: float) -> Sequence[Effect]:
        with self._nominations.seen_by(search.starving.pod):
            try:
                next(search.steps)
            except StopIteration as ended:
                kept = self._kept(search.starving, ended.value, now_s)
            else:
                return ()
        self._search_next()
        return () if kept is None else self._changed(kept.pod, kept=True)

    def lost(self, kept: Nomination) -> None:
        """Drop a void reservation and search for another now."""
        self._next_round_s = 0.0
        self._nominations.remove(kept.pod.key.uid)
        self._lost.append(kept.pod)

    def _begin_round(self, now_s: float) -> None:
        self._next_round_s = now_s + _ROUND_S
        for kept in list(self._nominations.reserved.values()):
            if now_s >= kept.until_s:
                self._expire(kept, now_s)
        reserved = self._nominations.reserved
        self._to_search = self._queue.longest.first(now_s - self._after_s, now_s, without=reserved)[:_MOST_SEARCHED]
        self._search_next()

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
        expired = self._expired.get(pod.key.uid, ())
        return (yield from best_reservation(what_if, pod.priority, self._tables.resource_names.gpu_mem, expired))

    def _kept(self, starving: StarvingPod, candidate: Candidate | None, now_s: float) -> Nomination | None:
        pod, uid = starving.pod, starving.pod.key.uid
        if candidate is None:
            self._queue.pass_over(uid, now_s + _PASSED_OVER_S)
        if candidate is None or not self._may_have(pod):
            return None
        node, shares = self._tables.names[candidate.row], shares_of(pod, self._tables, candidate)
        until_s = now_s + self._held_s(uid)
        return self._nominations.nominate(pod, node, shares, waited_s=starving.waited_s, until_s=until_s)

    def _held_s(self, uid: str) -> float:
        return float(_HELD * self._after_s * 2 ** len(self._expired.get(uid, ())))

    def _expire(self, kept: Nomination, now_s: float) -> None:
        uid = kept.pod.key.uid
        self._queue.pass_over(uid, now_s + self._held_s(uid))
        self._expired[uid] = (*self._expired.get(uid, ()), kept.record)[-_MOST_DOUBLED:]
        self._nominations.remove(uid)
        self._lost.append(kept.pod)

    def _changed(self, pod: Pod, *, kept: bool) -> Sequence[Effect]:
        cycle = self._cycles[pod.scheduler_name]
        with self._nominations.seen_by(pod):
            no_fit = with_reservation(cycle.no_fit(pod), cycle, self._nominations)
        # The message of the pod's next attempt mentions the reservation.
        self._shared.retries.append(pod)
        return Reserve(pod, no_fit.diagnosis, kept), Nominate(pod)


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
