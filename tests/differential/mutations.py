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
from tests.differential.test_bite import BITING
from tests.differential.wire import Recorded

_COLUMNS: Final = "scheduler.state.columns"


@dataclass(frozen=True, slots=True)
class Subject:
    """A module that is changed. first: the groups that are likely to see it. only: no other has to do with it.

    orders: the order of what its functions return is changed, too.
    """

    module: str
    first: tuple[str, ...]
    only: bool = False
    orders: bool = False


_AFFINITY: Final = ("existing_anti_affinity", "required_affinity", "required_anti_affinity", "preferred_affinity")
_PREEMPTION: Final = ("preemption_again", "preemption_rules", "preemption", "preemption_lowest", "preemption_wide")
SUBJECTS: Final = (
    Subject("scheduler.plugins.node_unschedulable", ("unschedulable",)),
    Subject("scheduler.plugins.node_name", ("node_name",)),
    Subject("scheduler.plugins.taint_toleration", ("taints", "unschedulable")),
    Subject("scheduler.plugins.node_affinity", ("node_affinity", "node_fields")),
    Subject("scheduler.plugins.node_ports", ("node_ports",)),
    Subject("scheduler.plugins.node_resources_fit", ("resources", "several_resources", "balance")),
    Subject("scheduler.plugins.inter_pod_affinity", _AFFINITY),
    Subject(
        "scheduler.plugins.pod_topology_spread", ("spread_hard", "spread_soft", "spread_label_keys", "spread_policies")
    ),
    Subject(
        "scheduler.plugins.spread_constraints",
        ("spread_hard", "spread_soft", "spread_domains", "spread_policies", "spread_label_keys"),
    ),
    Subject("scheduler.plugins.volume_restrictions", ("volume_restrictions",)),
    Subject("scheduler.plugins.node_volume_limits", ("volume_limits",)),
    Subject("scheduler.plugins.volume_binding", ("volume_bound", "volume_static", "volume_dynamic")),
    Subject("scheduler.plugins.volume_zone", ("volume_zone",)),
    Subject("scheduler.state.volumes.matching", ("volume_static", "volume_dynamic")),
    Subject("scheduler.plugins.resource_allocation", ("resources", "several_resources", "balance")),
    Subject("scheduler.plugins.node_resources_balanced_allocation", ("balance", "resources")),
    Subject("scheduler.plugins.image_locality", ("images",)),
    Subject("scheduler.plugins.node_declared_features", ("declared_features",)),
    Subject("scheduler.pods.declared_features", ("declared_features",)),
    Subject("scheduler.pods.effective_requests", ("resources", "resized", "balance")),
    Subject(f"{_COLUMNS}.node_terms", ("node_affinity", "node_fields", "volume_bound")),
    Subject(f"{_COLUMNS}.selectors", ("node_affinity", "existing_anti_affinity")),
    Subject("scheduler.state.facts.existing_terms", ("existing_anti_affinity", "preferred_affinity")),
    Subject(f"{_COLUMNS}.images", ("images",)),
    Subject("scheduler.plugins.victims", _PREEMPTION, only=True, orders=True),
    Subject("scheduler.plugins.victims_by_amounts", _PREEMPTION, only=True, orders=True),
    Subject("scheduler.state.disruption_budgets", _PREEMPTION, only=True, orders=True),
)
_ONE_BY_ONE: Final = "classes of pods: the comparison asks about one pod at a time"
_KEPT: Final = "when something is worked out again, and what keeping it costs: scheduler.testkit and its histories"
_CONFIGURED: Final = "the default profile does not configure it"
_ADMITTED: Final = "the API server admits no pod for which it matters"
_FASTER: Final = "another way to the same answer"
_LEAVES: Final = "nothing leaves while pods are asked about: tests/scheduler/testkit and the random histories"
_CARDS: Final = "about cards: tests/scheduler/plugins/test_victims.py tries every choice"
_LISTED: Final = "kube-scheduler is asked when it has seen everything"
_MANY: Final = "more than is read of one namespace, or selector: tests/scheduler/state/test_disruption_budgets.py"
_MOST_HELD: Final = (
    "found = nlargest(MOST_VICTIMS, found, key=lambda record: (shares[record.pod.template], -record.pod.priority))"
)
_ASKED: Final = "asked = [amount for amount in Amount if amount is not Amount.CARD_UNITS and least[amount] != NOTHING]"
_SHORT: Final = "short = tuple(_reason(amount, gpu_mem) for amount, room in zip(asked, rooms, strict=True) if room < 0)"
_WIDE: Final = "no node that is recorded has so many pods: tests/scheduler/plugins/test_victims.py"
# What no comparison with kube-scheduler can see, and why: a function, one line of it, or a line.
UNSEEN: Final[dict[str, str]] = {
    "tolerates: return False": f"an operator of tolerations behind a feature gate: {_ADMITTED}",
    "HostPorts.book: addresses[port.ip] += sign": _LEAVES,
    "HostPorts._rows_with": _FASTER,
    "_parsed_field": _ADMITTED,
    "Required.over: if (row := only_row(rows)) is not None:": _FASTER,
    "Required.size_bytes": _KEPT,
    "Matcher.over": _KEPT,
    "Matcher.size_bytes": _KEPT,
    "of_label_selector": _ADMITTED,
    "of_text": "selectors that annotations of ours have",
    "_requestable": _CONFIGURED,
    "is_extended": _CONFIGURED,
    "with_pod": _CONFIGURED,
    "most_allocated": _CONFIGURED,
    "NodeResourcesFitArgs.contradicting": _CONFIGURED,
    "NodeResourcesFit._requested": _KEPT,
    "NodeResourcesFit.score: if not weights or np.count_nonzero(allocatable) < allocatable.size:": _FASTER,
    "ExistingTerms.namespaces_changed": _LEAVES,
    "VolumeRestrictions.signature": _ONE_BY_ONE,
    "VolumeZone.signature": _ONE_BY_ONE,
    "VolumeBinding.signature": _ONE_BY_ONE,
    "VolumeBinding.moment": _ONE_BY_ONE,
    "VolumeBinding.reserve": "which volume a pod gets is not compared",
    "NodeVolumeLimits.signature": _ONE_BY_ONE,
    "ImageLocality.standing": "when all rows are scored again: every probe is asked once",
    "Images.shared": "which objects nodes share: they are equal",
    'name = claim.kept if count and matched[0] else ""': "which volume a pod gets is not compared",
    "if of_class is None or of_class.known is None or not active.any():": "a claim that waits has a class",
    "self._alive &= ~on | can": "seen by tests/scheduler/plugins/test_volume_binding.py",
    "self.users[key] += sign": _LEAVES,
    "rows[row] += sign": _LEAVES,
    "opened_by": "who waits is asked again: tests/scheduler/plugins/test_spread_histories.py",
    "PodTopologySpread.opened_by": "who waits is asked again: tests/scheduler/plugins/test_spread_histories.py",
    "return (-1, 0, 0, 0, 0)": "no victims: less than any key is all that it has to be",
    "return -pod.priority, pod.started or _LAST, pod.key.namespace, pod.key.name": "by name at last: chance there",
    "if len(found) > MOST_VICTIMS:": _WIDE,
    "_share": _WIDE,
    "shares_of": _CARDS,
    "agreed: if 0 < len(found.victims) == len(potential) - len(stay):": _FASTER,
    f"lower: {_MOST_HELD}": _WIDE,
    "by_amounts: request = pod.template.gpu_request if least[Amount.CARD_UNITS] != NOTHING else None": _CARDS,
    "by_amounts: return [], short or (memory_reason(request),)": _CARDS,
    # What the amounts say is held against the rules.
    "_held: return 0 if record.held is None else record.held.counted": _CARDS,
    "say_all": _FASTER,
    "_left": _FASTER,
    "_victims": _FASTER,
    f"by_amounts: {_ASKED}": _FASTER,
    f"by_amounts: {_SHORT}": "strict: the lists are as long as each other",
    "DisruptionBudgets.__init__": _LISTED,
    "DisruptionBudgets.remove": _LEAVES,
    "self.version += 1": _KEPT,
    "DisruptionBudgets.set: if selector is not None and len(selector) > MOST_REQUIREMENTS:": _MANY,
    "DisruptionBudgets.set: if meta.name not in own and len(own) >= MOST_BUDGETS:": _MANY,
    "by_amounts: if short or len(on_cards) < request.cards:": _CARDS,
    'by_amounts: return sorted(found, key=attrgetter("key", "slots")), ()': _CARDS,
    "_on": _CARDS,
    "_rooms_on_cards": _CARDS,
    "_may_be_given": _CARDS,
    "_fewest": _CARDS,
    "_choices": _CARDS,
    "_least_key": _CARDS,
    "_sets": _CARDS,
    "_sets.cost": _CARDS,
    "_one_by_one": _CARDS,
    "if selector is not None and each.match_label_keys:": "the API server takes matchLabelKeys beside a selector only",
}


class Comparison:
    """Everything that is compared, read once."""

    def __init__(self) -> None:
        """All groups."""
        self._recorded = {name: wire.read(name)[1] for name in GROUPS}

    def sees(self, first: tuple[str, ...] = (), without: str = "", *, only: bool = False) -> bool:
        """Whether our engine says something else than kube-scheduler now, or fails. without: a plugin left out.

        only: no other groups are asked.
        """
        plugins = tuple(plugin for plugin in registry.PLUGINS if plugin.name != without)
        try:
            with warnings.catch_warnings(action="ignore"):
                return any(
                    next(differences(scenario, Ours(scenario, plugins)), None) is not None
                    for scenario in self._in_order(first, only=only)
                )
        except Exception:  # noqa: BLE001 - whatever a changed operator leads to
            return True

    def _in_order(self, first: tuple[str, ...], *, only: bool) -> Iterator[Recorded]:
        for name in first if only else dict.fromkeys((*first, *self._recorded)):
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
    known = [plugin.name for plugin in registry.PLUGINS if plugin.name in BITING]
    unseen = [f"{name} is left out" for name in known if not comparison.sees(without=name)]
    for line in unseen:
        _say(f"unseen: {line}")
    _say(f"rules: {len(known)} left out, {len(unseen)} unseen")
    return unseen


def _operators_changed(comparison: Comparison, subject: Subject) -> list[str]:
    module = import_module(subject.module)
    unseen, count, excused = [], 0, 0
    for mutant in mutants_of(module, orders=subject.orders):
        with put_in(module, mutant):
            seen = comparison.sees(subject.first, only=subject.only)
        count += 1
        if not seen and _excused(mutant):
            excused += 1
        elif not seen:
            unseen.append(f"{module.__name__}, {mutant}")
            _say(f"unseen: {unseen[-1]}")
    _say(f"{module.__name__}: {count} changed, {excused} excused, {len(unseen)} unseen")
    return unseen


def _excused(mutant: Mutant) -> bool:
    return mutant.line in UNSEEN or any(
        function in UNSEEN or f"{function}: {mutant.line}" in UNSEEN for function in mutant.functions
    )


def _say(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
