"""Asks kube-scheduler: `python -m tests.differential.record [GROUP …]`. Takes Go; minutes the first time.

Writes what it says to tests/differential/recorded, one file per group. With --check writes nothing, and fails where
kube-scheduler says something else than was recorded. Every group is asked twice: what it says may not depend on chance.
"""

import argparse
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final

import msgspec
from msgspec.structs import replace

from e2e.control_plane import binaries
from tests.differential import wire
from tests.differential.manifests import Scenario, digest
from tests.differential.table import GROUPS, scenarios
from tests.differential.wire import Oracle, Recorded

_AT_ONCE: Final = 4


class NotRepeatable(Exception):
    """kube-scheduler has answered the same question in two ways."""


def ask(oracle: Path, asked: list[Scenario]) -> tuple[Oracle, tuple[Recorded, ...]]:
    """What the oracle says of the scenarios. CalledProcessError: it could not; its standard error says why."""
    lines = b"\n".join(each.as_json() for each in asked)
    done = subprocess.run([oracle], input=lines, capture_output=True, check=True)
    first, *answers = done.stdout.splitlines()
    recorded = tuple(wire.from_oracle(answer, each.probes) for answer, each in zip(answers, asked, strict=True))
    who = replace(msgspec.json.decode(first, type=Oracle), asked=digest(asked))
    return who, recorded


def asked_twice(oracle: Path, group: str) -> tuple[Oracle, tuple[Recorded, ...]]:
    """What it says of a group. NotRepeatable: as it says."""
    first, second = (ask(oracle, scenarios(group)) for _ in range(2))
    for one, other in zip(first[1], second[1], strict=True):
        if msgspec.json.encode(one) != msgspec.json.encode(other):
            raise NotRepeatable(one.name)
    return first


def main(arguments: list[str] | None = None) -> int:
    """Record, or check, the named groups, or all."""
    parser = argparse.ArgumentParser(prog="python -m tests.differential.record", description=__doc__)
    parser.add_argument("groups", nargs="*", metavar="GROUP", help=f"of {', '.join(GROUPS)}")
    parser.add_argument("--check", action="store_true", help="compare with what is recorded, and write nothing")
    asked = parser.parse_args(arguments)
    names = asked.groups or list(GROUPS)
    oracle = binaries.ensure(["kube-scheduler-oracle"])["kube-scheduler-oracle"]
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        answers = dict(zip(names, pool.map(lambda name: asked_twice(oracle, name), names), strict=True))
    if asked.check:
        return _check(answers)
    total = 0
    for name, (who, recorded) in answers.items():
        size = wire.write(name, who, recorded)
        probes = sum(len(each.probes) for each in recorded)
        _say(f"{name}: {len(recorded)} scenarios, {probes} probes, {size:,} bytes")
        total += size
    _say(f"{total:,} bytes, from Kubernetes {who.kubernetes}")
    return 0


def _check(answers: dict[str, tuple[Oracle, tuple[Recorded, ...]]]) -> int:
    changed = 0
    for name, (who, recorded) in answers.items():
        kept = wire.read(name)
        if who != kept[0]:
            _say(f"{name}: recorded from {kept[0]}, asked {who}")
        for now, before in zip(recorded, kept[1], strict=True):
            if now != before:
                _say(f"{now.name}: not as recorded")
                changed += 1
    _say(f"{changed} scenarios are not as recorded")
    return 1 if changed else 0


def _say(line: str) -> None:
    sys.stdout.write(f"{line}\n")


if __name__ == "__main__":
    try:
        sys.exit(main())
    except subprocess.CalledProcessError as error:
        sys.stderr.write(error.stderr.decode()[-4000:])
        sys.exit(1)
