"""Changes our rules one at a time: `python -m tests.differential.mutations [--module NAME] [--rules-only]`.

First each plugin that kube-scheduler has too is left out, then each operator in its module, and in those that it stands
on, is turned into another. Every time the comparison has to fail; who goes unseen is printed, and makes the exit status
1 unless `UNSEEN` says why. Takes minutes: `make test-nightly` runs it.
"""

import argparse
import sys
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from importlib import import_module
from typing import Final

from scheduler.plugins import registry
from tests.differential import wire
from tests.differential.comparison import differences
from tests.differential.mutants import Mutant, mutants_of, put_in
from tests.differential.ours import Ours
from tests.differential.table import GROUPS
from tests.differential.test_bite import REASONS
from tests.differential.wire import Recorded

_COLUMNS: Final = "scheduler.state.columns"


@dataclass(frozen=True, slots=True)
class Subject:
    """A module that is changed. first: the groups that are likely to see it."""

    module: str
    first: tuple[str, ...]


SUBJECTS: Final = (
    Subject("scheduler.plugins.node_unschedulable", ("unschedulable",)),
    Subject("scheduler.plugins.node_name", ("node_name",)),
    Subject("scheduler.plugins.taint_toleration", ("taints", "unschedulable")),
    Subject("scheduler.plugins.node_affinity", ("node_affinity", "node_fields")),
    Subject("scheduler.plugins.node_ports", ("node_ports",)),
    Subject("scheduler.plugins.node_resources_fit", ("resources", "several_resources", "balance")),
    Subject("scheduler.plugins.inter_pod_affinity", ("existing_anti_affinity",)),
    Subject("scheduler.plugins.volume_restrictions", ("volume_restrictions",)),
    Subject("scheduler.plugins.node_volume_limits", ("volume_limits",)),
    Subject("scheduler.plugins.volume_binding", ("volume_bound", "volume_static", "volume_dynamic")),
    Subject("scheduler.plugins.volume_zone", ("volume_zone",)),
    Subject("scheduler.state.volumes.matching", ("volume_static", "volume_dynamic")),
    Subject("scheduler.pods.effective_requests", ("resources", "resized", "balance")),
    Subject(f"{_COLUMNS}.node_terms", ("node_affinity", "node_fields", "volume_bound")),
    Subject(f"{_COLUMNS}.selectors", ("node_affinity", "existing_anti_affinity")),
    Subject("scheduler.state.facts.anti_affinity", ("existing_anti_affinity",)),
)
# What no comparison with kube-scheduler can see. By function: all of it, or the lines that contain the text.
_ONE_BY_ONE: Final = "classes of pods: the comparison asks about one pod at a time"
_NOBODY_LEAVES: Final = "pods of a scenario stay"
UNSEEN: Final[dict[str, str]] = {
    "VolumeRestrictions.signature": _ONE_BY_ONE,
    "VolumeZone.signature": _ONE_BY_ONE,
    "VolumeBinding.signature": _ONE_BY_ONE,
    "VolumeBinding.moment": _ONE_BY_ONE,
    "VolumeBinding.reserve": "which volume a pod gets is not compared",
    "NodeVolumeLimits.signature": _ONE_BY_ONE,
    'name = claim.kept if count and matched[0] else ""': "which volume a pod gets is not compared",
    "if of_class is None or of_class.known is None or not active.any():": "a claim that waits has a class",
    "self._alive &= ~on | can": "seen by tests/scheduler/plugins/test_volume_binding.py",
    "self.users[key] += sign": _NOBODY_LEAVES,
    "rows[row] += sign": _NOBODY_LEAVES,
}


class Comparison:
    """Everything that is compared, read once."""

    def __init__(self) -> None:
        """Only what `make test` holds us to."""
        self._recorded = {name: wire.read(name)[1] for name, group in GROUPS.items() if group.compared}

    def sees(self, first: tuple[str, ...] = (), without: str = "") -> bool:
        """Whether our engine says something else than kube-scheduler now, or fails. without: a plugin left out."""
        plugins = tuple(plugin for plugin in registry.PLUGINS if plugin.name != without)
        try:
            with warnings.catch_warnings(action="ignore"):
                return any(
                    next(differences(scenario, Ours(scenario, plugins)), None) is not None
                    for scenario in self._in_order(first)
                )
        except Exception:  # noqa: BLE001 - whatever a changed operator leads to
            return True

    def _in_order(self, first: tuple[str, ...]) -> Iterator[Recorded]:
        for name in dict.fromkeys((*first, *self._recorded)):
            yield from self._recorded.get(name, ())


def main(arguments: list[str] | None = None) -> int:
    """Change everything, or the named module."""
    parser = argparse.ArgumentParser(prog="python -m tests.differential.mutations", description=__doc__)
    names = [subject.module.rpartition(".")[2] for subject in SUBJECTS]
    parser.add_argument("--module", choices=names, metavar="NAME", help=f"of {', '.join(names)}")
    parser.add_argument("--rules-only", action="store_true", help="leave rules out, change no operator")
    asked = parser.parse_args(arguments)
    comparison = Comparison()
    if comparison.sees():
        _say("the comparison fails already: python -m tests.differential.compare")
        return 1
    unseen = [] if asked.module else _rules_left_out(comparison)
    if not asked.rules_only:
        subjects = [each for each in SUBJECTS if asked.module in {None, each.module.rpartition(".")[2]}]
        unseen += [told for subject in subjects for told in _operators_changed(comparison, subject)]
    return 1 if unseen else 0


def _rules_left_out(comparison: Comparison) -> list[str]:
    known = [plugin.name for plugin in registry.PLUGINS if plugin.name in REASONS]
    unseen = [f"{name} is left out" for name in known if not comparison.sees(without=name)]
    for line in unseen:
        _say(f"unseen: {line}")
    _say(f"rules: {len(known)} left out, {len(unseen)} unseen")
    return unseen


def _operators_changed(comparison: Comparison, subject: Subject) -> list[str]:
    module = import_module(subject.module)
    unseen, count, excused = [], 0, 0
    for mutant in mutants_of(module):
        with put_in(module, mutant):
            seen = comparison.sees(subject.first)
        count += 1
        if not seen and _excused(mutant):
            excused += 1
        elif not seen:
            unseen.append(f"{module.__name__}, {mutant}")
            _say(f"unseen: {unseen[-1]}")
    _say(f"{module.__name__}: {count} changed, {excused} excused, {len(unseen)} unseen")
    return unseen


def _excused(mutant: Mutant) -> bool:
    return any(function in UNSEEN for function in mutant.functions) or mutant.line in UNSEEN


def _say(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
