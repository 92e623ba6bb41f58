"""Assigns cards to processes, so that a hanging card affects only itself.

    TOGETHER --silent or failing for a minute, or the first to hang when all did--> APART
       ▲ ▲                                                                           │ │
       │ └──── it answers there, and to the shared process at the next try ──────────┘ │
       └───── reclaimed ── RELEASED: no process touches it ◀──── release (also from TOGETHER)

TOGETHER: the shared process queries it in a separate thread; while that hangs, the others are still queried.
APART: it has a process of its own (`CardApart`). The shared process keeps running with its hanging thread: ending it
would lose errors of the other cards.
The shared process is ended if all cards hang in it, and restarted if it died; pending calls are repeated.
Owned by the event loop.
"""

import asyncio
import contextlib
from collections import Counter
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final, TypeVar

import structlog

from deviceplugin.driver import calls
from deviceplugin.driver.calls import Worker, WorkerDied
from deviceplugin.driver.card_apart import CardApart
from deviceplugin.driver.cards import (
    CardFailed,
    CardKey,
    CardReading,
    DriverCard,
    DriverCards,
    MemoryLimits,
    NoAnswer,
    SourceFailed,
    Xid,
    with_instances,
)
from deviceplugin.driver.cuda import CudaAnswer
from deviceplugin.driver.cuda_trials import CudaTrials
from deviceplugin.driver.processes import DriverLimits, OpenedDriver, Processes


def _now_s() -> float:
    return asyncio.get_running_loop().time()


T = TypeVar("T")
_LISTEN_AGAIN_S: Final = 10.0
_DEATHS: Final = 2  # of the shared process between two looks, while this card was queried more often than any other
_ALL_RELEASED: Final = "all cards are released"
log = structlog.get_logger()


class SupervisedDriver:
    """`cards.Driver` with processes. Create it inside the event loop."""

    def __init__(
        self,
        start: Callable[[], Awaitable[Worker]],
        limits: DriverLimits | None = None,
        trials: CudaTrials | None = None,
        attached: Callable[[], frozenset[str]] = frozenset,
    ) -> None:
        """start: creates a process; raises SourceFailed. trials: CUDA trials; None for cards without CUDA.

        attached: PCI addresses of the cards that the kernel shows here.
        """
        self._trials, self._attached = trials, attached
        self._attached_first = self._attached_last = attached()
        self._counted_s = _now_s()
        self._closed = False
        self.processes = Processes(start, limits or DriverLimits())
        self._limits = self.processes.limits
        self._common: OpenedDriver | None = None
        self._apart: dict[str, CardApart] = {}
        self._released: frozenset[str] = frozenset()
        self._known: dict[str, DriverCard] = {}
        self._failing_s: dict[str, float] = {}
        self._deaths: Counter[str] = Counter()
        self._other_instances = False
        self._opening = asyncio.Lock()
        self._next_s, self._pause_s = 0.0, 0.0
        self._why = SourceFailed("the driver has not been queried yet")
        self._xids: asyncio.Queue[Xid] = asyncio.Queue()
        self._listeners: set[asyncio.Task[None]] = set()

    def remember(self, cards: Iterable[DriverCard]) -> None:
        """Start with cards known before the first call."""
        listed = tuple(cards)
        parts = {card.uuid: tuple(one for one in listed if one.parent == card.uuid) for card in listed}
        self._known |= {card.uuid: replace(card, instances=parts[card.uuid]) for card in listed if not card.parent}

    async def cards(self) -> DriverCards:
        """Return all cards, described again. Finds new ones only while the shared process may query every known one."""
        self._other_instances = False
        if self._common is not None and (self._more() or _now_s() >= self._counted_s + self._limits.recount_s):
            await self._recount(self._common)
        return await self._in_common(self._described)

    def grown(self) -> bool:
        """Return whether there may be a new card, or a card has other instances than it was described with."""
        return self._other_instances or self._more()

    def _more(self) -> bool:
        """Return whether the kernel shows a card that it did not show when the cards were counted."""
        return not self._attached() <= self._attached_last

    async def _recount(self, common: OpenedDriver) -> None:
        """End the shared process if a new one counts more cards: NVML counts them once, when opened."""
        self._counted_s, self._attached_last = _now_s(), self._attached()
        with contextlib.suppress(SourceFailed):
            counting = await self.processes.opened(spare=1, passing=True)
            await self.processes.end(counting)
            if counting.count > common.count:
                log.info("driver.more_cards", before=common.count, now=counting.count)
                await self._end_common(common)

    async def readings(self, uuids: Iterable[str]) -> dict[str, CardReading | SourceFailed]:
        """Return a reading or an error for each card and its instances. uuids: of whole cards."""
        asking = {uuid: await self._started(self._reading(uuid)) for uuid in uuids}
        answers = await asyncio.gather(*asking.values(), return_exceptions=True)
        found: dict[str, CardReading | SourceFailed] = {}
        for uuid, answer in zip(asking, answers, strict=True):
            if isinstance(answer, BaseException) and not isinstance(answer, SourceFailed):
                raise answer
            found |= self._with_instances(uuid, answer)
        return found

    def _with_instances(self, uuid: str, answer: CardReading | SourceFailed) -> dict[str, CardReading | SourceFailed]:
        """Return the answers of the card and its described instances, without those that have gone since."""
        card = self._known.get(uuid)
        known = card.instances if card else ()
        if not isinstance(answer, CardReading):
            return dict.fromkeys((uuid, *(one.uuid for one in known)), answer)
        self._other_instances |= tuple(one.card for one in answer.instances) != known
        unread = NoAnswer(f"an instance of card {uuid} cannot be read")
        read = {one.card.uuid: one.reading or unread for one in answer.instances if one.card in known}
        return {uuid: replace(answer, instances=()), **read}

    async def events(self) -> Sequence[Xid]:
        """Return the next errors of any card."""
        return [await self._xids.get(), *(self._xids.get_nowait() for _ in range(self._xids.qsize()))]

    async def set_compute_mode(self, uuid: str, mode: str) -> None:
        """Set the mode. Raises NoAnswer for a card with its own process, because that card hangs or fails."""
        card = self._answering(uuid)
        await self._in_common(lambda opened: opened.set_compute_mode(card, mode, self._limits.answer_s))

    async def memory_limits(self, uuid: str, cgroups: Sequence[str]) -> dict[str, MemoryLimits]:
        """Return the cgroups' limits. Raises NoAnswer for a card with its own process."""
        card = self._answering(uuid)
        return await self._in_common(lambda opened: opened.memory_limits(card, cgroups, self._limits.answer_s))

    def _answering(self, uuid: str) -> DriverCard:
        """Return a card that the shared process may query. Raises NoAnswer for any other."""
        self._check_held(uuid)
        card = self._known.get(uuid)
        if card is None or uuid in self._apart:
            raise NoAnswer(f"card {uuid}: it does not answer, or the driver does not list it")
        return card

    @property
    def tries_cuda(self) -> bool:
        """Whether `cuda` can show anything about a card."""
        return self._trials is not None

    async def cuda(self, uuid: str) -> CudaAnswer:
        """Try CUDA on a card. Raises NoAnswer while a card is released: CUDA may open every card that it finds."""
        if self._released:
            raise NoAnswer("CUDA is not tested while a card is released")
        if self._trials is None:
            return CudaAnswer(lacking="these cards do not run CUDA")
        return await self._trials.answer(uuid)

    async def release(self, uuids: frozenset[str]) -> None:
        """Stop touching exactly these cards, see `cards.Driver`."""
        added, self._released = uuids - self._released, uuids
        if added and self._trials is not None:
            await self._trials.stop()
        for uuid in added & self._apart.keys():
            await self._apart.pop(uuid).leave()
        if added and self._common is not None:
            # NVML cannot release one card: a new process, which does not touch it, queries the others.
            await self._end_common(self._common)
        if added and (problems := self._abandoned()):
            raise SourceFailed("; ".join(problems))

    def problems(self) -> tuple[str, ...]:
        return tuple(filter(None, [*self._abandoned(), self._hidden()]))

    def _abandoned(self) -> list[str]:
        """Return messages about processes that the kernel does not end."""
        trying = self._trials.problem() if self._trials is not None else ""
        return list(filter(None, [self.processes.problem(), trying]))

    def _hidden(self) -> str:
        """Return a message about cards that are newer than this container, which has no device nodes for them."""
        known = {card.pci for card in self._known.values()}
        hidden = sorted(self._attached_last - self._attached_first - known)
        if not hidden or self._common is None:
            return ""
        return f"cards were added that this container cannot access ({', '.join(hidden)}): delete the plugin's pod"

    async def close(self) -> None:
        self._closed = True
        for listener in self._listeners:
            listener.cancel()
        if self._trials is not None:
            await self._trials.stop()
        await self.processes.close()

    async def _reading(self, uuid: str) -> CardReading:
        self._check_held(uuid)
        card, apart = self._known.get(uuid), self._apart.get(uuid)
        if card is None:
            raise CardFailed(f"card {uuid}: the driver does not list it", lost=True)
        try:
            reading = await (apart.reading(card) if apart else self._in_common(lambda opened: self._read(opened, card)))
        except CardFailed as error:
            # A card that came back to the bus may be visible only to a process that opens the driver afterwards.
            self._failing_s.setdefault(uuid, _now_s())
            if _now_s() - self._failing_s[uuid] >= self._limits.hung_s:
                self._set_apart(uuid, error)
            raise
        except WorkerDied as error:
            raise NoAnswer(f"card {uuid}: {error}") from error
        self._failing_s.pop(uuid, None)
        self._listen(apart.opened if apart else self._common, uuid)
        return reading

    def _check_held(self, uuid: str) -> None:
        if uuid in self._released:
            raise NoAnswer(f"card {uuid} is released")

    async def _read(self, opened: OpenedDriver, card: DriverCard) -> CardReading:
        # Checked again: the process may have been replaced because this card was released.
        self._check_held(card.uuid)
        try:
            reading = await opened.reading(card, self._limits.answer_s)
        except NoAnswer as error:
            now_s = _now_s()
            if first := opened.first_silent(now_s, after_s=self._limits.stuck_s):
                log.warning("driver.stuck", first=first, reason=str(error))
                self._set_apart(first, error)
                await self._end_common(opened)
            elif opened.silent_s(card.uuid, now_s) >= self._limits.hung_s:
                self._set_apart(card.uuid, error)
            raise
        self._pause_s = 0.0
        return reading

    def _set_apart(self, uuid: str, error: SourceFailed) -> None:
        if uuid not in self._apart:
            log.warning("card.asked_apart", uuid=uuid, reason=str(error))
            self._apart[uuid] = CardApart(self.processes, error)

    async def _described(self, opened: OpenedDriver) -> DriverCards:
        failing = {uuid for uuid, apart in self._apart.items() if apart.last_failure is not None}
        alone = self._known.keys() & (self._released | failing | opened.asked_s.keys())
        asked: dict[str, CardKey] = {f"card {index}": index for index in range(opened.count)}
        if alone:
            asked = {uuid: card.pci or uuid for uuid, card in self._known.items() if uuid not in alone}
        found, silent = await self._each(opened, asked)
        with contextlib.suppress(NoAnswer):
            linked = await opened.links([card.uuid for card in found], self._limits.answer_s)
            found = [replace(card, links=linked.get(card.uuid, {})) for card in found]
        self._known |= {card.uuid: card for card in found}
        self._deaths.clear()
        for card in found:
            if card.uuid in self._apart:
                await self._apart.pop(card.uuid).leave()
            self._listen(opened, card.uuid)
        # An index that did not answer may belong to any missing card.
        unasked = self._known.keys() - {card.uuid for card in found} if silent else alone
        unasked |= {one.uuid for uuid in unasked for one in self._known[uuid].instances}
        return DriverCards(opened.version, tuple(with_instances(found)), frozenset(unasked), silent)

    async def _each(self, opened: OpenedDriver, asked: Mapping[str, CardKey]) -> tuple[list[DriverCard], bool]:
        """Return the cards that answer, and whether some did not in time. A card that fails is left out."""
        limit_s = self._limits.answer_s
        asking = {who: await self._started(opened.described(key, who, limit_s)) for who, key in asked.items()}
        found, silent = [], False
        for who, answer in asking.items():
            try:
                found.append(await answer)
            except (NoAnswer, CardFailed) as error:
                silent |= isinstance(error, NoAnswer)
                log.warning("card.left_out", card=who, reason=str(error))
        return found, silent

    async def _started(self, asking: Coroutine[Any, Any, T]) -> "asyncio.Task[T]":
        """Start the call and wait briefly: cards are normally queried one at a time, so that a hanging one is found."""
        task = asyncio.create_task(asking)
        await asyncio.wait({task}, timeout=self._limits.patience_s)
        return task

    async def _in_common(self, ask: Callable[[OpenedDriver], Awaitable[T]]) -> T:
        """Query the shared process; if it dies for any reason, retry once with a new one. Raises SourceFailed."""
        for last in (False, True):
            opened = await self._opened()
            try:
                return await ask(opened)
            except WorkerDied as error:
                await self._died(opened, error)
                if last:
                    raise
            except (NoAnswer, CardFailed):
                raise
            except SourceFailed:
                # The driver vanished from under it; another process may find it again.
                await self._end_common(opened)
                raise
        raise AssertionError

    async def _opened(self) -> OpenedDriver:
        async with self._opening:
            if self._closed:
                raise SourceFailed("the driver is closed")
            if self._common is None:
                if self._all_released():
                    raise NoAnswer(_ALL_RELEASED)
                if _now_s() < self._next_s:
                    raise self._why.with_traceback(None)
                # A process that keeps failing is restarted at growing intervals, until a card has answered.
                self._next_s = _now_s() + self._pause_s
                self._pause_s = min(self._limits.slowest_s, max(self._limits.start_s, 2 * self._pause_s))
                try:
                    self._common = await self.processes.opened()
                except SourceFailed as error:
                    self._why = error
                    raise
                if self._all_released():  # meanwhile
                    await self._end_common(self._common)
                    raise NoAnswer(_ALL_RELEASED)
            return self._common

    def _all_released(self) -> bool:
        """Return whether no process may open the driver: it would keep the module in use even without a card."""
        return bool(self._known) and self._known.keys() <= self._released

    async def _died(self, opened: OpenedDriver, error: WorkerDied) -> None:
        if opened is self._common:
            self._common, self._why = None, error
            log.warning("driver.process_died", reason=str(error))
            self._deaths.update(opened.left_asking & self._known.keys())
            (guilty, times), *others = self._deaths.most_common(2) or [("", 0)]
            if times >= _DEATHS and not any(others_times == times for _, others_times in others):
                self._set_apart(guilty, error)

    async def _end_common(self, opened: OpenedDriver) -> None:
        if opened is self._common:
            self._common = None
        await self.processes.end(opened)

    def _listen(self, opened: OpenedDriver | None, uuid: str) -> None:
        if opened is not None and uuid not in opened.listening:
            opened.listening.add(uuid)
            listener = asyncio.create_task(self._forward_xids(opened, uuid))
            self._listeners.add(listener)
            listener.add_done_callback(self._listeners.discard)

    async def _forward_xids(self, opened: OpenedDriver, uuid: str) -> None:
        while True:
            try:
                xids = await opened.worker.ask(calls.wait(uuid, self._limits.listen_s))
            except WorkerDied:
                return
            except SourceFailed:
                await asyncio.sleep(_LISTEN_AGAIN_S)
                continue
            if xids is None:
                log.warning("card.without_events", uuid=uuid)
                return
            apart = self._apart.get(uuid)
            # While a card has its own process, the shared process may still receive its errors too.
            for xid in xids if opened is (apart.opened if apart and apart.opened else self._common) else ():
                self._xids.put_nowait(xid)
