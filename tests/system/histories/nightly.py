"""Many random histories: `python -m tests.system.histories.nightly [--steps N] [--processes N]`.

NIGHTLY_SEED repeats a run. A failure prints the history that led to it, as small as it could be made.
"""

import argparse
import logging
import os
import random
import sys
import time
import traceback
from collections import Counter
from concurrent.futures import FIRST_COMPLETED, ProcessPoolExecutor, wait
from itertools import count
from typing import Final

import structlog

from tests.system.histories.test_random_histories import Histories, missing, portion

_STEPS: Final = 1_000_000
_PORTION: Final = 240
# Of which everything that may happen has to happen.
_MANY_STEPS: Final = 200_000


class HistoryFailed(Exception):
    """What was raised in a portion, as text: another process raised it."""


def main() -> int:
    """Run portions of histories until so many steps were made. Raises HistoryFailed for the first one that fails."""
    program = "python -m tests.system.histories.nightly"
    parser = argparse.ArgumentParser(prog=program, description="Random histories, many.")
    parser.add_argument("--steps", type=int, default=_STEPS, help="at least so many (default: %(default)s)")
    parser.add_argument("--processes", type=int, default=os.cpu_count() or 1, help="at a time (default: %(default)s)")
    chosen = parser.parse_args()
    first = int(os.environ.get("NIGHTLY_SEED", random.SystemRandom().randrange(2**32)))
    began_s, happened, seeds = time.monotonic(), Counter[str](), count(first)
    _say(f"NIGHTLY_SEED={first}")
    with ProcessPoolExecutor(chosen.processes) as pool:
        running = {pool.submit(_portion, next(seeds)) for _ in range(chosen.processes)}
        while running:
            done, running = wait(running, return_when=FIRST_COMPLETED)
            for portion in done:
                happened += portion.result()
                counts = ", ".join(f"{happened[what]:,} {what}" for what in ("steps", "placed", "no fit", "bound"))
                _say(f"{counts}; {happened['leases lost']:,} leases lost; {time.monotonic() - began_s:.0f} s")
                if happened["steps"] < chosen.steps:
                    running.add(pool.submit(_portion, next(seeds)))
    if happened["steps"] >= _MANY_STEPS and (never := missing(happened)):
        _say(f"what never happened: {', '.join(never)}")
        return 1
    return 0


def _portion(number: int) -> Counter[str]:
    """Some histories; what happened in them. Raises HistoryFailed."""
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL))
    try:
        return portion(Histories, number, histories=_PORTION)
    except Exception as error:  # noqa: BLE001 - of whatever kind, it cannot always be sent to another process
        message = f"seed {number}\n{''.join(traceback.format_exception(error))}"
        raise HistoryFailed(message) from None


def _say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
