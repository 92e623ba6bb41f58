"""Metrics of waiting pods by the rules that reject their nodes, written as text from a copy of their messages.

event loop: Recorder.waiting() ──▶ WaitingCopy ──▶ another thread: text()
"""

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from scheduler.dispatch.pod_messages import PodMessageState
from scheduler.metrics import series
from scheduler.metrics.cluster_series import escaped, family

# About a millisecond.
_PIECE: Final = 1000


@dataclass(frozen=True, slots=True)
class WaitingCopy:
    """Copy of the messages. states: one per pod, including pods that no longer wait.

    waits: whether the pod with this UID still waits. now_s: Unix seconds.
    """

    states: list[PodMessageState]
    waits: Callable[[str], bool]
    now_s: float

    def text(self) -> Iterator[bytes]:
        """Text of both metric families. Yields b"" while it counts, so that the renderer can pause in between."""
        pods: Counter[str] = Counter()
        longest_s: dict[str, float] = {}
        for first in range(0, len(self.states), _PIECE):
            for state in self.states[first : first + _PIECE]:
                if self.waits(state.pod.uid):
                    waited_s = self._waited_s(state)
                    for rule in state.latest.rules:
                        pods[rule] += 1
                        longest_s[rule] = max(longest_s.get(rule, 0.0), waited_s)
            yield b""
        yield family(series.WAITING, ((_label(rule), count) for rule, count in pods.items()))
        yield family(series.LONGEST_WAIT, ((_label(rule), wait_s) for rule, wait_s in longest_s.items()))

    def _waited_s(self, state: PodMessageState) -> float:
        with suppress(ValueError):
            return max(0.0, self.now_s - datetime.fromisoformat(state.created).timestamp())
        return 0.0


def _label(rule: str) -> str:
    return f'plugin="{escaped(rule)}"'
