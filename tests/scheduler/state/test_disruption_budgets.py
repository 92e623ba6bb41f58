"""Which pods budgets protect, how many of them are read, and how often pods are held against them."""

from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from config.protocol.booked_cards import WrittenAllocation
from scheduler.kube import objects
from scheduler.kube.defaults import decoded
from scheduler.pods.pod import Pod
from scheduler.state import disruption_budgets
from scheduler.state.columns.selectors import Expressions, match
from scheduler.state.disruption_budgets import MOST_BUDGETS, MOST_REQUIREMENTS, MOST_VALUES, DisruptionBudgets
from scheduler.state.pod_record import PodRecord
from tests.support.builders import pod

NOTHING_WRITTEN = WrittenAllocation(units=0, per_card={}, uuids={}, allocation=None)
WEB = {"app": "web"}


def budget(
    name: str,
    labels: Mapping[str, str],
    allowed: int = 0,
    **status: Any,  # noqa: ANN401 - as in YAML
) -> objects.PodDisruptionBudget:
    document: dict[str, Any] = {
        "metadata": {"name": name, "namespace": "default"},
        "spec": {"selector": {"matchLabels": dict(labels)}},
        "status": {"disruptionsAllowed": allowed, **status},
    }
    return decoded(document, objects.PodDisruptionBudget)


def record(found: Pod) -> PodRecord:
    return PodRecord(pod=found, node="a", written=NOTHING_WRITTEN, exclusive=False, assumed=False)


def protected(budgets: DisruptionBudgets, *pods: Pod) -> list[str]:
    violating, _ = budgets.split(map(record, pods))
    return [found.pod.key.name for found in violating]


def numbered(count: int) -> dict[str, str]:
    return {f"k{number}": "v" for number in range(count)}


LABELS = st.sampled_from([WEB, {"app": "db"}, {}])
# What is done with a budget: it goes (None), or is about these labels and lets so many go.
STEPS = st.lists(st.tuples(st.sampled_from("abc"), st.none() | st.tuples(LABELS, st.integers(0, 2))), max_size=12)


@given(STEPS)
def test_pods_beyond_what_their_budgets_allow_are_protected_whatever_budgets_come_and_go(
    steps: list[tuple[str, tuple[dict[str, str], int] | None]],
) -> None:
    budgets, there = DisruptionBudgets(), dict[str, tuple[dict[str, str], int]]()
    pods = [pod("w0", labels=WEB), pod("d", labels={"app": "db"}), pod("w1", labels=WEB), pod("n")]
    pods.append(pod("other", labels=WEB, namespace="other"))
    for name, written in steps:
        if written is not None:
            there[name] = written
            assert not budgets.set(budget(name, *written))
        elif there.pop(name, None) is not None:
            budgets.remove("default", name)
        assert protected(budgets, *pods) == beyond(there, pods)


def beyond(budgets: Mapping[str, tuple[dict[str, str], int]], pods: list[Pod]) -> list[str]:
    """The plain reading: in this order, each pod counts for all of its budgets; an empty selector is of none."""
    left = {name: allowed for name, (_, allowed) in budgets.items()}
    found = []
    for each in pods:
        own = [name for name, (labels, _) in budgets.items() if labels and labels.items() <= each.labels.items()]
        own = own if each.key.namespace == "default" else []
        for name in own:
            left[name] -= 1
        if any(left[name] < 0 for name in own):
            found.append(each.key.name)
    return found


@pytest.mark.parametrize(
    ("written", "labels", "expected"),
    [
        pytest.param([budget("guard", WEB, allowed=2)], WEB, True, id="both may go"),
        pytest.param([budget("guard", WEB, allowed=1)], WEB, False, id="one of them may"),
        pytest.param([budget("guard", WEB, allowed=9), budget("b", WEB, allowed=9)], WEB, False, id="of two budgets"),
        pytest.param([budget("all", {})], WEB, False, id="an empty selector is of all"),
        pytest.param([budget("all", {})], {}, False, id="of those without labels, too"),
        pytest.param([budget("db", {"app": "db"}), budget("all", {}, allowed=2)], WEB, True, id="one is of others"),
    ],
)
def test_who_is_evicted(written: list[objects.PodDisruptionBudget], labels: dict[str, str], *, expected: bool) -> None:
    """As kube-apiserver does it, which differs from what a preemption goes by."""
    budgets = DisruptionBudgets()
    for one in written:
        assert not budgets.set(one)
    assert budgets.let_go([record(pod(name, labels=labels)) for name in "ab"]) == expected


def test_what_is_about_to_go_is_counted_until_it_is_spared() -> None:
    budgets, pods = DisruptionBudgets(), [pod(name, labels=WEB) for name in "abc"]
    budgets.set(budget("guard", WEB, allowed=2))
    assert protected(budgets, *pods) == ["c"]
    budgets.spend(pods[:1])
    assert protected(budgets, *pods[1:]) == ["c"]
    before = budgets.version
    budgets.spare(pods)
    assert protected(budgets, *pods[1:]) == []
    assert protected(budgets, *pods) == ["c"]
    assert budgets.version == before + 1


def test_every_change_is_one() -> None:
    budgets, versions, victims = DisruptionBudgets(), [0], [pod("p", labels=WEB)]
    for change in (
        lambda: budgets.set(budget("b", WEB)),
        lambda: budgets.spend(victims),
        lambda: budgets.spare(victims),
        lambda: budgets.remove("default", "b"),
    ):
        change()
        versions.append(budgets.version)
    assert versions == sorted(set(versions))


def test_other_labels_of_a_pod_are_seen() -> None:
    budgets = DisruptionBudgets()
    budgets.set(budget("guard", WEB))
    assert protected(budgets, pod("p", labels={"app": "db"})) == []
    assert protected(budgets, pod("p", labels=WEB)) == ["p"]


def test_the_selectors_of_a_namespace_have_a_limit_together() -> None:
    budgets, labels = DisruptionBudgets(), numbered(MOST_REQUIREMENTS // 4)
    assert [bool(budgets.set(budget(f"b-{number}", labels))) for number in range(5)] == [False] * 4 + [True]
    assert not budgets.set(budget("b-0", labels, allowed=1))
    have = f"the budgets already read in its namespace have {MOST_REQUIREMENTS} "
    assert budgets.set(budget("b-4", labels)).startswith(f"its selector has 64 requirements, and {have}")
    budgets.remove("default", "b-0")
    assert not budgets.set(budget("b-4", labels))


def test_a_budget_that_was_left_out_is_read_when_others_are_gone() -> None:
    budgets, web = DisruptionBudgets(), pod("web", labels=WEB)
    for number in range(MOST_BUDGETS):
        budgets.set(budget(f"b-{number}", {"app": "db"}))
    assert budgets.set(budget("guard", WEB))
    assert not protected(budgets, web)
    budgets.remove("default", "b-7")
    assert protected(budgets, web)
    assert budgets.set(budget("b-7", WEB))
    budgets.remove("default", "guard")
    assert protected(budgets, web)


@pytest.mark.parametrize("removed", [False, True], ids=["its selector shrinks", "it is removed"])
def test_room_for_requirements_goes_to_those_that_were_left_out(*, removed: bool) -> None:
    budgets, web = DisruptionBudgets(), pod("web", labels=WEB)
    budgets.set(budget("long", numbered(MOST_REQUIREMENTS)))
    for name, labels in (("large", numbered(MOST_REQUIREMENTS)), ("guard", WEB)):
        assert budgets.set(budget(name, labels))
    if removed:
        budgets.remove("default", "long")
    else:
        budgets.set(budget("long", numbered(3)))
    assert protected(budgets, web)
    assert budgets.set(budget("large", numbered(MOST_REQUIREMENTS), allowed=1))


def test_one_that_was_left_out_is_read_as_it_was_last() -> None:
    budgets, both = DisruptionBudgets(), [pod(f"web-{number}", labels=WEB) for number in range(2)]
    for number in range(MOST_BUDGETS):
        budgets.set(budget(f"b-{number}", {"app": "db"}))
    for allowed in (0, 1):
        budgets.set(budget("guard", WEB, allowed))
    for name in ("gone", "selects-nothing"):
        budgets.set(budget(name, WEB))
    budgets.remove("default", "gone")
    budgets.set(decoded({"metadata": {"name": "selects-nothing", "namespace": "default"}}, objects.PodDisruptionBudget))
    for number in range(MOST_BUDGETS):
        budgets.remove("default", f"b-{number}")
    assert len(protected(budgets, *both)) == 1


def test_a_selector_that_is_never_read_waits_for_no_room() -> None:
    budgets, values = DisruptionBudgets(), [f"v-{number}" for number in range(MOST_VALUES + 1)]
    listing = {"matchExpressions": [{"key": "app", "operator": "In", "values": values}]}
    document = {"metadata": {"name": "a", "namespace": "default"}, "spec": {"selector": listing}}
    problems = [
        budgets.set(budget("b", numbered(MOST_REQUIREMENTS + 1))),
        budgets.set(decoded(document, objects.PodDisruptionBudget)),
    ]
    assert problems == [
        "its selector has 257 requirements (at most 256 are read)",
        "its selector has 1025 values (at most 1024 are read)",
    ]


def test_pods_are_held_against_selectors_again_only_when_these_change(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []

    def counting(expressions: Expressions, labels: Mapping[str, str]) -> bool:
        asked.append(labels)
        return match(expressions, labels)

    monkeypatch.setattr(disruption_budgets, "match", counting)
    budgets, pods = DisruptionBudgets(), [pod(f"p-{number}", labels=WEB) for number in range(10)]
    budgets.set(budget("guard", WEB))
    for allowed in range(20):
        budgets.set(budget("guard", WEB, allowed))
        assert len(protected(budgets, *pods)) == max(0, 10 - allowed)
    assert len(asked) == len(pods)
    budgets.set(budget("guard", {"app": "db"}))
    protected(budgets, *pods)
    assert len(asked) == 2 * len(pods)
