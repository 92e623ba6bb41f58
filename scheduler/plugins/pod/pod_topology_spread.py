"""PodTopologySpread: spreads similar pods over zones, nodes or other domains that a node label names.

Source: kube-scheduler, plugins/podtopologyspread/filtering.go and scoring.go.
"""

from collections.abc import Hashable, Sequence
from dataclasses import replace
from typing import Any, ClassVar, Final, Literal, Self

from pydantic import Field, model_validator

from config.settings.schema import Section
from scheduler.framework.cycle_state import CycleState, StateKey
from scheduler.framework.plugin import (
    DomainScorePlugin,
    FilterPlugin,
    PluginArgs,
    PreFilterPlugin,
    PreFilterResult,
    Rejection,
    Relevance,
)
from scheduler.kube.objects import TopologySpreadConstraint
from scheduler.plugins.pod import spread_constraints
from scheduler.plugins.pod.spread_constraints import (
    NOT_SPREAD,
    Constraint,
    Spread,
    WrittenConstraint,
    constraint_of,
    read,
    spread_of,
    written,
)
from scheduler.pods.gpu_request import ResourceNames
from scheduler.pods.pod import Pod
from scheduler.state.changes import Change
from scheduler.state.columns.arrays import BoolArray, Int64Array, Rows
from scheduler.state.columns.selectors import Expressions, match
from scheduler.state.facts.matching_pods import MatchingPods
from scheduler.state.facts.node_domains import NodeDomains
from scheduler.state.tables import Tables

SKEWED: Final = "node(s) didn't match pod topology spread constraints"
LACKING: Final = f"{SKEWED} (missing required label)"
_SPREAD: Final[StateKey[Spread]] = StateKey("pod_topology_spread.spread")
_SYSTEM: Final = tuple(
    read(TopologySpreadConstraint(key, "ScheduleAnyway", max_skew))
    for key, max_skew in (("kubernetes.io/hostname", 3), ("topology.kubernetes.io/zone", 5))
)


class DefaultConstraint(Section):
    """Constraint for pods without their own; their Services and controller define the pods to spread."""

    max_skew: int = Field(ge=1, le=2**31 - 1, description="As in a pod.")
    topology_key: str = Field(min_length=1, max_length=317, description="As in a pod.")
    when_unsatisfiable: Literal["DoNotSchedule", "ScheduleAnyway"] = Field(description="As in a pod.")
    min_domains: int | None = Field(None, ge=1, le=2**31 - 1, description="As in a pod.")
    node_affinity_policy: Literal["Honor", "Ignore"] = Field("Honor", description="As in a pod.")
    node_taints_policy: Literal["Honor", "Ignore"] = Field("Ignore", description="As in a pod.")


class PodTopologySpreadArgs(PluginArgs):
    """Takes the same fields as in kube-scheduler."""

    defaulting_type: Literal["System", "List"] = Field(
        "System",
        description="Constraints for pods without any of their own. `System`: pods are preferably spread over nodes "
        "(`maxSkew` 3) and zones (5). `List`: `defaultConstraints` apply.",
    )
    default_constraints: tuple[DefaultConstraint, ...] = Field(
        (),
        max_length=8,
        description="At most 8 constraints, as in a pod but without `labelSelector` and `matchLabelKeys`; the pod's "
        "Services and controller determine which pods to spread.",
    )

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        if self.defaulting_type == "System" and self.default_constraints:
            raise ValueError("defaultConstraints: expected none with defaultingType System; write defaultingType: List")
        pairs = {(each.topology_key, each.when_unsatisfiable) for each in self.default_constraints}
        if len(pairs) < len(self.default_constraints):
            raise ValueError("defaultConstraints: expected each topologyKey once per whenUnsatisfiable")
        return self


class PodTopologySpread(PreFilterPlugin, FilterPlugin, DomainScorePlugin):
    """Rejects nodes in domains that would get too many of the spread pods; prefers nodes in domains with few.

    A constraint spreads the pods of the namespace that its `labelSelector` matches over the domains that the node label
    `topologyKey` names. With `matchLabelKeys`, only pods with the pod's own values of these labels count. Terminating
    pods do not count.

    - `node(s) didn't match pod topology spread constraints`: with `DoNotSchedule`, the pod would make the domain of the
      node exceed the domain with the fewest by more than `maxSkew`
    - `node(s) didn't match pod topology spread constraints (missing required label)`: the node lacks `topologyKey`

    A node counts if it has the keys of all constraints, the pod's node selector and affinity allow it
    (`nodeAffinityPolicy`, `Honor` by default) and the pod tolerates its taints (`nodeTaintsPolicy`, `Ignore` by
    default). With fewer domains than `minDomains`, the minimum is 0. `ScheduleAnyway` rejects nothing: feasible nodes
    with the fewest such pods in their domains are best, and a node without any of the keys gets no points. A missing
    selector matches no pods; an empty one counts none, as in kube-scheduler.

    A pod without constraints gets those of `defaultingType`: it is spread with the pods that its Services and its
    ReplicaSet, StatefulSet or ReplicationController select. A pod that nothing selects is not spread. Every pod affects
    a whole domain, so the rule runs on all nodes at every decision.
    Source: kube-scheduler, plugins/podtopologyspread.
    """

    name: ClassVar[str] = "PodTopologySpread"
    Args: ClassVar[type[PluginArgs]] = PodTopologySpreadArgs
    on_by_default: ClassVar[bool] = True
    depends: ClassVar[Change] = Change.LABELS | Change.DOMAINS
    default_weight: ClassVar[int] = 2

    def __init__(self, args: Any = None, resources: ResourceNames = ResourceNames()) -> None:  # noqa: ANN401, B008 - as Plugin
        super().__init__(args, resources)
        self._partial = self.args.defaulting_type == "System"
        self._defaults = _SYSTEM if self._partial else tuple(map(_read, self.args.default_constraints))

    def start(self, tables: Tables) -> None:
        """Count from the first pod on."""
        tables.fact(MatchingPods)
        tables.fact(NodeDomains)

    def pre_filter(self, pod: Pod, tables: Tables, state: CycleState) -> PreFilterResult:
        """Prepare the spread; only hard constraints reject."""
        if not pod.template.spread and all(each.soft for each in self._defaults):
            return Relevance.SKIP
        return Relevance.EVALUATE if self._spread(pod, tables, state).hard else Relevance.SKIP

    def filter(self, pod: Pod, tables: Tables, state: CycleState, rows: Rows) -> Sequence[Rejection]:
        """Reject nodes that lack a label, and nodes in domains that are too full."""
        lacking, skewed = spread_constraints.rejecting(self._spread(pod, tables, state), tables, rows)
        return Rejection(lacking, LACKING, unresolvable=True), Rejection(skewed, SKEWED)

    def opened_by(self, pod: Pod, tables: Tables, state: CycleState) -> int:
        """Return the bits of changes of counted pods and nodes after which a rejected node may accept the pod."""
        return spread_constraints.opened_by(self._spread(pod, tables, state), tables.fact(MatchingPods))

    def scores(self, pod: Pod) -> bool:
        """Score pods with soft constraints, and pods that may get some by default."""
        return any(each.soft for each in (written(pod.template) if pod.template.spread else self._defaults))

    def score_domains(self, pod: Pod, tables: Tables, state: CycleState, feasible: BoolArray) -> Int64Array | None:
        """Give the best scores to nodes whose domains hold the fewest of the spread pods."""
        spread = self._spread(pod, tables, state)
        return spread_constraints.points(spread, tables, feasible) if spread.soft else None

    def signature(self, pod: Pod, tables: Tables) -> Hashable:
        """Return, for a pod with own or default constraints, the pods to spread and whether it is one of them."""
        if not pod.template.spread:
            selector = self._default_selector(pod, tables)
            return (pod.key.namespace, selector, match(selector, pod.labels)) if selector else None
        constraints = written(pod.template)
        own = [pod.labels.get(key) for each in constraints for key in each.match_label_keys]
        return pod.key.namespace, *(each.takes(pod.labels) for each in constraints), *own

    def _spread(self, pod: Pod, tables: Tables, state: CycleState) -> Spread:
        """Return the spread, computed when it is first needed."""
        spread = state.find(_SPREAD)
        if spread is None:
            by_default = not pod.template.spread
            constraints = self._by_default(pod, tables) if by_default else _own(pod)
            spread = NOT_SPREAD
            if constraints:
                partial = by_default and self._partial
                spread = spread_of(constraints, pod.template, by_default=by_default, partial=partial)
            state.write(_SPREAD, spread)
        return spread

    def _by_default(self, pod: Pod, tables: Tables) -> list[Constraint]:
        selector, namespace, labels = self._default_selector(pod, tables), pod.key.namespace, pod.labels
        if not selector:
            return []
        return [constraint_of(replace(each, selector=selector), namespace, labels) for each in self._defaults]

    def _default_selector(self, pod: Pod, tables: Tables) -> Expressions:
        if not self._defaults:
            return ()
        return tables.default_selectors.of(pod.key.namespace, pod.labels, pod.owner_uid)


def _own(pod: Pod) -> list[Constraint]:
    return [constraint_of(each, pod.key.namespace, pod.labels) for each in written(pod.template)]


def _read(constraint: DefaultConstraint) -> WrittenConstraint:
    return read(
        TopologySpreadConstraint(
            constraint.topology_key,
            constraint.when_unsatisfiable,
            constraint.max_skew,
            min_domains=constraint.min_domains,
            node_affinity_policy=constraint.node_affinity_policy,
            node_taints_policy=constraint.node_taints_policy,
        )
    )
