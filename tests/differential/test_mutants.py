"""The mutation run sees what it should: here a rule left out, and one operator of a small module."""

from types import ModuleType

import pytest

from scheduler.framework.plugin import Plugin
from scheduler.plugins import node_name, registry
from tests.differential.mutants import mutants_of, put_in
from tests.differential.mutations import Comparison
from tests.differential.subjects import SUBJECTS
from tests.differential.test_bite import BITING

FIRST = {subject.module: subject.first for subject in SUBJECTS}
RULES = [plugin for plugin in registry.PLUGINS if plugin.name in BITING]


@pytest.fixture(scope="module")
def comparison() -> Comparison:
    return Comparison()


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.name)
def test_a_rule_that_is_left_out_is_seen(comparison: Comparison, rule: type[Plugin]) -> None:
    assert comparison.sees(FIRST.get(rule.__module__, ()), without=rule.name)


def test_a_negation_that_is_left_out_is_seen(comparison: Comparison) -> None:
    (mutant,) = [mutant for mutant in mutants_of(node_name) if mutant.change == "~ left out"]
    assert mutant.line == "return (Objection(~named, REASON),)"
    with put_in(node_name, mutant):
        assert comparison.sees(("node_name",))


def test_a_mutant_is_taken_out_again() -> None:
    before = {name: code_of(node_name, name) for name in ("pre_filter", "filter", "signature")}
    for mutant in mutants_of(node_name):
        with put_in(node_name, mutant):
            pass
    assert before == {name: code_of(node_name, name) for name in before}


def code_of(module: ModuleType, method: str) -> object:
    return getattr(module.NodeName, method).__code__
