"""Searches for a history in which a rule fails, and for the smallest one. hypothesis draws and shrinks."""

import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final, TypeAlias

import hypothesis
from hypothesis import HealthCheck, Phase, Verbosity
from hypothesis import strategies as st

from scheduler.framework.answers import PluginError
from scheduler.framework.plugin import Plugin, PluginArgs
from scheduler.testing.rules.history import Failure, History, reduced, run
from scheduler.testing.rules.plans import Choices, Setting
from scheduler.testing.rules.profiles import Company, RuleBroken, message, profile_with
from scheduler.testing.rules.steps import (
    CHANGEABLE,
    NamespaceIs,
    NextBindIsRefused,
    PodGoes,
    PodIs,
    PodIsBound,
    RemoveNode,
    SetNode,
    Step,
)
from scheduler.testing.rules.suspects import suspect

# The first ones are drawn more often: a pod that waits for the only node reveals more than one with a choice.
_NODES: Final = ("n1", "n2", "n1", "n1", "n3")
_PODS: Final = ("p1", "p2", "p1", "p3", "p4")
_CHUNKS: Final = 4
Settings: TypeAlias = tuple[Setting, ...]
Own: TypeAlias = Mapping[tuple[str, str], Sequence[Any]]


@dataclass(frozen=True, slots=True)
class Which:
    """One of the two values that a history uses for each of its keys. With only two, settings often coincide."""

    number: int


Pair: TypeAlias = Mapping[tuple[str, str], tuple[Any, Any]]


def histories(choices: Choices, steps: int) -> st.SearchStrategy[History]:
    """Draw nodes, then at most `steps` steps, in chunks: a single list would usually be short."""
    chunk = st.lists(_steps(choices), max_size=max(1, steps // _CHUNKS))
    first = st.lists(st.builds(SetNode, st.sampled_from(_NODES), _of_nodes(choices)), min_size=1, max_size=2)
    told = st.tuples(first, *[chunk] * _CHUNKS, st.one_of(st.just(()), _opening(choices))).map(
        lambda chunks: tuple(step for part in chunks for step in part)
    )
    probes = st.lists(_settings(choices.own_of_pods, choices.of_pods), max_size=3).map(tuple)
    return st.builds(_history, told, probes, _pairs(choices.own_of_nodes), _pairs(choices.own_of_pods))


def _steps(choices: Choices) -> st.SearchStrategy[Step]:
    node, pod = st.sampled_from(_NODES), st.sampled_from(_PODS)
    of_pod = _settings(choices.own_of_pods, choices.of_pods)
    changeable = tuple(setting for setting in choices.of_pods if setting.field in CHANGEABLE)
    own_of_node = _settings(choices.own_of_nodes, ()) if choices.own_of_nodes else _of_nodes(choices)
    return st.one_of(
        st.builds(SetNode, node, _of_nodes(choices)),
        st.builds(SetNode, node, own_of_node),
        st.builds(SetNode, node, own_of_node),
        st.builds(PodIs, pod, of_pod),
        st.builds(PodIs, pod, of_pod),
        st.builds(PodIs, pod, _settings(choices.own_of_pods, changeable)),
        st.builds(PodIsBound, pod, node, st.sampled_from([0, 1, None]), of_pod),
        st.builds(PodGoes, pod),
        st.builds(RemoveNode, node),
        st.builds(NamespaceIs, st.sampled_from(["default", "team"]), st.sampled_from(["red", "blue"])),
        st.builds(NextBindIsRefused),
    )


def _opening(choices: Choices) -> st.SearchStrategy[tuple[Step, ...]]:
    """Draw a first part that is rare by chance: the only node changes, a pod arrives, and the node changes again."""
    of_node = _of_nodes(choices)
    if choices.own_of_nodes:
        of_node = st.one_of(_settings(choices.own_of_nodes, (), least=1), of_node)
    node = st.builds(SetNode, st.just("n1"), of_node)
    of_pod = st.one_of(st.just(()), _settings(choices.own_of_pods, choices.of_pods))
    pod = st.builds(PodIs, st.just("p5"), of_pod)
    return st.tuples(node, st.just(RemoveNode("n2")), st.just(RemoveNode("n3")), pod, node)


def _of_nodes(choices: Choices) -> st.SearchStrategy[Settings]:
    return _settings(choices.own_of_nodes, choices.of_nodes)


def _settings(own: Own, others: Settings, least: int = 0) -> st.SearchStrategy[Settings]:
    """Draw at most two settings, half of them from the rule's own keys."""
    of_own = tuple(Setting(field, key, which) for field, key in own for which in (Which(0), None, Which(1)))
    one = st.one_of(*(st.sampled_from(settings) for settings in (of_own, others) if settings))
    return st.lists(one, min_size=least, max_size=2).map(tuple)


def _pairs(own: Own) -> st.SearchStrategy[Pair]:
    def one(values: Sequence[Any]) -> st.SearchStrategy[Any]:
        return st.sampled_from((*values[:2], *values))

    return st.fixed_dictionaries({key: st.tuples(one(values), one(values)) for key, values in own.items()})


def _history(steps: Sequence[Step], probes: Sequence[Settings], of_nodes: Pair, of_pods: Pair) -> History:
    told = (_said(step, of_nodes if isinstance(step, SetNode) else of_pods) for step in steps)
    return History(tuple(told), tuple(_chosen(settings, of_pods) for settings in probes))


def _said(step: Step, pairs: Pair) -> Step:
    if isinstance(step, SetNode | PodIs | PodIsBound):
        return replace(step, settings=_chosen(step.settings, pairs))
    return step


def _chosen(settings: Settings, pairs: Pair) -> Settings:
    def chosen(setting: Setting) -> Setting:
        if not isinstance(setting.value, Which):
            return setting
        return replace(setting, value=pairs[setting.field, setting.key][setting.value.number])

    return tuple(map(chosen, settings))


_REDUCING_S: Final = 5.0


class _TimeIsOver(BaseException):
    """The time for shrinking is over. A BaseException, because hypothesis lets it pass and so stops shrinking."""


@dataclass(slots=True)
class Best:
    """The smallest failing history so far. until_s: end of the search for a smaller one."""

    history: History = field(default_factory=lambda: History(()))
    failure: Failure | None = None
    company: Company = Company.ALONE
    until_s: float = 0.0

    @property
    def size(self) -> tuple[int, int]:
        """Sort key: smaller is better."""
        if self.failure is None:
            return (sys.maxsize, 0)
        settings = [setting for probe in self.history.probes for setting in probe]
        return (len(self.failure.log), sum(map(len, map(str, self.failure.log))) + 10 * len(settings))


def search(
    rule: type[Plugin], args: PluginArgs, choices: Choices, *, steps: int, examples: int, seed: int, shrink_s: float
) -> None:
    """Search for a failure. Raises RuleBroken or PluginError; see check_rule."""
    best = Best()

    @hypothesis.seed(seed)
    @hypothesis.settings(
        max_examples=examples,
        database=None,
        deadline=None,
        derandomize=False,
        phases=(Phase.generate, Phase.shrink),
        report_multiple_bugs=False,
        suppress_health_check=list(HealthCheck),
        verbosity=Verbosity.quiet,
    )
    @hypothesis.given(histories(choices, steps))
    def holds(history: History) -> None:
        if best.failure is not None and time.monotonic() > best.until_s:
            raise _TimeIsOver
        for company in Company if best.failure is None else (best.company,):
            failure = run(history, profile_with(rule, args, company))
            if failure is not None:
                _keep(best, history, failure, company, time.monotonic() + shrink_s)
                raise RuleBroken

    try:
        holds()
    except (_TimeIsOver, Exception):
        if best.failure is None:
            raise
    if best.failure is not None:
        raise _error(rule, args, best, _reduce(rule, args, best, best.failure), seed)


def _keep(best: Best, history: History, failure: Failure, company: Company, until_s: float) -> None:
    best.until_s = best.until_s or until_s
    if Best(history, failure).size <= best.size:
        best.history, best.failure, best.company = history, failure, company


def _reduce(rule: type[Plugin], args: PluginArgs, best: Best, failure: Failure) -> Failure:
    """Drop unnecessary parts: hypothesis gives up after a number of unsuccessful tries."""
    until_s = time.monotonic() + _REDUCING_S
    kind = failure.kind

    def fails(history: History) -> bool:
        nonlocal failure
        if time.monotonic() > until_s:
            return False
        found = run(history, profile_with(rule, args, best.company))
        failure = found if found is not None and found.kind is kind else failure
        return found is not None and found.kind is kind

    best.history = reduced(History(best.history.steps[: failure.step], best.history.probes), fails)
    return failure


def _error(rule: type[Plugin], args: PluginArgs, best: Best, failure: Failure, seed: int) -> Exception:
    cause = suspect(rule, args, best.history, failure, best.company)
    text = message(rule, failure, best.company, cause, seed)
    if isinstance(failure.error, PluginError):
        failure.error.add_note(text)
        return failure.error
    broken = RuleBroken(text)
    broken.__cause__ = failure.error
    return broken
