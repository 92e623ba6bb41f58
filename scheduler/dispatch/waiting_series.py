"""Metrics of waiting pods by the rules that reject their nodes."""

from collections import Counter
from collections.abc import Container, Iterator
from contextlib import suppress
from datetime import datetime
from typing import Final

from scheduler.dispatch.status import WaitingStatus
from scheduler.metrics import series
from scheduler.metrics.cluster_series import escaped, family

# About a millisecond.
_PIECE: Final = 1000


def waiting_text(states: list[WaitingStatus], queue: Container[str], now_s: float) -> Iterator[bytes]:
    """Text of both metric families, rendered in another thread.

    Yields b"" while it counts, so that the renderer can pause in between. states: a copy, including pods that no longer
    wait. queue: UIDs of those that do. now_s: Unix seconds.
    """
    pods: Counter[str] = Counter()
    longest_s: dict[str, float] = {}
    for first in range(0, len(states), _PIECE):
        for state in states[first : first + _PIECE]:
            if state.pod.uid in queue:
                waited_s = _waited_s(state, now_s)
                for rule in state.rules:
                    pods[rule] += 1
                    longest_s[rule] = max(longest_s.get(rule, 0.0), waited_s)
        yield b""
    yield family(series.WAITING, ((_label(rule), count) for rule, count in pods.items()))
    yield family(series.LONGEST_WAIT, ((_label(rule), wait_s) for rule, wait_s in longest_s.items()))


def _waited_s(state: WaitingStatus, now_s: float) -> float:
    with suppress(ValueError):
        return max(0.0, now_s - datetime.fromisoformat(state.created).timestamp())
    return 0.0


def _label(rule: str) -> str:
    return f'plugin="{escaped(rule)}"'
