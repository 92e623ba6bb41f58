"""The mutation run sees what it should: here a rule left out, and one operator of a small module."""

from types import ModuleType

import pytest

from scheduler.framework.plugin import Plugin
from scheduler.plugins import registry
from scheduler.plugins.node import node_affinity, node_name
from scheduler.plugins.preemption import victims, victims_by_amounts
from scheduler.plugins.preemption.victims import moment
from scheduler.state import disruption_budgets
from tests.differential import executed, unit_tests
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
    assert mutant.line == "return (Rejection(~named, REASON),)"
    with put_in(node_name, mutant):
        assert comparison.sees(("node_name",))


def test_a_loop_that_never_ends_is_stopped() -> None:
    def endless() -> None:
        while True:
            pass

    with pytest.raises(TimeoutError), executed.at_most(0.05):
        endless()


def test_which_functions_run_is_known() -> None:
    answer, ran = executed.executed(lambda: moment("2026-01-01T00:00:00Z"), [victims.__file__])
    assert (answer, ran) == (20260101000000, frozenset({(victims.__file__, "moment")}))


def test_what_a_function_has_kept_of_before_is_forgotten() -> None:
    (mutant,) = [one for one in mutants_of(victims_by_amounts) if set(one.functions) == {"_choices"}][:1]
    choices = vars(victims_by_amounts)["_choices"]
    before = choices(2).tolist()
    with put_in(victims_by_amounts, mutant):
        assert choices(2).tolist() != before
    assert choices(2).tolist() == before


@pytest.mark.parametrize("module", [victims, node_affinity], ids=lambda module: module.__name__)
def test_one_place_is_changed_at_a_time(module: ModuleType) -> None:
    functions = [set(mutant.functions) for mutant in mutants_of(module, orders=True)]
    assert [names for names in functions if len(names) != 1] == []


def test_unit_tests_see_what_the_comparison_cannot() -> None:
    few = ["scheduler/state/test_disruption_budgets.py"]
    (mutant,) = [one for one in mutants_of(disruption_budgets) if one.line == "if pod.key.name in budget.going:"][:1]
    assert not unit_tests.fail(few)
    with put_in(disruption_budgets, mutant):
        assert unit_tests.fail(few)


def test_a_mutant_is_taken_out_again() -> None:
    before = {name: code_of(node_name, name) for name in ("pre_filter", "filter", "signature")}
    for mutant in mutants_of(node_name):
        with put_in(node_name, mutant):
            pass
    assert before == {name: code_of(node_name, name) for name in before}


def code_of(module: ModuleType, method: str) -> object:
    return getattr(module.NodeName, method).__code__
