"""Our scheduler with a probe in its event loop: how long the loop is held at a time, in time of the processor.

    python -m e2e.bench.probed HOLDS.json run …       the rest as after `gpushare-scheduler`

A timer of 1 ms notes the CPU that the thread of the loop has used since it was last called. A turn of the loop that
takes longer makes it late, so each figure is what one turn took, and at most 1 ms more. Time of the processor, since
other processes that have the core do not hold the loop. HOLDS.json is written at the end of the process.
"""

import atexit
import json
import sys
import time
from array import array
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final

import numpy as np
import uvloop

_EVERY_S: Final = 0.001
_LONGEST_MS: Final = 50.0
_P99_9_MS: Final = 20.0


@dataclass(frozen=True, slots=True)
class Holds:
    """Milliseconds of the processor. number: how many turns, or groups of shorter ones, were looked at."""

    number: int
    longest: float
    p99_9: float

    def row(self, where: str) -> tuple[str, str, str]:
        """As a row of a table: figure, measured, must reach."""
        said = "reached" if self.longest <= _LONGEST_MS and self.p99_9 <= _P99_9_MS else "**missed**"
        goal = f"≤ {_LONGEST_MS:g} / ≤ {_P99_9_MS:g}, {said}"
        return f"{where}: the event loop held, longest / p99.9, ms", f"{self.longest:.1f} / {self.p99_9:.1f}", goal


class Probe:
    """What one event loop was held. Its times are kept as they are: 8 bytes for each millisecond of a run."""

    def __init__(self, loop: uvloop.Loop) -> None:
        self._loop = loop
        self._used_s = array("d")
        self._last_s = time.thread_time()
        self._look()

    def _look(self) -> None:
        now_s = time.thread_time()
        self._used_s.append(now_s - self._last_s)
        self._last_s = now_s
        self._loop.call_later(_EVERY_S, self._look)

    def holds(self) -> Holds:
        """So far."""
        used_ms = np.frombuffer(self._used_s) * 1e3
        return Holds(len(used_ms), float(used_ms.max()), float(np.quantile(used_ms, 0.999)))


def read(path: Path) -> Holds:
    """What a process has written. Raises OSError while it runs."""
    return Holds(**json.loads(path.read_text(encoding="utf-8")))


def main(path: Path) -> None:
    """Run the scheduler's command line with a probe in the loop that it makes."""
    from scheduler import main as program  # noqa: PLC0415 - reads the command line

    make = uvloop.new_event_loop

    def probed() -> uvloop.Loop:
        loop = make()
        probe = Probe(loop)
        atexit.register(lambda: path.write_text(json.dumps(asdict(probe.holds())), encoding="utf-8"))
        return loop

    uvloop.new_event_loop = probed
    program.main()


if __name__ == "__main__":
    written = Path(sys.argv.pop(1))
    main(written)
