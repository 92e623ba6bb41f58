"""Starts again what has died in the local cluster, as a kubelet starts containers again.

    running --dies--> waits for its back-off --> started again --10 minutes--> its back-off is forgotten

Source: kubernetes.io, Pod Lifecycle, "Container restarts".
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from e2e.control_plane.cache import Say
from e2e.control_plane.processes import Child

_FIRST_S: Final = 10.0
_LONGEST_S: Final = 300.0
_FORGOTTEN_AFTER_S: Final = 600.0


def delay_s(deaths: int) -> float:
    """Seconds between a death and the next start. deaths: earlier ones in a row, >= 0."""
    return min(_LONGEST_S, _FIRST_S * 2 ** (deaths - 1)) if deaths else 0.0


@dataclass(slots=True)
class _Watched:
    """deaths: in a row. due_s: when it is started again, None while it runs."""

    child: Child
    started_s: float
    deaths: int = 0
    due_s: float | None = None


class Restarts:
    """Of the programs of one cluster. Use it in the thread that has started them."""

    def __init__(self, children: Iterable[Child], say: Say, now_s: float) -> None:
        """children: in the order in which they are started again. now_s: monotonic, as in `look`."""
        self._watched = [_Watched(child, now_s) for child in children]
        self._say = say

    def look(self, now_s: float) -> None:
        """Notice what has died since, and start again what is due."""
        for one in self._watched:
            if one.due_s is None:
                self._notice(one, now_s)
            if one.due_s is not None and now_s >= one.due_s:
                one.child.start_again()
                one.started_s, one.due_s = now_s, None

    def _notice(self, one: _Watched, now_s: float) -> None:
        if (exit_code := one.child.process.poll()) is None:
            return
        if now_s - one.started_s >= _FORGOTTEN_AFTER_S:
            one.deaths = 0
        wait_s = delay_s(one.deaths)
        one.deaths += 1
        one.due_s = now_s + wait_s
        self._say(f"{one.child.name} ended with exit code {exit_code}; starting it again in {wait_s:.0f} s")
