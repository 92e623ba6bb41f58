"""How slow this machine currently is, relative to the one on which time limits were set.

A virtual machine's processor may do half as much per second while its neighbors work, for minutes or hours, and a task
that waits in a queue then waits many times as long. So limits are compared with the time of a processor of known speed
(docs/develop/decisions/0081).
"""

import time
from typing import Final

import numpy as np

_TRIES: Final = 3
_OBJECTS: Final = 1_000
# The minimum that `_work` takes on a machine where the engine alone decides 7,500 pods in a second
# (docs/evidence/benchmarks.md): 1.07 ms were measured while it decided 3,700.
_AS_A_RULE_S: Final = 0.000_53


def slowness() -> float:
    """Return how many times longer the same work takes here and now; at least 1.0, so that limits never shrink."""
    return max(min(_work_s() for _ in range(_TRIES)) / _AS_A_RULE_S, 1.0)


def _work_s() -> float:
    """Return processor seconds."""
    began_s = time.thread_time()
    _work()
    return time.thread_time() - began_s


def _work() -> int:
    """Run work like a scheduler's: small objects in tables, short arrays."""
    rows, table, found = np.arange(512, dtype=np.int64), dict[tuple[str, str], dict[str, object]](), 0
    for number in range(_OBJECTS):
        key = "default", f"pod-{number}"
        table[key] = {"name": key[1], "number": number}
        found += len(str(table[key]["name"]))
        if number % 10 == 0:
            found += int((rows[(rows > number % 64) & (rows < 400)] * 3).argmax())
    return found
