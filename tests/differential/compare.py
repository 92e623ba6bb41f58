"""Compares our engine with what was recorded: `python -m tests.differential.compare [--group GROUP] [--first N]`.

Prints the first differences of each group: the scenario as YAML, the probe, what kube-scheduler said and what we say.
Exit status: 1 where something differs.
"""

import argparse
import sys
from collections import Counter
from itertools import islice
from typing import Any

import msgspec
import yaml

from tests.differential import wire
from tests.differential.comparison import Difference, differences
from tests.differential.ours import Ours
from tests.differential.table import GROUPS


def main(arguments: list[str] | None = None) -> int:
    """Compare the named groups, or all."""
    parser = argparse.ArgumentParser(prog="python -m tests.differential.compare", description=__doc__)
    parser.add_argument("--group", action="append", choices=[*GROUPS], metavar="GROUP", help=f"of {', '.join(GROUPS)}")
    parser.add_argument("--first", type=int, default=3, help="so many differences are shown (default: %(default)s)")
    parser.add_argument("--scenario", default="", help="this one only, such as taints/3")
    asked = parser.parse_args(arguments)
    found = [_compare(group, asked.first, asked.scenario) for group in asked.group or GROUPS]
    return 1 if any(found) else 0


def _compare(group: str, first: int, only: str) -> int:
    _, recorded = wire.read(group)
    chosen = [scenario for scenario in recorded if only in {"", scenario.name}]
    found = [difference for scenario in chosen for difference in differences(scenario, Ours(scenario))]
    for difference in islice(found, first):
        _say(told(difference))
    probes = sum(len(scenario.probes) for scenario in chosen)
    _say(f"{group}: {probes} probes, {len(found)} differences")
    for what, count in Counter(_kind(difference.what) for difference in found).most_common():
        _say(f"    {count} x {what}")
    return len(found)


def told(difference: Difference) -> str:
    """For a person: the objects, the probe, and the two answers."""
    about = f"# {difference.scenario.name}: {difference.what}"
    answers = f"#   kube-scheduler: {difference.expected}\n#   we:             {difference.got}\n"
    objects = "---\n".join(_yaml(raw) for raw in difference.scenario.objects)
    return f"{about}\n{objects}# the probe\n---\n{_yaml(difference.probe.pod)}{about}\n{answers}"


def _yaml(raw: bytes) -> str:
    return yaml.safe_dump(_without_noise(msgspec.json.decode(raw)), sort_keys=False, width=120)


def _without_noise(manifest: dict[str, Any]) -> dict[str, Any]:
    """Less what the API server adds to every pod and no scheduler reads."""
    if manifest["kind"] != "Pod":
        return manifest
    quiet = {"dnsPolicy", "enableServiceLinks", "restartPolicy", "schedulerName", "securityContext"}
    spec = {
        key: value for key, value in manifest["spec"].items() if key not in {*quiet, "terminationGracePeriodSeconds"}
    }
    for kind in ("containers", "initContainers"):
        for container in spec.get(kind, ()):
            for key in ("imagePullPolicy", "terminationMessagePath", "terminationMessagePolicy"):
                container.pop(key, None)
    return manifest | {"spec": spec}


def _kind(what: str) -> str:
    first, _, last = what.partition(" ")
    if first in {"node", "victims"}:
        return f"{first}, {last.rpartition(', ')[2]}" if ", " in last else first
    return what.partition(", score of")[0]


def _say(text: str) -> None:
    sys.stdout.write(f"{text}\n")


if __name__ == "__main__":
    sys.exit(main())
