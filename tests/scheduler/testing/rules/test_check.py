"""The test kit: every known mistake of a rule is found and named, and rules without one pass."""

import re
from typing import Any

import pytest

from scheduler.framework.answers import PluginError
from scheduler.framework.plugin import Plugin
from scheduler.plugins import registry
from scheduler.pods.pod import Pod
from scheduler.state.changes import Change
from scheduler.state.facts.fact import NodeFact
from scheduler.testing.rules.check import RuleBroken, check_rule, keys_read
from scheduler.testing.rules.plans import GENERIC, Named, PodPlan, Setting
from scheduler.testing.rules.profiles import Company, profile_with
from scheduler.testing.rules.world import TrialWorld
from tests.scheduler.testing.rules import broken_rules as rules
from tests.scheduler.testing.rules.broken_rules import LIMIT, TEAM, changed

SHRINK_S = 0.1
# One mistake of each kind is looked for at every change; others of the same kind, which take as long, at night.
AT_NIGHT = pytest.mark.nightly
NOTHING = Named(labels={}, annotations={}, node_labels={}, node_annotations={})


def said_of(rule: type[Plugin]) -> str:
    """What the kit finds, without the rule's name."""
    with pytest.raises(RuleBroken) as broken:
        check_rule(rule, shrink_s=SHRINK_S, examples=1000)
    return str(broken.value).removeprefix(f"{rule.name}: ")


@pytest.mark.parametrize(
    ("rule", "depends", "lacks"),
    [
        pytest.param(rules.ByTeam, Change.TAINTS, "LABELS", id="LABELS", marks=AT_NIGHT),
        pytest.param(rules.Closed, Change.LABELS, "ANNOTATIONS", id="ANNOTATIONS", marks=AT_NIGHT),
        pytest.param(rules.OnePerOwner, Change.LABELS, "PODS", id="PODS"),
        pytest.param(rules.OneOwnerPerZone, Change.PODS, "DOMAINS", id="DOMAINS", marks=AT_NIGHT),
        pytest.param(rules.CardsClosed, Change.CARDS, "ANNOTATIONS", id="card filter", marks=AT_NIGHT),
    ],
)
def test_what_depends_lacks_is_named(rule: type[Plugin], depends: Change, lacks: str) -> None:
    assert said_of(changed(rule, depends=depends)).startswith(f"`depends` lacks {lacks}: ")


@pytest.mark.parametrize(
    ("rule", "lacks"),
    [
        pytest.param(rules.ByTeam, f"annotation {TEAM}", id="annotation"),
        pytest.param(rules.OnePerOwner, "owner_uid", id="owner", marks=AT_NIGHT),
    ],
)
def test_what_a_signature_lacks_is_named(rule: type[Plugin], lacks: str) -> None:
    assert said_of(changed(rule, signature=lambda *_: None)).startswith(f"`signature` lacks {lacks}: ")


@pytest.mark.parametrize(
    ("rule", "fact"),
    [
        pytest.param(rules.OnePerOwner, rules.OnlyAdds, id="book without sign"),
        pytest.param(rules.OnePerOwner, rules.Stashing, id="owner that changed", marks=AT_NIGHT),
        pytest.param(rules.Closed, rules.GhostLimits, id="ghost of a node", marks=AT_NIGHT),
    ],
)
def test_a_fact_that_counts_wrongly_is_named(rule: type[Plugin], fact: type[NodeFact[Any]]) -> None:
    assert said_of(changed(rule, fact=fact)).startswith(f"the Fact {fact.__name__} counts wrongly: ")


@pytest.mark.parametrize(
    ("rule", "cause"),
    [
        pytest.param(rules.KeepsItself, "it stores data about pods or nodes itself", id="attribute of the rule"),
        pytest.param(rules.PreFilterOfNodes, "`pre_filter` looks at nodes; ", id="pre_filter"),
        pytest.param(rules.Raises, "it raises ValueError: invalid literal for int()", id="raises"),
    ],
)
def test_a_mistake_of_another_kind_is_found_and_named(rule: type[Plugin], cause: str) -> None:
    assert said_of(rule).startswith(cause)


@pytest.mark.parametrize(
    ("rule", "message"),
    [
        pytest.param(rules.WrongDtype, "plugin WrongDtype: the scores: expected int64", id="dtype"),
        pytest.param(rules.SometimesWrong, "plugin SometimesWrong: the rejection 'wrong': expected", id="sometimes"),
    ],
)
def test_an_answer_of_another_form_is_let_through(rule: type[Plugin], message: str) -> None:
    with pytest.raises(PluginError, match=re.escape(message)):
        check_rule(rule, shrink_s=SHRINK_S)


@pytest.mark.parametrize("rule", rules.SOUND, ids=lambda rule: rule.name)
def test_a_rule_without_a_mistake_passes(rule: type[Plugin]) -> None:
    check_rule(rule, examples=15)


@pytest.mark.parametrize("examples", [12, pytest.param(300, marks=AT_NIGHT)])
@pytest.mark.parametrize("rule", registry.PLUGINS, ids=lambda rule: rule.name)
def test_every_rule_of_the_registry_passes(rule: type[Plugin], examples: int) -> None:
    check_rule(rule, examples=examples)


def test_the_history_is_small_and_told_in_sentences() -> None:
    with pytest.raises(RuleBroken) as broken:
        check_rule(changed(rules.OnePerOwner, depends=Change.LABELS), shrink_s=SHRINK_S)
    lines = str(broken.value).splitlines()
    assert lines[2] == "The smallest history found, with Broken alone, alongside GpuShare and UnsupportedRules:"
    assert [bool(re.match(rf"  {number}\. (node|pod) ..? ", line)) for number, line in enumerate(lines[3:6], 1)] == [
        True,
        True,
        False,
    ]
    assert lines[-1] == "seed=0 reproduces this history."


def test_equal_values_of_two_rules_are_two_signatures() -> None:
    """A pod with the annotation only and one with the label only: the same values, in another order."""
    by_label = changed(rules.ByTeam, signature=lambda _, pod, _tables: pod.labels.get(TEAM))
    profile, other = (profile_with(rule, None, Company.ALONE) for rule in (rules.ByTeam, by_label))
    both = type(profile)(pre_filter=profile.pre_filter, filter=(*profile.filter, *other.filter))
    world = TrialWorld(both)
    annotated, labelled = (_pod(world, field) for field in ("annotations", "labels"))
    assert world.runtime.signature(annotated) != world.runtime.signature(labelled)


def _pod(world: TrialWorld, field: str) -> Pod:
    return world.reader.read(Setting(field, TEAM, "a").on(PodPlan()).wire("p", "uid-p"))


@pytest.mark.parametrize(
    ("rule", "read"),
    [
        pytest.param(rules.ByTeam, {"annotations": TEAM, "node_labels": TEAM}, id="column of labels"),
        pytest.param(rules.Closed, {"node_annotations": LIMIT}, id="annotations of nodes"),
        pytest.param(rules.OneWebPerCard, {"labels": "app"}, id="labels of pods"),
        pytest.param(rules.Raises, {"annotations": LIMIT}, id="a rule that raises"),
        pytest.param(rules.OnePerOwner, {}, id="none"),
    ],
)
def test_the_keys_that_a_rule_reads_are_found(rule: type[Plugin], read: dict[str, str]) -> None:
    found = keys_read(rule, rule.Args(), NOTHING, [], [])
    keys = {name: dict(getattr(found, name)) for name in ("labels", "annotations", "node_labels", "node_annotations")}
    assert {name: values for name, values in keys.items() if values} == {
        name: {key: GENERIC} for name, key in read.items()
    }


def test_a_key_that_no_rule_asks_for_varies_when_it_is_named() -> None:
    check_rule(rules.ByPrefix, examples=15)
    with pytest.raises(RuleBroken, match=r"`signature` lacks annotation example\.com/team"):
        check_rule(rules.ByPrefix, annotations={TEAM: ["red"]}, shrink_s=10 * SHRINK_S)


def test_manifests_of_the_user_take_part() -> None:
    check_rule(rules.OnlyOdd, examples=15)
    manifest = {"metadata": {"name": "odd"}, "spec": {"containers": [], "overhead": {"cpu": "7"}}}
    with pytest.raises(RuleBroken, match="it raises RuntimeError: an odd pod"):
        check_rule(rules.OnlyOdd, pods=[manifest], shrink_s=SHRINK_S)


def test_arguments_are_validated_as_in_a_configuration() -> None:
    with pytest.raises(ValueError, match="moist"):
        check_rule(rules.OnePerOwner, {"moist": 1})
