"""Our engine says what kube-scheduler has said, as recorded."""

import re
from functools import lru_cache
from itertools import islice

import pytest

from e2e.control_plane import pinned
from tests.differential import wire
from tests.differential.compare import told
from tests.differential.comparison import Difference, differences
from tests.differential.manifests import digest
from tests.differential.ours import Ours
from tests.differential.table import GROUPS, scenarios
from tests.differential.wire import Oracle, Recorded


@lru_cache
def recorded(group: str) -> tuple[Oracle, tuple[Recorded, ...]]:
    return wire.read(group)


def found(group: str, most: int) -> list[Difference]:
    every = (one for scenario in recorded(group)[1] for one in differences(scenario, seen(scenario)))
    return list(islice(every, most))


def seen(scenario: Recorded) -> Ours:
    ours = Ours(scenario)
    assert not ours.problems
    return ours


@pytest.mark.parametrize("group", GROUPS)
def test_we_say_what_kube_scheduler_says(group: str) -> None:
    differing = found(group, 3)
    assert not differing, "\n".join(map(told, differing))


@pytest.mark.parametrize("group", GROUPS)
def test_what_is_recorded_is_what_would_be_asked_today(group: str) -> None:
    who, kept = recorded(group)
    asked = scenarios(group)
    assert [each.name for each in kept] == [each.name for each in asked]
    assert who.asked == digest(asked), f"python -m tests.differential.record {group}"


def test_one_kubernetes_has_answered_all_and_it_is_the_one_that_the_tests_start() -> None:
    assert {recorded(group)[0].kubernetes for group in GROUPS} == {pinned.tested_with()}
    assert {tuple(recorded(group)[0].feature_gates) for group in GROUPS} == {()}


def test_the_oracle_is_built_of_the_same_modules_as_the_servers() -> None:
    modules = [(pinned.MODULES / module / "go.mod").read_text() for module in ("kubernetes", "oracle")]
    servers, oracle = (set(re.findall(r"^\t(\S+ v\S+)", text, re.MULTILINE)) for text in modules)
    assert oracle == servers
