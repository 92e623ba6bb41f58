"""`check_rule`: one rule through random histories."""

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any, Final

try:
    from scheduler.testing.rules.search import search
except ImportError as error:
    if error.name != "hypothesis":
        raise
    needed = "scheduler.testing.rules needs hypothesis: pip install 'gpushare-scheduler[testing]'"
    raise ImportError(needed, name="hypothesis") from error

from scheduler.framework.plugin import Plugin, PluginArgs
from scheduler.kube import objects
from scheduler.testing.rules.broken import RuleBroken
from scheduler.testing.rules.profiles import args_of
from scheduler.testing.rules.reading import keys_read
from scheduler.testing.rules.values import Named, Values, as_objects, choices

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
    """Raise RuleBroken with the smallest history in which the rule's answer differs from a fresh evaluation.

    args: as in `pluginConfig`, or an instance of `rule.Args`. pods, nodes: manifests that histories use besides the
    kit's own. labels, annotations: key -> values for pods; node_…: for nodes; other keys that the rule reads are
    detected, and get values such as "1", "a" and "". steps: maximum per history. examples: number of histories. seed:
    the same seed tries the same histories. shrink_s: maximum time to search for a smaller failing history.
    PluginError: an answer of a wrong shape or type.
    """
    given = args_of(rule, args)
    named = Named(labels=labels, annotations=annotations, node_labels=node_labels, node_annotations=node_annotations)
    own_nodes, own_pods = as_objects(objects.Node, nodes), as_objects(objects.PodObject, pods)
    named = keys_read(rule, given, named, own_nodes, own_pods)
    search(
        rule, given, choices(named, own_nodes, own_pods), steps=steps, examples=examples, seed=seed, shrink_s=shrink_s
    )
