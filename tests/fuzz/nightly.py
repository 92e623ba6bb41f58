"""The fuzz cases for as long as a night allows: `python -m tests.fuzz.nightly [--cases N]`.

NIGHTLY_SEED repeats a run. `--round N` and `--loader NAME --case N` repeat what a failure names.
"""

import argparse
import logging
import os
import random
import sys
import tempfile
import time
from pathlib import Path
from typing import Final

import structlog

from tests.fuzz import loaders, watched

_CASES: Final = 100_000
# Of all cases.
_OBJECTS: Final = 0.8
_SAY_EVERY: Final = 20


def main() -> int:
    """Run so many cases. Raises what the first one that fails raises."""
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz.nightly", description="Mutated objects and files.")
    parser.add_argument("--cases", type=int, default=_CASES, help="at least so many (default: %(default)s)")
    parser.add_argument("--part", choices=("objects", "files"), help="these alone, as many as of all")
    parser.add_argument("--round", type=int, help="this round of objects alone")
    parser.add_argument("--loader", help="cases of this loader alone")
    parser.add_argument("--case", type=int, help="of the loader, this case alone")
    asked = parser.parse_args()
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL))
    if asked.round is not None:
        _say_objects(watched.round_of(asked.round))
    elif asked.loader is not None:
        _files(asked.loader, range(asked.case, asked.case + 1))
    else:
        first = int(os.environ.get("NIGHTLY_SEED", random.SystemRandom().randrange(2**32)))
        _say(f"NIGHTLY_SEED={first}")
        each = int((1 - _OBJECTS) * asked.cases) // len(loaders.loaders())
        if asked.part != "objects":
            for one in loaders.loaders():
                _files(one.name, range(first, first + each))
        if asked.part != "files":
            _objects(first, int(_OBJECTS * asked.cases))
    return 0


def _objects(first: int, least: int) -> None:
    """Rounds until so many objects were made."""
    began_s, outcome, done = time.monotonic(), watched.Outcome(), 0
    while outcome.objects < least:
        outcome.add(watched.round_of(first + done))
        done += 1
        if done % _SAY_EVERY == 0:
            _say(f"objects: {outcome.objects:,} in {done:,} rounds; {time.monotonic() - began_s:.0f} s")
    _say_objects(outcome)


def _say_objects(outcome: watched.Outcome) -> None:
    kinds = ", ".join(f"{count:,} {kind}" for kind, count in outcome.counts.most_common())
    _say(f"objects: {kinds}; a good pod took {outcome.good_s * 1e3:.0f} ms at most, left {outcome.left / 1e3:.0f} kB")
    took_s, case = outcome.slowest
    _say(f"objects: the slowest took {took_s * 1e3:.0f} ms: {case}")


def _files(name: str, numbers: range) -> None:
    outcome = loaders.Outcome()
    (loader,) = (one for one in loaders.loaders() if one.name == name)
    with tempfile.TemporaryDirectory() as folder:
        loaders.cases(loader, numbers, Path(folder), outcome)
    took_s, case = outcome.slowest[name]
    said = f"{outcome.counts[name]:,} cases, {outcome.said[name]:,} with a mistake that is told"
    _say(f"{name}: {said}; the slowest took {took_s * 1e3:.0f} ms: case {case}")


def _say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
