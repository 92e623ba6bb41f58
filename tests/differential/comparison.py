"""Where our engine says something else than kube-scheduler did. docs/differences.md has the definition in words.

`ON_PURPOSE` names what differs on purpose.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final

import msgspec

from scheduler.plugins import registry
from tests.differential.ours import Objecting, Ours, Verdicts
from tests.differential.wire import Probe, Recorded, Scores, Verdict

_PER_POINT: Final = 1_000
_NORMALIZED: Final = frozenset({"TaintToleration", "NodeAffinity", "PodTopologySpread", "InterPodAffinity"})
_BY_NAME: Final = "nodes that PreFilter leaves out"
_PREFERENCE: Final = "a preference that is not valid"
_POD_LEVEL: Final = "the pod's own pod-level requests in its score"
ON_PURPOSE: Final = (_BY_NAME, _PREFERENCE, _POD_LEVEL)


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
            for what, expected, got in _about(probe, ours.verdicts(probe.pod)):
                yield Difference(scenario, probe, what, expected, got)


def on_purpose(probe: Probe) -> frozenset[str]:
    """In which of `ON_PURPOSE` our answer may differ. What else there is to compare is compared."""
    answer, found = probe.answer, set[str]()
    if any(not verdict.plugin for verdict in answer.rejected.values()):
        found.add(_BY_NAME)
    if answer.feasible and answer.message.startswith('running PreScore plugin "NodeAffinity"'):
        found.add(_PREFERENCE)
    if answer.scores and msgspec.json.decode(probe.pod, type=_Sized).spec.resources is not None:
        found.add(_POD_LEVEL)
    return frozenset(found)


def scorers() -> frozenset[str]:
    """Names of our plugins that score."""
    return frozenset(plugin.name for plugin in registry.describe() if "score" in plugin.points)


def lacking(scenario: Recorded) -> frozenset[str]:
    """What kube-scheduler decides by, and we say nothing of: scores that differ between nodes, preemption."""
    answers = [probe.answer for probe in scenario.probes]
    scored = {name for answer in answers for name, scores in answer.scores.items() if not alike(scores.normalized)}
    preempts = {"DefaultPreemption"} if any(answer.preemption for answer in answers) else set[str]()
    return frozenset((scored - scorers()) | preempts)


def alike(scores: Mapping[str, int]) -> bool:
    """Whether every node has the same."""
    return len(set(scores.values())) <= 1


class _WithResources(msgspec.Struct):
    resources: dict[str, object] | None = None


class _Sized(msgspec.Struct):
    spec: _WithResources


def _about(probe: Probe, ours: Verdicts) -> Iterator[tuple[str, object, object]]:
    theirs, excused = probe.answer, on_purpose(probe)
    if theirs.pre_filter is not None:
        yield from _unless_equal("PreFilter", tuple(theirs.pre_filter.reasons or ()), (ours.never,))
        yield from _unless_equal("message", theirs.message, ours.message)
        return
    yield from _unless_equal("feasible nodes", theirs.feasible, ours.feasible)
    for name, verdict in theirs.rejected.items():
        if verdict.plugin:
            yield from _unless_equal(f"node {name}", _objecting(verdict), ours.rejected.get(name))
    if not excused & {_BY_NAME, _PREFERENCE}:
        yield from _unless_equal("message", theirs.message, ours.message)
    if theirs.feasible == ours.feasible:
        left_out = {"NodeResourcesFit"} if _POD_LEVEL in excused else set[str]()
        for plugin in sorted((theirs.scores.keys() & scorers()) - left_out):
            yield from _scores(plugin, theirs.scores[plugin], ours.scores.get(plugin, {}))


def _unless_equal(what: str, expected: object, got: object) -> Iterator[tuple[str, object, object]]:
    if expected != got:
        yield what, expected, got


def _objecting(verdict: Verdict) -> Objecting:
    return Objecting(verdict.plugin, tuple(sorted(verdict.reasons or ())))


def _scores(plugin: str, theirs: Scores, ours: Mapping[str, int]) -> Iterator[tuple[str, object, object]]:
    expected = theirs.normalized
    if plugin in _NORMALIZED and alike(expected) and alike(ours):
        # Every feasible node gets the same: that decides nothing, and we leave it out.
        return
    for name, points in expected.items():
        if ours.get(name, 0) != points * _PER_POINT:
            yield f"{plugin}, score of {name}", points, ours.get(name, 0) / _PER_POINT
