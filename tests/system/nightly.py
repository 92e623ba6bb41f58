"""The random histories for as long as a night allows: `python -m tests.system.nightly [--steps N]`.

NIGHTLY_SEED repeats a run. A failure prints the history that led to it, as small as it could be made.
"""

import argparse
import logging
import os
import random
import sys
import time
from collections import Counter
from typing import Final

import structlog
from hypothesis import HealthCheck, seed, settings
from hypothesis.stateful import run_state_machine_as_test

from tests.system.test_random_histories import STEPS, Histories

_STEPS: Final = 200_000
_PORTION: Final = 240


def main() -> int:
    """Run portions of histories until so many steps were made. Raises what the first one that fails raises."""
    parser = argparse.ArgumentParser(prog="python -m tests.system.nightly", description="Random histories, many.")
    parser.add_argument("--steps", type=int, default=_STEPS, help="at least so many (default: %(default)s)")
    least = parser.parse_args().steps
    first = int(os.environ.get("NIGHTLY_SEED", random.SystemRandom().randrange(2**32)))
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL))
    began_s, happened = time.monotonic(), Counter[str]()
    _say(f"NIGHTLY_SEED={first}")
    for number in range(least):
        happened += _portion(first + number)
        counts = ", ".join(f"{happened[what]:,} {what}" for what in ("steps", "placed", "no fit", "bound"))
        _say(f"{counts}; {time.monotonic() - began_s:.0f} s")
        if happened["steps"] >= least:
            break
    return 0


def _portion(number: int) -> Counter[str]:
    """Some histories; what happened in them."""
    Histories.happened.clear()
    run_state_machine_as_test(
        seed(number)(Histories),
        settings=settings(
            max_examples=_PORTION,
            stateful_step_count=STEPS,
            database=None,
            deadline=None,
            print_blob=True,
            suppress_health_check=list(HealthCheck),
        ),
    )
    return Counter(Histories.happened)


def _say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
