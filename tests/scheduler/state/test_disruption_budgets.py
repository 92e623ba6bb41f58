"""Whom PodDisruptionBudgets protect, and how many of them are read."""

from typing import Any, Final

import msgspec
import pytest

from scheduler.kube.objects import PodDisruptionBudget
from scheduler.state.disruption_budgets import MOST_BUDGETS, MOST_REQUIREMENTS, DisruptionBudgets
from scheduler.state.pod_record import PodRecord
from tests.support.builders import bound, cluster, pod

WEB: Final = {"matchLabels": {"app": "web"}}


def budget(name: str = "b", selector: dict[str, Any] = WEB, allowed: int = 0, **status: Any) -> PodDisruptionBudget:  # noqa: ANN401 - as in YAML
    manifest = {
        "metadata": {"name": name, "namespace": "default"},
        "spec": {"selector": selector},
        "status": {"disruptionsAllowed": allowed, **status},
    }
    return msgspec.convert(manifest, PodDisruptionBudget)


def pods(*names: str, **options: Any) -> list[PodRecord]:  # noqa: ANN401 - as `pod`
    """On record, in this order; with the label `app=web`."""
    tables = cluster(a=[])
    for name in names:
        tables.add(bound(pod(name, labels={"app": "web"}, **options), "a"))
    return [record for name in names for record in tables.records_on("a") if record.pod.key.name == name]


def protected(budgets: DisruptionBudgets, records: list[PodRecord]) -> list[str]:
    violating, others = budgets.split(records)
    assert len(violating) + len(others) == len(records)
    return [record.pod.key.name for record in violating]


@pytest.mark.parametrize(
    ("written", "expected"),
    [
        pytest.param(budget(), ["a", "b", "c"], id="none may go"),
        pytest.param(budget(allowed=1), ["b", "c"], id="the first may go"),
        pytest.param(budget(disruptedPods={"a": "2026-01-01T00:00:00Z"}), ["b", "c"], id="one is counted already"),
        pytest.param(budget(selector={"matchLabels": {"app": "db"}}), [], id="it is about others"),
        pytest.param(budget(selector={}), [], id="an empty selector matches nothing"),
    ],
)
def test_so_many_may_go_as_a_budget_allows(written: PodDisruptionBudget, expected: list[str]) -> None:
    budgets = DisruptionBudgets()
    assert not budgets.set(written)
    assert protected(budgets, pods("a", "b", "c")) == expected


def test_each_of_several_budgets_counts_and_pods_of_other_namespaces_are_not_theirs() -> None:
    budgets = DisruptionBudgets()
    budgets.set(budget("generous", allowed=3))
    budgets.set(budget("strict", allowed=1))
    assert protected(budgets, pods("a", "b")) == ["b"]
    assert protected(budgets, pods("a", "b", namespace="other")) == []
    budgets.remove("default", "strict")
    assert protected(budgets, pods("a", "b")) == []


def test_the_first_budgets_of_a_namespace_are_read_and_selectors_up_to_a_size() -> None:
    budgets = DisruptionBudgets()
    long = {"matchLabels": {f"k{number}": "v" for number in range(MOST_REQUIREMENTS + 1)}}
    assert "requirements" in budgets.set(budget("long", long))
    long["matchLabels"].popitem()
    assert [budgets.set(budget(f"b{number}", long)) for number in range(MOST_BUDGETS)] == [""] * MOST_BUDGETS
    assert "more than" in budgets.set(budget("one-more"))
    assert not budgets.set(budget("b0"))
    assert protected(budgets, pods("a")) == ["a"]


def test_every_change_is_one() -> None:
    budgets, versions = DisruptionBudgets(), [0]
    for change in (lambda: budgets.set(budget()), lambda: budgets.remove("default", "b")):
        change()
        versions.append(budgets.version)
    assert versions == sorted(set(versions))
