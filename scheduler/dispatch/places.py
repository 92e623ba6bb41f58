"""Places for requests of one kind, and the lanes of namespaces that use them or wait for them.

Decides who sends next; `sender` does the waiting and the sending. Owned by the event loop.
"""

import asyncio
from collections import deque
from dataclasses import dataclass, field
from math import inf

from scheduler.dispatch.breaker import Breaker, Circuit
from scheduler.kube.port import ApiThrottled


@dataclass(slots=True, eq=False)
class Lane:
    """Writes of one kind in one namespace. queued: `Places.turns` or `Places.trials`, if it is there.

    on_trial: whether the request in flight is the first one after a back-off. timer: for the end of a back-off, then to
    forget the lane. used: since the timer was set.
    """

    namespace: str
    breaker: Breaker = field(default_factory=Breaker)
    in_flight: int = 0
    waiting: deque[asyncio.Future[None]] = field(default_factory=deque)
    queued: "deque[Lane] | None" = None
    on_trial: bool = False
    used: bool = False
    timer: asyncio.TimerHandle | None = None


class Places:
    """Places of one kind of write, and the lanes that use them or wait for them. first: places of bindings.

    most_waiting: requests of a lane that wait while it fails; the others get ApiThrottled.
    """

    def __init__(self, most: int, first: "Places | None" = None, *, most_waiting: float = inf) -> None:
        self._most = most
        self._first = first
        self._most_waiting = most_waiting
        self.in_flight = 0
        self.lanes: dict[str, Lane] = {}
        # Lanes that wait for a place, but not for a request in flight or a back-off; `trials`: after a back-off.
        self.turns: deque[Lane] = deque()
        self.trials: deque[Lane] = deque()
        self._on_trial = 0

    @property
    def is_busy(self) -> bool:
        return 4 * self.in_flight >= self._most

    @property
    def free(self) -> int:
        most = self._most // 4 if self._first is not None and self._first.is_busy else self._most
        return max(0, most - self.in_flight)

    def lane(self, namespace: str) -> Lane:
        lane = self.lanes.get(namespace)
        if lane is None:
            lane = self.lanes[namespace] = Lane(namespace)
        return lane

    def room(self, lane: Lane) -> int:
        """How many more requests of the lane may be in flight."""
        match lane.breaker.state:
            case Circuit.CLOSED:
                return max(0, self.free - lane.in_flight + 1) // 2
            case Circuit.HALF_OPEN:
                return min(1, self.free) if not lane.in_flight else 0
            case Circuit.OPEN:
                return 0

    def take(self, lane: Lane) -> None:
        lane.used = True
        lane.on_trial = bool(lane.breaker.failures)
        self._on_trial += lane.on_trial
        lane.in_flight += 1
        self.in_flight += 1

    def free_one(self, lane: Lane) -> None:
        lane.in_flight -= 1
        self.in_flight -= 1
        self._on_trial -= lane.on_trial
        lane.on_trial = False

    def queue(self, lane: Lane) -> None:
        turns = self.trials if lane.breaker.failures else self.turns
        if not lane.waiting or lane.queued is turns:
            return
        if lane.queued is not None:
            lane.queued.remove(lane)
        lane.queued = turns
        turns.append(lane)

    def turn_away(self, lane: Lane) -> None:
        """Answer requests of a failing lane that too many others precede."""
        while lane.breaker.has_failed_again and len(lane.waiting) > self._most_waiting:
            waiting = lane.waiting.pop()
            if not waiting.done():
                waiting.set_exception(ApiThrottled(lane.breaker.why))

    def serve(self) -> None:
        """Start waiting requests, of each lane in turn; at most a quarter of the places are for trials.

        Few lanes are skipped: each of them has requests in flight.
        """
        while self.trials and self.free and self.may_try:
            self._start(self.trials.popleft())
        skipped = 0
        while self.free and skipped < len(self.turns):
            lane = self.turns.popleft()
            if self._start(lane):
                skipped = 0
            elif lane.breaker.state is Circuit.CLOSED:
                self.queue(lane)
                skipped += 1

    @property
    def may_try(self) -> bool:
        return self._on_trial < max(1, self._most // 4)

    def _start(self, lane: Lane) -> bool:
        """Start the first waiting request of the lane, and queue it again. Return whether it may send."""
        lane.queued = None
        if not lane.waiting or not self.room(lane):
            return False
        waiting = lane.waiting.popleft()
        if not waiting.done():
            waiting.set_result(None)
            self.take(lane)
        self.queue(lane)
        return True
