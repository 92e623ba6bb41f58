"""The agenda: the one giver of the event loop's time to the core. Pure; time is an argument.

    step ─▶ an open transaction; a hint; the best rank; of equals, the work whose last step is longest ago ─▶ effects

Work in the background comes last, but for a step now and then: pods that come without end must not keep it from its
turn. After each of its steps it rests for a multiple of the time until the next step of the agenda. Owned by the event
loop; no method awaits.
"""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from math import inf
from typing import ClassVar, Final, NamedTuple, TypeAlias

from scheduler.core.effects import Effect

# Priority of the pod that a step is for; the highest comes first.
Rank: TypeAlias = int
FIRST: Final[Rank] = 1 << 62
LAST: Final[Rank] = -FIRST
# Work in the background gets a step at least this often, while it has any and does not rest.
_BACKGROUND_EVERY_S: Final = 0.05


class Work(ABC):
    """A kind of work, which is done in steps.

    slice_s: for how many seconds after the beginning of a step others may follow before the event loop does other
    things. Hints and searches may take long, so new pods pass through the loop several times before they are decided.
    """

    slice_s: ClassVar[float] = 0.001

    @abstractmethod
    def rank(self, now_s: float) -> Rank | None:
        """Return the rank of the next step; None if there is nothing to do. now_s: monotonic seconds."""

    @abstractmethod
    def step(self, now_s: float, now_ns: int) -> Sequence[Effect] | None:
        """Do one step; None if there was nothing to do after all. now_ns: Unix nanoseconds."""


class BackgroundWork(ABC):
    """Work that nobody waits for. rest: after a step it rests for this multiple of the step's time."""

    rest: ClassVar[float]

    @abstractmethod
    def due_s(self) -> float:
        """Return the time from which there is work, possibly in the past; inf if only a change can bring some."""

    @abstractmethod
    def step(self, now_s: float) -> Sequence[Effect]:
        """Do one step."""


class AgendaStep(NamedTuple):
    """A step that was done. slice_s: see `Work`."""

    effects: Sequence[Effect]
    slice_s: float


class Agenda:
    """All kinds of work."""

    def __init__(
        self,
        hints: Work,
        works: Sequence[Work],
        background: Sequence[BackgroundWork] = (),
        *,
        transaction: Work | None = None,
    ) -> None:
        """hints: comes before all `works`, because it finds out which pods are ready.

        transaction: while it has a rank, nothing else gets a step.
        """
        self._transaction = transaction
        self._hints = hints
        # The one whose last step is longest ago comes first.
        self._works = list(works)
        self._rests_until_s = dict.fromkeys(background, -inf)
        # The background work of the last step, and when that began.
        self._last: tuple[BackgroundWork, float] | None = None
        self._background_s = -inf

    def step(self, now_s: float, now_ns: int, *, may_place: bool = True) -> AgendaStep | None:
        """Do the next step; None if there is nothing to do. may_place: if False, only work in the background."""
        if self._last is not None:
            rests, began_s = self._last
            self._rests_until_s[rests], self._last = now_s + rests.rest * (now_s - began_s), None
        if self._transaction is not None and self._transaction.rank(now_s) is not None:
            return AgendaStep(self._transaction.step(now_s, now_ns) or (), self._transaction.slice_s)
        if not may_place:
            return self._in_background(now_s)
        if now_s >= self._background_s:
            self._background_s = now_s + _BACKGROUND_EVERY_S
            if (done := self._in_background(now_s)) is not None:
                return done
        hinted = self._hints.step(now_s, now_ns)
        if hinted is not None:
            return AgendaStep(hinted, self._hints.slice_s)
        left = list(self._works)
        while (work := _first(left, now_s)) is not None:
            effects = work.step(now_s, now_ns)
            if effects is not None:
                self._works.remove(work)
                self._works.append(work)
                return AgendaStep(effects, work.slice_s)
            left.remove(work)
        return self._in_background(now_s)

    def due_s(self) -> float:
        """Return the time from which there is work in the background; inf if only a change can bring some."""
        return min((max(work.due_s(), until_s) for work, until_s in self._rests_until_s.items()), default=inf)

    def _in_background(self, now_s: float) -> AgendaStep | None:
        for work, until_s in self._rests_until_s.items():
            if now_s >= until_s and now_s >= work.due_s():
                self._last = work, now_s
                return AgendaStep(work.step(now_s), Work.slice_s)
        return None


def _first(works: Sequence[Work], now_s: float) -> Work | None:
    best: Work | None = None
    best_rank = 0
    for work in works:
        rank = work.rank(now_s)
        if rank is not None and (best is None or rank > best_rank):
            best, best_rank = work, rank
    return best
