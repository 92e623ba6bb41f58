"""Format of the Events of both programs, and series of repeated Events. Pure."""

from dataclasses import dataclass, replace
from operator import attrgetter
from typing import Final, TypeAlias

from cachetools import TTLCache

from scheduler.kube.port import EventRecord, EventSeries
from scheduler.process.terminal import one_line

LONGEST_NOTE: Final = 1024
# Minimum time between writes of a repeated Event: as long as an unschedulable pod waits for its next attempt.
QUIET_S: Final = 300.0
# Limit of the API server (pkg/apis/core/validation/events.go). A node's name may have 253 characters, a controller's
# name 317.
_LONGEST_INSTANCE: Final = 128
# An object's name has at most 253 characters; the time in hexadecimal takes 17.
_LONGEST_NAME: Final = 230
_REMEMBERED_BYTES: Final = 32 * 1024 * 1024
# Of one Event, besides its name and texts.
_ENTRY_BYTES: Final = 400
# A series ends after this time without a repeat: longer than an unschedulable pod waits for its next attempt.
_SERIES_ENDS_S: Final = 2 * QUIET_S


@dataclass(frozen=True, slots=True)
class Regarding:
    """The object that an Event is about. namespace: "" if it has none."""

    kind: str
    namespace: str
    name: str
    uid: str


@dataclass(frozen=True, slots=True)
class Reporter:
    """The program that writes Events. controller: its name. instance: the process, or its node."""

    controller: str
    instance: str

    def event(
        self,
        regarding: Regarding,
        *,
        warning: bool,
        reason: str,
        action: str,
        note: str,
        now_ns: int,
        unique_ns: int | None = None,
    ) -> EventRecord:
        """Return an Event that happens now. note: plain text; cut to the API server's limit.

        now_ns: Unix nanoseconds.
        unique_ns: part of the name, so it must differ for two Events on one object; None for now_ns.
        """
        return EventRecord(
            # After the cut, the name might end with a character that may not be last.
            name=f"{regarding.name[:_LONGEST_NAME].rstrip('-.')}.{now_ns if unique_ns is None else unique_ns:x}",
            kind=regarding.kind,
            namespace=regarding.namespace,
            object_name=regarding.name,
            object_uid=regarding.uid,
            type="Warning" if warning else "Normal",
            reason=reason,
            action=action,
            note=cut_note(one_line(note)),
            time_s=now_ns / 1e9,
            reporting_controller=self.controller,
            # Keep the end, which names the process and the host.
            reporting_instance=self.instance[-_LONGEST_INSTANCE:],
        )


@dataclass(frozen=True, slots=True)
class SeriesUpdate:
    """The latest Event of a series, with the name of the first one, and the repeats so far."""

    event: EventRecord
    series: EventSeries


@dataclass(slots=True)
class _Repeated:
    name: str
    count: int
    written_s: float  # monotonic
    bytes: int


_Key: TypeAlias = tuple[str, str, tuple[str, ...]]


class RepeatedEvents:
    """Recent Events, stored so that repeated ones become a series. Owned by the event loop."""

    def __init__(self) -> None:
        """Stores 32 MiB of the newest Events, which is some 50,000, each until its series has ended."""
        self._latest_s = 0.0
        self._seen: TTLCache[_Key, _Repeated] = TTLCache(
            _REMEMBERED_BYTES, _SERIES_ENDS_S, timer=lambda: self._latest_s, getsizeof=attrgetter("bytes")
        )

    def __len__(self) -> int:
        return len(self._seen)

    def next_write(
        self, event: EventRecord, constant_text: tuple[str, ...], now_s: float
    ) -> EventRecord | SeriesUpdate | None:
        """The write for an Event that happens now; None if the series was written less than QUIET_S ago.

        constant_text: parts of the note that distinguish it from other Events of this object and reason, without
        numbers.
        now_s: monotonic seconds, because the wall clock that stamps the Event may be adjusted.
        """
        key = (event.object_uid, event.reason, constant_text)
        self._latest_s = now_s
        seen = self._seen.get(key)
        if seen is None:
            size = _ENTRY_BYTES + sum(map(len, (event.name, event.object_uid, *constant_text)))
            self._seen[key] = _Repeated(event.name, 1, now_s, size)
            return event
        self._seen[key] = seen  # extends its lifetime
        seen.count += 1
        if now_s - seen.written_s < QUIET_S:
            return None
        seen.written_s = now_s
        return SeriesUpdate(replace(event, name=seen.name), EventSeries(seen.count, event.time_s))


def cut_note(note: str) -> str:
    """The note, cut to LONGEST_NOTE bytes of UTF-8: the API server counts bytes."""
    encoded = note.encode()
    if len(encoded) <= LONGEST_NOTE:
        return note
    return encoded[: LONGEST_NOTE - len("…".encode())].decode(errors="ignore") + "…"
