"""What is recorded is worth comparing: every rule speaks, and speaks alone, and often a pod fits some nodes only."""

from collections import Counter
from collections.abc import Collection
from functools import lru_cache

import pytest

from scheduler.framework.plugin import Plugin
from scheduler.plugins import registry
from tests.differential import wire
from tests.differential.comparison import ON_PURPOSE, alike, differences, on_purpose, scorers
from tests.differential.ours import Ours
from tests.differential.table import GROUPS
from tests.differential.victims import KEY_PARTS, Key, keys_of
from tests.differential.wire import Answer, Preemption, Probe, Recorded
from tests.support.repository import ROOT

_IN_USE = (
    "node(s) unavailable due to PersistentVolumeClaim with ReadWriteOncePod access mode already in-use by another pod"
)
# Of kube-scheduler 1.36, all that an ordinary pod can read; `node(s) had unknown conditions` and `node(s) didn't match
# scheduler-enforced node affinity` are written for no pod by the default configuration.
REASONS = {
    "NodeUnschedulable": {"node(s) were unschedulable"},
    "TaintToleration": {"node(s) had untolerated taint(s)"},
    "NodeAffinity": {"node(s) didn't match Pod's node affinity/selector", "pod affinity terms conflict"},
    "NodePorts": {"node(s) didn't have free ports for the requested pod ports"},
    "NodeResourcesFit": {
        "Too many pods",
        "Insufficient cpu",
        "Insufficient memory",
        "Insufficient ephemeral-storage",
        "Insufficient hugepages-2Mi",
        "Insufficient example.com/fpga",
    },
    "VolumeRestrictions": {
        "node(s) had no available disk",
        _IN_USE,
        'persistentvolumeclaim "missing" not found',
    },
    "NodeVolumeLimits": {
        "node(s) exceed max volume count",
        "csi.example.com CSI driver is not installed on the node",
    },
    "VolumeBinding": {
        "node(s) didn't find available persistent volumes to bind",
        "node(s) didn't match PersistentVolume's node affinity",
        "node(s) did not have enough free storage",
        "node(s) unavailable due to one or more pvc(s) bound to non-existent pv(s)",
        "pod has unbound immediate PersistentVolumeClaims",
        'persistentvolumeclaim "leaving" is being deleted',
        'persistentvolumeclaim "lost" bound to non-existent persistentvolume "gone"',
        'waiting for ephemeral volume controller to create the persistentvolumeclaim "early-v"',
        "PVC default/stolen-v was not created for pod default/stolen (pod is not owner)",
    },
    "VolumeZone": {"node(s) had no available volume zone", 'persistentvolume "nowhere" not found'},
    "PodTopologySpread": {
        "node(s) didn't match pod topology spread constraints",
        "node(s) didn't match pod topology spread constraints (missing required label)",
    },
    "InterPodAffinity": {
        "node(s) didn't match pod affinity rules",
        "node(s) didn't match pod anti-affinity rules",
        "node(s) didn't satisfy existing pods anti-affinity rules",
    },
    "NodeDeclaredFeatures": {"node(s) didn't match Pod's required features"},
}
NOT_ELIGIBLE = {
    "not eligible due to preemptionPolicy=Never.",
    "not eligible due to a terminating pod on the nominated node.",
}
# Of each of them there are nodes that stay infeasible without any pod of lower priority.
NOT_HELPED = {
    "No preemption victims found for incoming pod",
    "Preemption is not helpful for scheduling",
    "Insufficient cpu",
    "Insufficient example.com/fpga",
    "node(s) didn't have free ports for the requested pod ports",
    "node(s) exceed max volume count",
    "node(s) didn't match PersistentVolume's node affinity",
    "node(s) didn't match pod affinity rules",
    "node(s) didn't match pod anti-affinity rules",
    "node(s) didn't satisfy existing pods anti-affinity rules",
}
# Its PreFilter names the only node; the others get no reason of their own.
NODE_NAME = "didn't satisfy plugin(s) [NodeName]"
RULES = [plugin for plugin in registry.PLUGINS if plugin.name in {*REASONS, "DefaultPreemption", "NodeName"}]
SCORERS = {
    "TaintToleration",
    "NodeAffinity",
    "NodeResourcesFit",
    "PodTopologySpread",
    "InterPodAffinity",
    "NodeResourcesBalancedAllocation",
    "ImageLocality",
    "VolumeBinding",
}


@lru_cache
def asked() -> tuple[tuple[Recorded, Probe], ...]:
    every = (scenario for group in GROUPS for scenario in wire.read(group)[1])
    return tuple((scenario, probe) for scenario in every for probe in scenario.probes)


def answers() -> list[Answer]:
    return [probe.answer for _, probe in asked() if not probe.answer.invalid]


def dry_runs() -> list[tuple[Recorded, Preemption]]:
    return [(scenario, probe.answer.preemption) for scenario, probe in asked() if probe.answer.preemption]


def part_that_decides(keys: Collection[Key]) -> str:
    """Which part of the key tells the best candidate from the next; "" where they tie on all."""
    best, second = sorted(keys)[:2]
    return next((name for name, one, other in zip(KEY_PARTS, best, second, strict=True) if one != other), "")


def speaking(answer: Answer) -> set[str]:
    """Plugins that reject some node."""
    if answer.pre_filter is not None:
        return {answer.pre_filter.plugin}
    return {verdict.plugin for verdict in answer.rejected.values()}


def speaks(rule: str, answer: Answer) -> bool:
    """Whether it alone decides."""
    if rule == "DefaultPreemption":
        return answer.preemption is not None and bool(answer.preemption.chosen)
    return NODE_NAME in answer.message if rule == "NodeName" else speaking(answer) == {rule}


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.name)
def test_a_rule_that_is_left_out_is_seen(rule: type[Plugin]) -> None:
    others = tuple(plugin for plugin in registry.PLUGINS if plugin is not rule)
    telling = {scenario.name: scenario for scenario, probe in asked() if speaks(rule.name, probe.answer)}
    assert any(next(differences(scenario, Ours(scenario, others)), None) for scenario in telling.values())


def test_there_are_enough() -> None:
    assert sum(len(wire.read(group)[1]) for group in GROUPS) >= 500
    assert len(answers()) >= 3_000


def test_every_plugin_rejects_alone_in_twenty_probes_or_more() -> None:
    alone = Counter(plugin for answer in answers() if len(speaking(answer)) == 1 for plugin in speaking(answer))
    assert {plugin: alone[plugin] for plugin in REASONS if alone[plugin] < 20} == {}


def test_every_reason_occurs() -> None:
    said: dict[str, set[str]] = {}
    for answer in answers():
        verdicts = [*answer.rejected.values(), *([answer.pre_filter] if answer.pre_filter else [])]
        for verdict in verdicts:
            said.setdefault(verdict.plugin, set()).update(verdict.reasons or ())
    assert {plugin: reasons - said[plugin] for plugin, reasons in REASONS.items() if reasons - said[plugin]} == {}
    assert said.keys() - {""} == REASONS.keys()


def test_every_third_probe_fits_some_nodes_and_not_others() -> None:
    mixed = [answer for answer in answers() if answer.feasible and answer.rejected]
    assert len(mixed) >= 0.3 * len(asked())


def test_every_score_tells_nodes_apart_in_fifty_probes_or_more() -> None:
    telling = Counter(
        name for answer in answers() for name, scores in answer.scores.items() if not alike(scores.normalized)
    )
    assert {name: telling[name] for name in SCORERS if telling[name] < 50} == {}
    assert telling.keys() == SCORERS
    assert scorers() >= SCORERS


def test_what_differs_on_purpose_occurs_and_is_written_down() -> None:
    occurring = Counter(excuse for scenario, probe in asked() for excuse in on_purpose(scenario, probe))
    assert occurring.keys() == set(ON_PURPOSE)
    written = (ROOT / "docs" / "differences.md").read_text()
    assert [excuse for excuse in ON_PURPOSE if excuse.lower() not in written.lower()] == []


def test_every_part_of_the_key_decides_in_twenty_probes_or_more() -> None:
    keys = (keys_of(scenario, run.candidates).values() for scenario, run in dry_runs() if run.candidates)
    deciding = Counter(part_that_decides(of_nodes) for of_nodes in keys if len(of_nodes) > 1)
    assert {part: deciding[part] for part in KEY_PARTS if deciding[part] < 20} == {}


def test_preemption_is_asked_about_in_every_way() -> None:
    runs = [run for _, run in dry_runs()]
    assert {run.not_eligible for run in runs if run.not_eligible} == NOT_ELIGIBLE
    unhelped = " ".join(run.message for run in runs)
    assert [reason for reason in NOT_HELPED if reason not in unhelped] == []
    found = [one for run in runs for one in (run.candidates or {}).values()]
    assert sum(len(one.victims) > 2 for one in found) >= 100
    assert sum(0 < one.violations < len(one.victims) for one in found) >= 100
