"""`check_rule` tests one rule with random histories.

Also detects the labels and annotations that a rule reads, by one run over objects that record reads. A key that the
rule looks up is found. A key that it finds by iterating over all of them is not: its user must name it.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, Final, TypeVar, cast, overload

import msgspec

from scheduler.framework.answers import PluginError
from scheduler.framework.plugin import Plugin, PluginArgs
from scheduler.framework.profile import Profile
from scheduler.kube import objects
from scheduler.pods.pod import Pod, Template
from scheduler.state.columns.labels import LabelColumn, Labels
from scheduler.testing.rules.history import answer
from scheduler.testing.rules.plans import GENERIC, Named, Setting, Values, as_objects, choices
from scheduler.testing.rules.profiles import Company, RuleBroken, args_of, profile_with
from scheduler.testing.rules.steps import PodIs, PodIsBound, SetNode, Step
from scheduler.testing.rules.world import LivePod, TrialWorld

DefaultT = TypeVar("DefaultT")
ValueT = TypeVar("ValueT", Pod, Template)


@dataclass(slots=True)
class Seen:
    """The keys that were read."""

    labels: set[str] = field(default_factory=set)
    annotations: set[str] = field(default_factory=set)
    node_labels: set[str] = field(default_factory=set)
    node_annotations: set[str] = field(default_factory=set)
    fields: set[str] = field(default_factory=set)

    def less(self, other: "Seen", known: Named) -> Named:
        """Return the keys that `other` lacks, with the generic values, and the known keys with their own values."""

        def named(mine: set[str], theirs: set[str], given: Mapping[str, Sequence[str]]) -> dict[str, Sequence[str]]:
            return dict.fromkeys(sorted(mine - theirs), GENERIC) | dict(given)

        return Named(
            labels=named(self.labels, other.labels, known.labels),
            annotations=named(self.annotations, other.annotations, known.annotations),
            node_labels=named(self.node_labels, other.node_labels, known.node_labels),
            node_annotations=named(self.node_annotations, other.node_annotations, known.node_annotations),
            fields=known.fields | (self.fields - other.fields),
        )


class _Noting(dict[str, str]):
    """Mapping that records which keys are read."""

    def __init__(self, texts: Mapping[str, str], seen: set[str]) -> None:
        """seen: receives the keys."""
        super().__init__(texts)
        self._seen = seen

    def __getitem__(self, key: str) -> str:
        self._seen.add(key)
        return super().__getitem__(key)

    def __contains__(self, key: object) -> bool:
        if isinstance(key, str):
            self._seen.add(key)
        return super().__contains__(key)

    @overload
    def get(self, key: str, default: None = None, /) -> str | None: ...

    @overload
    def get(self, key: str, default: str, /) -> str: ...

    @overload
    def get(self, key: str, default: DefaultT, /) -> str | DefaultT: ...

    def get(self, key: str, default: object = None, /) -> object:
        """Return the value and record the key."""
        self._seen.add(key)
        return super().get(key, default)


class NotingLabels(Labels):
    """Labels of nodes that record the keys of requested columns."""

    def __init__(self, seen: set[str]) -> None:
        """seen: receives the keys."""
        super().__init__()
        self._seen = seen

    def column(self, key: str) -> LabelColumn:
        """Return the column and record the key."""
        self._seen.add(key)
        return super().column(key)


def noting(value: ValueT, seen: set[str]) -> ValueT:
    """Return a copy that records the fields that are read."""

    def read(self: ValueT, name: str) -> object:
        seen.add(name)
        return object.__getattribute__(self, name)

    kind = type(value)
    noting_kind: Any = type(kind.__name__, (kind,), {"__getattribute__": read})
    return cast("ValueT", noting_kind(**msgspec.structs.asdict(value)))


class _NotingWorld(TrialWorld):
    """A world whose objects record which of their fields, labels and annotations are read."""

    def __init__(self, profile: Profile) -> None:
        super().__init__(profile)
        self.seen = Seen()
        self._templates: dict[Template, Template] = {}
        self.tables.labels = NotingLabels(self.seen.node_labels)

    def pod(self, live: LivePod, *, waiting: bool = False) -> Pod:
        """Return the pod; it records which of its fields are read."""
        pod = super().pod(live, waiting=waiting)
        template = self._templates.get(pod.template)
        if template is None:
            template = self._templates[pod.template] = noting(pod.template, self.seen.fields)
        labels, annotations = _Noting(pod.labels, self.seen.labels), _Noting(pod.annotations, self.seen.annotations)
        pod = msgspec.structs.replace(pod, template=template, labels=labels, annotations=annotations)
        return noting(pod, self.seen.fields)

    def node(self, name: str) -> objects.Node:
        """Return the node; it records which of its fields are read."""
        node = super().node(name)
        labels = _Noting(node.metadata.labels or {}, self.seen.node_labels)
        annotations = _Noting(node.metadata.annotations or {}, self.seen.node_annotations)
        meta = msgspec.structs.replace(node.metadata, labels=labels, annotations=annotations)
        return msgspec.structs.replace(node, metadata=meta)


def keys_read(
    rule: type[Plugin],
    args: PluginArgs,
    named: Named,
    nodes: Sequence[objects.Node],
    pods: Sequence[objects.PodObject],
) -> Named:
    """Return `named` and the other keys that the rule reads. Raises PluginError.

    Reads may depend on values: the rule runs once without values, then once with each of the generic ones.
    """
    for attempt in range(len(GENERIC)):
        told = [*_steps(named, attempt)]
        told += [SetNode(f"own{n}", (Setting("like", "", node),)) for n, node in enumerate(nodes)]
        told += [PodIs(f"own{n}", (Setting("like", "", pod),)) for n, pod in enumerate(pods)]
        seen = _seen(profile_with(rule, args, Company.ALONE), told)
        named = seen.less(_seen(profile_with(None, None, Company.ALONE), told), named)
    return named


def _seen(profile: Profile, steps: Sequence[Step]) -> Seen:
    world = _NotingWorld(profile)
    try:
        for step in steps:
            step.happen(world)
            world.settle()
            for live in world.pods.values():
                answer(world.runtime, world.pod(live, waiting=True))
    except PluginError:
        raise
    except Exception:  # noqa: BLE001 - a history will show it, with what leads to it
        return world.seen
    return world.seen


def _steps(named: Named, attempt: int) -> Iterator[Step]:
    def texts(name: str, values: Mapping[str, Sequence[str]]) -> tuple[Setting, ...]:
        return tuple(Setting(name, key, of[attempt % len(of)]) for key, of in values.items() if of and attempt)

    of_pod = (*texts("labels", named.labels), *texts("annotations", named.annotations), Setting("owner", "", "o1"))
    of_node = (*texts("labels", named.node_labels), *texts("annotations", named.node_annotations))
    selects, wants_port = Setting("selects", "", "a"), Setting("host_port", "", 8080)
    yield SetNode("n1", of_node)
    yield PodIsBound("p1", "n1", 0, of_pod)
    yield PodIs("p2", of_pod)
    yield PodIs("p3", (*of_pod, selects, wants_port, Setting("gpu_mem", "", 0)))
    yield PodIs("p4", (*of_pod, Setting("gpu_mem", "", 4), Setting("gpu_count", "", 2)))
    yield SetNode("n2", (*of_node, Setting("labels", "zone", "a")))


try:
    from scheduler.testing.rules.search import search
except ImportError as error:
    if error.name != "hypothesis":
        raise
    needed = "scheduler.testing.rules needs hypothesis: pip install 'gpushare-scheduler[testing]'"
    raise ImportError(needed, name="hypothesis") from error


__all__ = ["RuleBroken", "check_rule"]
_NONE: Final[Values] = MappingProxyType({})


def check_rule(
    rule: type[Plugin],
    args: PluginArgs | Mapping[str, Any] | None = None,
    *,
    pods: Sequence[objects.PodObject | Mapping[str, Any]] = (),
    nodes: Sequence[objects.Node | Mapping[str, Any]] = (),
    labels: Values = _NONE,
    annotations: Values = _NONE,
    node_labels: Values = _NONE,
    node_annotations: Values = _NONE,
    steps: int = 40,
    examples: int = 300,
    seed: int = 0,
    shrink_s: float = 30.0,
) -> None:
    """Test a rule. Raises RuleBroken with the smallest history in which its answer differs from a fresh evaluation.

    args: as in `pluginConfig`, or an instance of `rule.Args`. pods, nodes: manifests that histories use in addition to
    the kit's own. labels, annotations: key -> values for pods; node_…: for nodes; other keys that the rule reads are
    detected, and get values such as "1", "a" and "". steps: maximum per history. examples: number of histories. seed:
    the same seed tries the same histories. shrink_s: maximum time to search for a smaller failing history.
    Raises PluginError for an answer of a wrong shape or type.
    """
    given = args_of(rule, args)
    named = Named(labels=labels, annotations=annotations, node_labels=node_labels, node_annotations=node_annotations)
    own_nodes, own_pods = as_objects(objects.Node, nodes), as_objects(objects.PodObject, pods)
    named = keys_read(rule, given, named, own_nodes, own_pods)
    search(
        rule, given, choices(named, own_nodes, own_pods), steps=steps, examples=examples, seed=seed, shrink_s=shrink_s
    )
