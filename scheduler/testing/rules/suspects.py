"""Finds a rule's wrong declaration: runs the history again with one declaration corrected at a time."""

from collections.abc import Callable, Hashable, Iterator, Mapping
from functools import partial
from typing import Any, Final

from scheduler.framework.cycle_state import CycleState
from scheduler.framework.plugin import CardFilterPlugin, CardScorePlugin, Plugin, PluginArgs
from scheduler.pods.pod import Pod
from scheduler.state.changes import Change
from scheduler.state.facts.fact import Fact
from scheduler.state.tables import Tables
from scheduler.testing.rules.history import Failure, FailureKind, History, answer, fresh_runtime, probes, run
from scheduler.testing.rules.plans import PodPlan, Setting, with_settings
from scheduler.testing.rules.profiles import Company, profile_with
from scheduler.testing.rules.steps import PodIs, PodIsBound
from scheduler.testing.rules.world import RESOURCES

# Least likely first: a broader declaration may explain the effect of a narrower one.
_CHANGES: Final[Mapping[Change, str]] = {
    Change.DOMAINS: "other nodes, or the pods there",
    Change.COMPANY: "the pods that are placed on it",
    Change.CARDS: "the GPU memory in use on it",
    Change.PORTS: "the host ports in use on it",
    Change.PODS: "the pods on it",
    Change.INVENTORY: "its cards",
    Change.ALLOCATABLE: "its allocatable resources",
    Change.IMAGES: "its images",
    Change.FEATURES: "the features that it declares",
    Change.ANNOTATIONS: "its annotations",
    Change.UNSCHEDULABLE: "its cordon",
    Change.TAINTS: "its taints",
    Change.LABELS: "its labels",
}
_OF_CARDS: Final = (CardFilterPlugin, CardScorePlugin)
_UNSIGNED: Final = "`signature` lacks something: two pods share one, but the rule distinguishes them"
Retold = Callable[[type[Plugin]], bool]


def suspect(rule: type[Plugin], args: PluginArgs, history: History, failure: Failure, company: Company) -> str:
    """Return one sentence for the author of the rule."""

    def heals(mended: type[Plugin]) -> bool:
        again = run(history, profile_with(mended, args, company))
        return again is None or again.step > failure.step

    match failure.kind:
        case FailureKind.RAISED:
            return f"it raises {type(failure.error).__name__}: {failure.error}"
        case FailureKind.RESTLESS:
            return "the engine does not settle: pods are woken for nodes that the rule then rejects"
        case FailureKind.TABLES:
            return "the tables are wrong"
        case FailureKind.ANSWER if not _stale(failure):
            return _of_the_past(failure)
    # A finer signature also hides a stale answer, so the signature is to blame only if pods collide.
    if failure.kind is FailureKind.ANSWER and _collides(history, failure):
        return _signature(rule, history, heals) or _UNSIGNED
    found = _depends(rule, failure, heals)
    if not found and failure.kind is FailureKind.WAITING:
        found = _signature(rule, history, heals)
    return found or _pre_filter(rule, failure)


def _stale(failure: Failure) -> bool:
    """Return whether a fresh evaluation over the live tables differs from the cached one."""
    return failure.pod is not None and answer(fresh_runtime(failure.world.runtime), failure.pod) != failure.kept


# signature


def _collides(history: History, failure: Failure) -> bool:
    """Return whether another pod of the history has the same signature but another fresh answer."""
    world, pod = failure.world, failure.pod
    if pod is None:
        return False
    fresh, signature = world.fresh(), world.runtime.signature(pod)
    others = [*probes(history, world), *(world.pod(live, waiting=True) for live in world.pods.values())]
    for step in history.steps:
        if isinstance(step, PodIs | PodIsBound):
            plan = with_settings(PodPlan(), step.settings)
            others.append(world.reader.read(plan.wire(step.name, f"uid-{step.name}")))
    return any(
        world.runtime.signature(other) == signature and answer(fresh_runtime(fresh), other) != failure.fresh
        for other in others
    )


def _signature(rule: type[Plugin], history: History, heals: Retold) -> str:
    fields = dict(_fields(history))
    for name, of_pod in fields.items():
        if heals(_signing(rule, (of_pod,))):
            return (
                f"`signature` lacks {name}: two pods that differ in it share a signature, "
                "but the rule distinguishes them"
            )
    if heals(_signing(rule, tuple(fields.values()))):
        return "`signature` lacks several fields: two pods share one, but the rule distinguishes them"
    return ""


def _fields(history: History) -> Iterator[tuple[str, Callable[[Pod], Hashable]]]:
    """Yield (name, reader) of each field of a pod that a rule may read beyond its Template."""
    for setting in dict.fromkeys(_pod_settings(history)):
        if setting.field == "annotations":
            yield f"annotation {setting.key}", partial(_annotation, setting.key)
        elif setting.field == "labels":
            yield f"label {setting.key}", partial(_label, setting.key)
    yield "owner_uid", lambda pod: pod.owner_uid
    yield "namespace", lambda pod: pod.key.namespace
    yield "priority", lambda pod: pod.priority
    yield "name", lambda pod: pod.key


def _pod_settings(history: History) -> Iterator[Setting]:
    for step in history.steps:
        if isinstance(step, PodIs | PodIsBound):
            yield from step.settings
    for probe in history.probes:
        yield from probe


def _annotation(key: str, pod: Pod) -> str | None:
    return pod.annotations.get(key)


def _label(key: str, pod: Pod) -> str | None:
    return pod.labels.get(key)


def _signing(rule: type[Plugin], fields: tuple[Callable[[Pod], Hashable], ...]) -> type[Plugin]:
    """Return the rule with more fields in its signature."""

    def signature(self: Plugin, pod: Pod, tables: Tables) -> Hashable:
        return (rule.signature(self, pod, tables), *(of_pod(pod) for of_pod in fields))

    return _mended(rule, signature=signature)


# depends


def _depends(rule: type[Plugin], failure: Failure, heals: Retold) -> str:
    lacks = [change for change in _CHANGES if not rule.depends & change]
    if issubclass(rule, _OF_CARDS):
        # A rule about cards must not read other nodes.
        lacks = sorted(
            set(lacks) - {Change.DOMAINS}, key=lambda change: (change is not Change.PODS, lacks.index(change))
        )
    if not lacks or not heals(_depending(rule, lacks)):
        return ""
    for change in tuple(lacks):
        fewer = [other for other in lacks if other is not change]
        if fewer and heals(_depending(rule, fewer)):
            lacks = fewer
    flags = ", ".join(str(change.name) for change in lacks)
    about = " and ".join(_CHANGES[change] for change in lacks)
    if failure.kind is FailureKind.WAITING:
        return f"`depends` lacks {flags}: a waiting pod is not woken when a node changes in {about}"
    node = failure.kept.node_that_differs(failure.fresh)
    return f"`depends` lacks {flags}: the answer for {f'node {node}' if node else 'a node'} changed with {about}"


def _depending(rule: type[Plugin], more: list[Change]) -> type[Plugin]:
    depends = rule.depends
    for change in more:
        depends |= change
    return _mended(rule, depends=depends)


def _mended(rule: type[Plugin], **attributes: Any) -> type[Plugin]:  # noqa: ANN401 - as the class has them
    return type(rule.__name__, (rule,), {"__doc__": rule.__doc__, "__module__": rule.__module__, **attributes})


# The rest


def _pre_filter(rule: type[Plugin], failure: Failure) -> str:
    world, pod = failure.world, failure.pod
    plugin = next((plugin for plugin in world.profile.pre_filter if isinstance(plugin, rule)), None)
    if plugin is None or pod is None:
        return "it stores data about pods or nodes itself, or `scores` reads more of a pod than its Template"
    from_nothing = plugin.pre_filter(pod, Tables(RESOURCES), CycleState())
    if from_nothing != plugin.pre_filter(pod, world.tables, CycleState()):
        return "`pre_filter` looks at nodes; its answer may depend on the pod's Template and `signature` only"
    return "what `pre_filter` writes into the CycleState depends on nodes; it may depend on the pod only"


def _of_the_past(failure: Failure) -> str:
    """Explain why a new evaluation over the live tables differs from one over fresh tables."""
    fact = _wrong_fact(failure)
    if fact is not None:
        return (
            f"the Fact {fact.__name__} counts wrongly: rebuilt from the same objects, it gives another result; "
            "`book` with sign -1 must undo what sign 1 did, using only what `read` returned"
        )
    return "it stores data about pods or nodes itself, outside its Facts"


def _wrong_fact(failure: Failure) -> type[Fact] | None:
    """Return the kind of fact that gives the right answer after it is rebuilt. Do not use the world afterwards."""
    if failure.pod is None:
        return None
    tables = failure.world.tables
    known = tables._facts.made  # noqa: SLF001 - facts are forgotten nowhere else
    for kind, arguments in tuple(known):
        del known[kind, arguments]
        tables.fact(kind, *arguments)
        if answer(fresh_runtime(failure.world.runtime), failure.pod) == failure.fresh:
            return kind
    return None
