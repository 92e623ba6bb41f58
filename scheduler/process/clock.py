"""The clocks of the process."""

import time
from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Clock:
    """Source of time. wall_ns: Unix nanoseconds; started_s: monotonic seconds at the process's start."""

    monotonic_s: Callable[[], float] = time.monotonic
    wall_ns: Callable[[], int] = time.time_ns
    started_s: float = time.monotonic()

    def wall_s(self) -> float:
        """Return the Unix seconds."""
        return self.wall_ns() / 1e9
