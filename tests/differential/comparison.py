"""Where our engine says something else than kube-scheduler did. docs/evidence/kube-scheduler.md defines it.

`ON_PURPOSE` names what differs on purpose.
"""

import re
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import Final

import msgspec

from scheduler.plugins import registry
from tests.differential import victims
from tests.differential.manifests import HOSTNAME
from tests.differential.ours import Ours, RuleRejection, Verdicts
from tests.differential.wire import Answer, Probe, Recorded, Scores, Verdict

_PER_POINT: Final = 1_000
# Pods that leave may make room there: the others are not candidates for preemption.
_RESOLVABLE: Final = "Unschedulable"
_NORMALIZED: Final = frozenset({"TaintToleration", "NodeAffinity", "PodTopologySpread", "InterPodAffinity"})
BY_NAME: Final = "nodes that PreFilter leaves out"
PREFERENCE: Final = "an invalid preference"
POD_LEVEL: Final = "pod-level requests"
_IN_SCORES: Final = "nominated pods in scores"
_IN_DOMAINS: Final = "nominated pods in domains"
ON_PURPOSE: Final = (BY_NAME, PREFERENCE, POD_LEVEL, _IN_SCORES, _IN_DOMAINS)
_OF_AMOUNTS: Final = frozenset({"NodeResourcesFit", "NodeResourcesBalancedAllocation"})
_TOPOLOGY_KEY: Final = re.compile(r'"topologyKey":"([^"]*)"')


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
            for what, expected, got in _about(scenario, probe, ours):
                yield Difference(scenario, probe, what, expected, got)


def on_purpose(scenario: Recorded, probe: Probe) -> frozenset[str]:
    """In which of `ON_PURPOSE` our answer may differ. What else there is to compare is compared."""
    answer, found = probe.answer, set[str]()
    if any(not verdict.plugin for verdict in answer.rejected.values()):
        found.add(BY_NAME)
    if answer.feasible and answer.message.startswith('running PreScore plugin "NodeAffinity"'):
        found.add(PREFERENCE)
    if answer.scores and msgspec.json.decode(probe.pod, type=_Sized).spec.resources is not None:
        found.add(POD_LEVEL)
    if nominated := seen_by(probe, scenario):
        if answer.scores.keys() & _OF_AMOUNTS and set(answer.feasible) & nominated.keys():
            found.add(_IN_SCORES)
        if any(map(asks_of_domains, (probe.pod, *nominated.values()))):
            found.add(_IN_DOMAINS)
    return frozenset(found)


def scorers() -> frozenset[str]:
    """Names of our plugins that score."""
    return frozenset(plugin.name for plugin in registry.describe() if "score" in plugin.points)


def alike(scores: Mapping[str, int]) -> bool:
    """Whether every node has the same."""
    return len(set(scores.values())) <= 1


class _WithResources(msgspec.Struct):
    resources: dict[str, object] | None = None


class _Sized(msgspec.Struct):
    spec: _WithResources


def _about(scenario: Recorded, probe: Probe, ours: Ours) -> Iterator[tuple[str, object, object]]:
    theirs, excused, verdicts = probe.answer, on_purpose(scenario, probe), ours.verdicts(probe.pod)
    if _IN_DOMAINS in excused:
        if not set(verdicts.feasible) <= set(theirs.feasible):
            yield "feasible nodes", theirs.feasible, verdicts.feasible
        return
    yield from _filtered(theirs, verdicts, excused)
    if theirs.preemption is not None:
        yield from victims.differing(scenario, probe, theirs.preemption, ours)
    if theirs.feasible == verdicts.feasible:
        nominated = seen_by(probe, scenario)
        left_out = {"NodeResourcesFit"} if POD_LEVEL in excused else set[str]()
        for plugin in sorted((theirs.scores.keys() & scorers()) - left_out):
            elsewhere = nominated.keys() if plugin in _OF_AMOUNTS else ()
            yield from _scores(plugin, theirs.scores[plugin], verdicts.scores.get(plugin, {}), elsewhere)


def _filtered(theirs: Answer, ours: Verdicts, excused: Collection[str]) -> Iterator[tuple[str, object, object]]:
    if theirs.pre_filter is not None:
        yield from _unless_equal("PreFilter", tuple(theirs.pre_filter.reasons or ()), (ours.unschedulable,))
        yield from _unless_equal("message", theirs.message, ours.message)
        return
    yield from _unless_equal("feasible nodes", theirs.feasible, ours.feasible)
    for name, verdict in theirs.rejected.items():
        if verdict.plugin:
            yield from _unless_equal(f"node {name}", _rejecting(verdict), ours.rejected.get(name))
        yield from _unless_equal(f"node {name}, resolvable", verdict.code == _RESOLVABLE, name in ours.resolvable)
    if not {BY_NAME, PREFERENCE} & set(excused):
        yield from _unless_equal("message", theirs.message, ours.message)


def _unless_equal(what: str, expected: object, got: object) -> Iterator[tuple[str, object, object]]:
    if expected != got:
        yield what, expected, got


def _rejecting(verdict: Verdict) -> RuleRejection:
    return RuleRejection(verdict.plugin, tuple(sorted(verdict.reasons or ())))


def _scores(
    plugin: str, theirs: Scores, ours: Mapping[str, int], left_out: Collection[str]
) -> Iterator[tuple[str, object, object]]:
    expected = theirs.normalized
    if plugin in _NORMALIZED and alike(expected) and alike(ours):
        # Every feasible node gets the same: that decides nothing, and we leave it out.
        return
    for name, points in expected.items():
        if name not in left_out and ours.get(name, 0) != points * _PER_POINT:
            yield f"{plugin}, score of {name}", points, ours.get(name, 0) / _PER_POINT


class _NominatedSpec(msgspec.Struct, rename="camel"):
    priority: int = 0
    node_name: str = ""


class _NominatedStatus(msgspec.Struct, rename="camel"):
    nominated_node_name: str = ""


class _NominatedPod(msgspec.Struct):
    spec: _NominatedSpec = msgspec.field(default_factory=_NominatedSpec)
    status: _NominatedStatus = msgspec.field(default_factory=_NominatedStatus)


def seen_by(probe: Probe, scenario: Recorded) -> Mapping[str, bytes]:
    """By node, one of the pods that count for the probe: of its own or a higher priority."""
    found: dict[str, bytes] = {}
    for raw in map(bytes, scenario.objects):
        if b'"nominatedNodeName"' in raw:
            waits, asked = (msgspec.json.decode(each, type=_NominatedPod) for each in (raw, probe.pod))
            if not waits.spec.node_name and waits.spec.priority >= asked.spec.priority:
                found[waits.status.nominated_node_name] = raw
    return found


def asks_of_domains(pod: bytes) -> bool:
    """Whether a pod has terms or constraints about more than single nodes."""
    raw = bytes(pod)
    return b'"topologySpreadConstraints"' in raw or any(key != HOSTNAME for key in _TOPOLOGY_KEY.findall(raw.decode()))
