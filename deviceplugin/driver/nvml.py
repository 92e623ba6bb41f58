"""NVIDIA's driver as a source of cards, through its library NVML.

    NVML:  CLOSED --any call--> OPEN --the driver is gone--> CLOSED, and every card known then is LOST
             ^--------close-------+

    card:  absent --named--> WATCHED --does not answer / not named / driver gone--> LOST --answers--> WATCHED
                                       tells Lost (a driver that is gone: SourceFailed)    tells Back

WATCHED: the card has a handle and, where the driver supports it, its errors are listened to.
LOST: nothing is asked of it but whether it answers again.
What there is to tell is kept until a `wait` hands it over, also across one that fails.
Owned by one thread at a time, as `thread.DriverThread` makes sure.
"""

import contextlib
import threading
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from types import ModuleType
from typing import Final, cast

import pynvml  # type: ignore[import-untyped] # nvidia-ml-py has no annotations
import structlog

from deviceplugin.driver import nvml_cards, nvml_reading
from deviceplugin.driver.cards import Back, CardEvent, DriverCards, Lost, Reading, SourceFailed, Xid
from deviceplugin.driver.nvml_answers import (
    GONE,
    LOST,
    Handle,
    RawHandle,
    address,
    answer,
    handles,
    message_of,
    text,
)

_CHECK_EVERY_S: Final = 2.0
_MOST_EVENTS: Final = 256  # a card in a storm of errors does not keep `wait` from coming back
log = structlog.get_logger()


@dataclass(slots=True)
class _Watched:
    """raw: None while it is lost, and between two openings of NVML. lost: a Back is owed once it answers."""

    raw: RawHandle | None
    lost: bool = False


class NvmlSource:
    """`cards.CardSource` with a real driver, which may come late, go and come back."""

    def __init__(self, library: ModuleType = pynvml) -> None:
        """library: pynvml, or what has its functions."""
        self._library = library
        self._open = False
        self._closed = threading.Event()
        self._watched: dict[str, _Watched] = {}
        self._owed: list[CardEvent] = []
        self._event_set: object | None = None
        self._heard: dict[int, str] = {}
        self._mute: set[str] = set()

    def cards(self) -> DriverCards:
        """As the port. A card that does not answer is left out; it is no failure of the others."""
        with self._driver("the cards"):
            if any(watched.lost for watched in self._watched.values()):
                self._reopen()
            found, refused = handles(self._library)
            self._meet(found)
            cards, failed = nvml_cards.described(self._library, found)
            for index, reason in (refused | failed).items():
                log.warning("card.left_out", index=index, reason=reason)
            return DriverCards(text(self._library.nvmlSystemGetDriverVersion()), cards)

    def wait(self, timeout_s: float) -> Sequence[CardEvent]:
        """As the port. Xid: each one. Lost, Back: of cards that `cards` has named before."""
        left_s = timeout_s
        with self._driver("events of the cards"):
            while True:
                self._check()
                for_s = 0.0 if self._owed else min(left_s, _CHECK_EVERY_S)
                self._listen(for_s)
                left_s -= for_s
                if self._owed or left_s <= 0:
                    break
        owed, self._owed = tuple(self._owed), []
        return owed

    def reading(self, uuid: str) -> Reading:
        """As the port."""
        with self._driver(f"card {uuid}"):
            watched = self._watched.get(uuid)
            if watched is None or watched.raw is None:
                self._meet(handles(self._library)[0])
                watched = self._watched.get(uuid)
            if watched is None or watched.raw is None:
                message = f"card {uuid}: the driver does not list it, or it does not answer"
                raise SourceFailed(message)
            return nvml_reading.read(self._library, watched.raw)

    def close(self) -> None:
        """As the port; a later call opens it again."""
        self._closed.set()
        self._let_go()

    @contextlib.contextmanager
    def _driver(self, asked: str) -> Iterator[None]:
        """With NVML open. The only place where its errors become SourceFailed."""
        try:
            self._reach()
            yield
        except GONE as error:
            self._let_go()
            for watched in self._watched.values():
                watched.lost = True
            raise _failed(asked, error) from error
        except pynvml.NVMLError as error:
            raise _failed(asked, error) from error

    def _reach(self) -> None:
        if not self._open:
            self._library.nvmlInit()
            self._open = True
            self._closed.clear()

    def _reopen(self) -> None:
        """A card that came back to the bus may be known only to an NVML that starts after it did."""
        self._take(0)
        self._let_go()
        self._reach()

    def _let_go(self) -> None:
        """Close, whatever the driver says to it: it may be gone. No handle is good after it."""
        if not self._open:
            return
        self._stop_listening()
        with contextlib.suppress(pynvml.NVMLError):
            self._library.nvmlShutdown()
        self._open = False
        self._mute.clear()
        for watched in self._watched.values():
            watched.raw = None

    def _meet(self, found: Iterable[Handle]) -> None:
        """Take the handles that the driver gives out now, of all its cards."""
        raws = {handle.uuid: handle.raw for handle in found}
        for uuid, watched in self._watched.items():
            raw = raws.pop(uuid, None)
            if raw is None or (watched.lost and not self._answers(raw)):
                self._lose(uuid, watched)
                continue
            watched.raw = raw
            if watched.lost:
                watched.lost = False
                self._mute.discard(uuid)
                self._owed.append(Back(uuid))
        self._watched |= {uuid: _Watched(raw) for uuid, raw in raws.items()}

    def _lose(self, uuid: str, watched: _Watched) -> None:
        if not watched.lost:
            self._take(0)
            self._owed.append(Lost(uuid))
            # With a card in it that is lost, waiting on an event set fails at once, for every card.
            self._stop_listening()
        watched.raw, watched.lost = None, True

    def _check(self) -> None:
        """See which cards were lost, and which are back."""
        if any(watched.raw is None for watched in self._watched.values()):
            self._meet(handles(self._library)[0])
        for uuid, watched in self._watched.items():
            if watched.raw is not None and not self._answers(watched.raw):
                self._lose(uuid, watched)

    def _answers(self, raw: RawHandle) -> bool:
        try:
            self._library.nvmlDeviceGetMemoryInfo(raw)
        except GONE:
            raise
        except LOST:
            return False
        except pynvml.NVMLError:
            return True  # It says that it has no memory of its own, say: that is an answer.
        return True

    def _listen(self, for_s: float) -> None:
        """Take the errors that the driver reports: the first within `for_s`, and all that it has by then."""
        if not self._registered():
            self._closed.wait(for_s)
            return
        error = self._take(round(for_s * 1000))
        if error is not None:
            self._stop_listening()
            self._check()
            if not self._owed:
                raise error

    def _take(self, timeout_ms: int) -> Exception | None:
        """Owe what is reported to whom listens; what ended it, if it was no end of events. Raises one of GONE."""
        if self._event_set is None:
            return None
        try:
            for _ in range(_MOST_EVENTS):
                event = self._library.nvmlEventSetWait_v2(self._event_set, timeout_ms)
                self._owed.append(Xid(self._uuid_of(event.device), int(event.eventData)))
                timeout_ms = 0
        except pynvml.NVMLError_Timeout:
            return None
        except GONE:
            raise
        except pynvml.NVMLError as error:
            return cast("Exception", error)
        return None

    def _registered(self) -> bool:
        """Register for the errors of every card that supports it; False when none does."""
        if self._event_set is None:
            self._event_set = answer(self._library.nvmlEventSetCreate)
        if self._event_set is None:
            return False
        for uuid, watched in self._watched.items():
            if watched.raw is not None and uuid not in self._mute and address(watched.raw) not in self._heard:
                self._register(uuid, watched.raw)
        return bool(self._heard)

    def _register(self, uuid: str, raw: RawHandle) -> None:
        # Not for double-bit ECC errors: the driver tells of each as XID 48 too, and a reading counts them.
        try:
            self._library.nvmlDeviceRegisterEvents(raw, pynvml.nvmlEventTypeXidCriticalError, self._event_set)
        except GONE:
            raise
        except pynvml.NVMLError as error:
            self._mute.add(uuid)
            log.warning("card.without_events", uuid=uuid, reason=message_of(error))
        else:
            self._heard[address(raw)] = uuid

    def _stop_listening(self) -> None:
        if self._event_set is not None:
            with contextlib.suppress(pynvml.NVMLError):
                self._library.nvmlEventSetFree(self._event_set)
        self._event_set = None
        self._heard.clear()

    def _uuid_of(self, raw: RawHandle) -> str:
        """Empty where the driver does not say."""
        # A card that just fell off the bus may no longer tell its UUID.
        known = self._heard.get(address(raw))
        if known is not None:
            return known
        try:
            return text(self._library.nvmlDeviceGetUUID(raw))
        except GONE:
            raise
        except pynvml.NVMLError:
            return ""


def _failed(asked: str, error: Exception) -> SourceFailed:
    return SourceFailed(f"{asked}: {message_of(error)}")
