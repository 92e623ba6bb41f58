"""Pods whose victims could not be deleted: back-off before the next deletion.

    (absent) ──note──▶ BACKING OFF ──take_ready: back-off ended──▶ MAY TRY ──note──▶ BACKING OFF, twice as long
                            └──────── forget: deleted, bound or gone ◀──┘

During the back-off the pod waits like any other: it is scheduled as soon as it fits. Owned by the searches. No method
awaits, so each one is atomic. now_s: monotonic seconds.
"""

from typing import Final

from scheduler.queue.backoff import backoff_s
from scheduler.queue.heap import Heap

_INITIAL_S: Final = 1.0
# Same as for a Binding that a policy rejects: the same request most likely fails again.
_MAX_S: Final = 300.0


class FailedDeletions:
    """Pods by uid."""

    def __init__(self) -> None:
        self._failures: dict[str, int] = {}  # deletions in a row
        self._backing_off: Heap[float, str] = Heap()

    def __contains__(self, uid: str) -> bool:
        """Whether the last deletion for the pod failed, during the back-off or after it."""
        return uid in self._failures

    def is_backing_off(self, uid: str) -> bool:
        """Whether no victim may be deleted for the pod now."""
        return uid in self._backing_off

    def note(self, uid: str, now_s: float) -> None:
        """A victim could not be deleted for the pod."""
        failures = self._failures[uid] = self._failures.get(uid, 0) + 1
        self._backing_off.push(uid, now_s + backoff_s(failures, initial_s=_INITIAL_S, max_s=_MAX_S))

    def forget(self, uid: str) -> None:
        """Its victims are being deleted, or it needs none any more; no effect if it is absent."""
        self._failures.pop(uid, None)
        self._backing_off.discard(uid)

    def take_ready(self, now_s: float) -> list[str]:
        """Pods whose back-off has ended."""
        return list(self._backing_off.pop_until(now_s)) if self._backing_off else []

    def next_ready_s(self) -> float | None:
        """When the next back-off ends; None for never."""
        first = self._backing_off.first()
        return None if first is None else first[0]
