"""Where our engine says something else than kube-scheduler did. docs/differences.md has the definition in words."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from scheduler.plugins import registry
from tests.differential.ours import Objecting, Ours, Verdicts
from tests.differential.wire import Answer, Probe, Recorded, Scores, Verdict

# Ours less theirs, in thousandths of a point: at least -1 (a sum of floats may end just below), and less than this.
# kube-scheduler rounds down once, and NodeResourcesFit twice: for each resource, and for their mean.
_ROUNDED_DOWN: Final = 1_000
_WITHIN: Final = {"NodeResourcesFit": range(-1, 1_500)}
# 100 less a number that was rounded down.
_ROUNDED_UP: Final = {"TaintToleration": range(-999, 2)}
_PER_POINT: Final = 1_000


@dataclass(frozen=True, slots=True)
class Difference:
    """what: feasible nodes, message, a node, a plugin's scores. expected: kube-scheduler's."""

    scenario: Recorded
    probe: Probe
    what: str
    expected: object
    got: object


def differences(scenario: Recorded, ours: Ours) -> Iterator[Difference]:
    """Of every probe that the API server takes."""
    for probe in scenario.probes:
        if not probe.answer.invalid:
            for what, expected, got in _about(probe.answer, ours.verdicts(probe.pod)):
                yield Difference(scenario, probe, what, expected, got)


def scorers() -> frozenset[str]:
    """Names of our plugins that score."""
    return frozenset(plugin.name for plugin in registry.describe() if "score" in plugin.points)


def _about(theirs: Answer, ours: Verdicts) -> Iterator[tuple[str, object, object]]:
    if theirs.pre_filter is not None:
        yield from _unless_equal("PreFilter", tuple(theirs.pre_filter.reasons or ()), (ours.never,))
        yield from _unless_equal("message", theirs.message, ours.message)
        return
    yield from _unless_equal("feasible nodes", theirs.feasible, ours.feasible)
    left_out = {name for name, verdict in theirs.rejected.items() if not verdict.plugin}
    for name, verdict in theirs.rejected.items():
        if name not in left_out:
            yield from _unless_equal(f"node {name}", _objecting(verdict), ours.rejected.get(name))
    if not left_out:
        yield from _unless_equal("message", theirs.message, ours.message)
    if theirs.feasible == ours.feasible:
        for plugin in sorted(theirs.scores.keys() & scorers()):
            yield from _scores(plugin, theirs.scores[plugin], ours.scores.get(plugin, {}))


def _unless_equal(what: str, expected: object, got: object) -> Iterator[tuple[str, object, object]]:
    if expected != got:
        yield what, expected, got


def _objecting(verdict: Verdict) -> Objecting:
    return Objecting(verdict.plugin, tuple(sorted(verdict.reasons or ())))


def _scores(plugin: str, theirs: Scores, ours: Mapping[str, int]) -> Iterator[tuple[str, object, object]]:
    expected = theirs.normalized
    if alike(expected) and alike(ours):
        # Every feasible node gets the same: that decides nothing, and we leave it out.
        return
    within = _WITHIN.get(plugin) or _ROUNDED_UP.get(plugin) or range(-1, _ROUNDED_DOWN)
    for name, points in expected.items():
        if ours.get(name, 0) - points * _PER_POINT not in within:
            yield f"{plugin}, score of {name}", points, ours.get(name, 0) / _PER_POINT


def alike(scores: Mapping[str, int]) -> bool:
    """Whether every node has the same."""
    return len(set(scores.values())) <= 1
