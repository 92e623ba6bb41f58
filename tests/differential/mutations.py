"""Changes our rules one at a time: `python -m tests.differential.mutations [--module NAME …] [--rules-only]`.

First each plugin that kube-scheduler has too is left out, then each operator in its module, and in those that it stands
on, is turned into another. Every time the comparison has to fail, or the unit tests of what kube-scheduler has not; who
goes unseen is printed, and makes the exit status 1 unless `subjects.UNSEEN` says why. An entry of it that is about
nothing any more is named at the end. A change is held against those scenarios only in which the function runs. Takes
an hour: `make test-nightly` runs it.
"""

import argparse
import sys
import time
import warnings
from collections import Counter
from collections.abc import Collection, Iterator
from functools import partial
from importlib import import_module
from typing import Final

from scheduler.plugins import registry
from tests.differential import unit_tests, wire
from tests.differential.comparison import differences
from tests.differential.executed import Function, at_most, executed, forget_results
from tests.differential.mutants import Mutant, mutants_of, put_in
from tests.differential.ours import Ours
from tests.differential.subjects import SUBJECTS, UNSEEN, Subject
from tests.differential.table import GROUPS
from tests.differential.test_bite import BITING
from tests.differential.wire import Recorded

# Of one scenario. Unchanged, it takes a tenth of a second.
_MOST_CPU_S: Final = 10.0
_HOW: Final = ("seen by the comparison", "by unit tests", "excused", "unseen")


class Comparison:
    """Everything that is compared, read once."""

    def __init__(self) -> None:
        """All groups."""
        self._scenarios = {each.name: each for group in GROUPS for each in wire.read(group)[1]}
        self._functions: dict[str, frozenset[Function]] = {}
        # Names of scenarios that have seen a change, the last first.
        self._have_seen: dict[str, None] = {}

    def agrees(self, files: Collection[str] = ()) -> bool:
        """Whether it holds as it is. files: which of their functions run in which scenario is kept for `sees`."""
        for scenario in self._scenarios.values():
            forget_results()
            differs, self._functions[scenario.name] = executed(partial(_differs, scenario), files)
            if differs:
                return False
        return True

    def sees(self, first: tuple[str, ...] = (), without: str = "", *, changed: Collection[Function] = ()) -> bool:
        """Whether our engine says something else than kube-scheduler now, or fails, or comes to no end.

        first: groups that are asked first. without: a plugin left out. changed: others than those that run one of these
        functions are not asked.
        """
        for scenario in self._in_order(first):
            ran = self._functions.get(scenario.name)
            if changed and ran is not None and ran.isdisjoint(changed):
                continue
            if _differs(scenario, without):
                self._have_seen = {scenario.name: None, **self._have_seen}
                return True
        return False

    def _in_order(self, first: tuple[str, ...]) -> Iterator[Recorded]:
        groups = {name: name.rpartition("/")[0] for name in self._scenarios}
        likely = [name for group in first for name in self._scenarios if groups[name] == group]
        return map(self._scenarios.__getitem__, dict.fromkeys((*self._have_seen, *likely, *self._scenarios)))


def _differs(scenario: Recorded, without: str = "") -> bool:
    plugins = tuple(plugin for plugin in registry.PLUGINS if plugin.name != without)
    try:
        with warnings.catch_warnings(action="ignore"), at_most(_MOST_CPU_S):
            return next(differences(scenario, Ours(scenario, plugins)), None) is not None
    except Exception:  # noqa: BLE001 - whatever a changed operator leads to
        return True


def main(arguments: list[str] | None = None) -> int:
    """Change everything, or the named modules."""
    parser = argparse.ArgumentParser(prog="python -m tests.differential.mutations", description=__doc__)
    names = [subject.name for subject in SUBJECTS]
    parser.add_argument("--module", action="append", choices=names, metavar="NAME", help=f"of {', '.join(names)}")
    parser.add_argument("--rules-only", action="store_true", help="leave rules out, change no operator")
    asked = parser.parse_args(arguments)
    comparison = Comparison()
    subjects = () if asked.rules_only else tuple(each for each in SUBJECTS if each.name in (asked.module or names))
    if not comparison.agrees([import_module(subject.module).__file__ or "" for subject in subjects]):
        _say("the comparison fails already: python -m tests.differential.compare")
        return 1
    wrong = [] if asked.module else _rules_left_out(comparison)
    used: set[str] = set()
    for subject in subjects:
        wrong += _operators_changed(comparison, subject, used)
    if len(subjects) == len(SUBJECTS):
        for entry in UNSEEN.keys() - used:
            _say(f"excuses nothing: {entry}")
    return 1 if wrong else 0


def _rules_left_out(comparison: Comparison) -> list[str]:
    known = [plugin.name for plugin in registry.PLUGINS if plugin.name in BITING]
    unseen = [f"unseen: {name} is left out" for name in known if not comparison.sees(without=name)]
    for line in unseen:
        _say(line)
    _say(f"rules: {len(known)} left out, {len(unseen)} unseen")
    return unseen


def _operators_changed(comparison: Comparison, subject: Subject, used: set[str]) -> list[str]:
    """What goes unseen without an excuse. used: gets the excuses."""
    module = import_module(subject.module)
    if subject.tests and unit_tests.fail(subject.tests):
        _say(f"{module.__name__}: its unit tests fail already")
        return [module.__name__]
    began_s, unseen, counts = time.process_time(), [], Counter[str]()
    for mutant in mutants_of(module, orders=subject.orders):
        functions = [(module.__file__ or "", name) for name in mutant.functions]
        with put_in(module, mutant):
            if comparison.sees(subject.first, changed=functions):
                how = "seen by the comparison"
            elif subject.tests and unit_tests.fail(subject.tests):
                how = "by unit tests"
            else:
                excuses = _excuses(mutant)
                how = "excused" if excuses else "unseen"
                used |= excuses
        counts[how] += 1
        if how == "unseen":
            unseen.append(f"unseen: {module.__name__}, {mutant}")
            _say(unseen[-1])
    told = ", ".join(f"{counts[how]} {how}" for how in _HOW)
    _say(f"{module.__name__}: {counts.total()} changed, {told}, {time.process_time() - began_s:.0f} s of CPU")
    return unseen


def _excuses(mutant: Mutant) -> set[str]:
    """The entries of UNSEEN that are about it."""
    of_functions = {entry for name in mutant.functions for entry in (name, f"{name}: {mutant.line}")}
    return (of_functions | {mutant.line}) & UNSEEN.keys()


def _say(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
