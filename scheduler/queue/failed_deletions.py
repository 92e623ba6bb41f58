"""Pods for which a victim could not be deleted: each serves a back-off before a victim is deleted for it again.

    (absent) ──refused──▶ HELD ──take_ready: its back-off has ended──▶ MAY TRY ──refused──▶ HELD, for twice as long
                            └──────────────── forget: deleted, bound or gone ◀──┘

Meanwhile the pod waits like any other: it is scheduled as soon as it fits.
Owned by the searches. No method awaits, so each one is atomic. now_s: monotonic seconds.
"""

from typing import Final

from scheduler.queue.backoff import backoff_s
from scheduler.queue.heap import Heap

_INITIAL_S: Final = 1.0
# As after a Binding that a policy rejects: the same request most likely gets the same answer.
_MAX_S: Final = 300.0


class FailedDeletions:
    """By uid."""

    def __init__(self) -> None:
        """None."""
        self._failures: dict[str, int] = {}  # deletions in a row
        self._backing_off: Heap[float, str] = Heap()

    def __contains__(self, uid: str) -> bool:
        """Whether the last deletion for the pod failed, whether it is held or may try again."""
        return uid in self._failures

    def is_backing_off(self, uid: str) -> bool:
        """Whether no victim is to be deleted for the pod for now."""
        return uid in self._backing_off

    def note(self, uid: str, now_s: float) -> None:
        """A victim could not be deleted for the pod."""
        failures = self._failures[uid] = self._failures.get(uid, 0) + 1
        self._backing_off.push(uid, now_s + backoff_s(failures, initial_s=_INITIAL_S, max_s=_MAX_S))

    def forget(self, uid: str) -> None:
        """Its victims are being deleted, or it needs none any more; nothing when it is absent."""
        self._failures.pop(uid, None)
        self._backing_off.discard(uid)

    def take_ready(self, now_s: float) -> list[str]:
        """Those whose back-off has ended."""
        return list(self._backing_off.pop_until(now_s)) if self._backing_off else []

    def next_ready_s(self) -> float | None:
        """When the next back-off ends; None without any."""
        first = self._backing_off.first()
        return None if first is None else first[0]
