"""The series of pods that wait, by what they were told, as text from a copy of what they were told.

event loop: Recorder.waiting() ──▶ WaitingCopy ──▶ another thread: text()
"""

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime
from typing import Final

from scheduler.telemetry import series
from scheduler.telemetry.cluster_series import escaped, family
from scheduler.telemetry.told import Told

# About a millisecond.
_PIECE: Final = 1000
_LONGEST: Final = 128
_OTHER: Final = "other"


@dataclass(slots=True)
class _Waiting:
    """By reason: pods, and the longest wait in seconds."""

    pods: Counter[str] = field(default_factory=Counter)
    longest_s: dict[str, float] = field(default_factory=dict)

    def add(self, reason: str, pods: int, waited_s: float) -> None:
        """So many more."""
        self.pods[reason] += pods
        self.longest_s[reason] = max(self.longest_s.get(reason, 0.0), waited_s)


@dataclass(frozen=True, slots=True)
class WaitingCopy:
    """told: of each pod; of some that wait no more, too, which `waits` tells by uid. now_s: Unix seconds."""

    told: list[Told]
    waits: Callable[[str], bool]
    now_s: float

    def text(self) -> Iterator[bytes]:
        """Both families, and nothing while their numbers are gathered: whoever renders may pause between two pieces."""
        found = _Waiting()
        for first in range(0, len(self.told), _PIECE):
            for told in self.told[first : first + _PIECE]:
                if self.waits(told.pod.uid):
                    self._count(told, found)
            yield b""
        found = _bounded(found)
        yield family(series.WAITING, ((_label(reason), pods) for reason, pods in found.pods.items()))
        yield family(series.LONGEST_WAIT, ((_label(reason), wait_s) for reason, wait_s in found.longest_s.items()))

    def _count(self, told: Told, into: _Waiting) -> None:
        waited_s = 0.0
        with suppress(ValueError):
            waited_s = max(0.0, self.now_s - datetime.fromisoformat(told.created).timestamp())
        for reason in told.word.named:
            into.add(reason[:_LONGEST], 1, waited_s)


def nobody_waits() -> WaitingCopy:
    """Of no pod."""
    return WaitingCopy([], lambda _: False, 0.0)


def _bounded(found: _Waiting) -> _Waiting:
    """With the reasons that most pods have; the others count as one. Authors of pods and nodes write into some."""
    bounded = _Waiting()
    for number, (reason, pods) in enumerate(found.pods.most_common()):
        bounded.add(reason if number < series.MOST_REASONS else _OTHER, pods, found.longest_s[reason])
    return bounded


def _label(reason: str) -> str:
    return f'reason="{escaped(reason)}"'
