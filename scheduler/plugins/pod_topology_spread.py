"""PodTopologySpread: pods of a kind are spread over zones, nodes or whatever domains a label of nodes names.

Source: kube-scheduler, plugins/podtopologyspread/filtering.go and scoring.go.
"""

from collections.abc import Hashable, Sequence
from typing import ClassVar, Final

from scheduler.framework.cycle_state import CycleState, StateKey
from scheduler.framework.plugin import (
    DomainScorePlugin,
    FilterPlugin,
    Objection,
    PreFilterPlugin,
    PreFilterResult,
    Relevance,
)
from scheduler.plugins import spread_constraints
from scheduler.plugins.spread_constraints import Spread, constraint_of, spread_of, written
from scheduler.pods.pod import Pod
from scheduler.state.changes import Change
from scheduler.state.columns.arrays import BoolArray, Int64Array, Rows
from scheduler.state.facts.matching_pods import MatchingPods
from scheduler.state.facts.node_domains import NodeDomains
from scheduler.state.tables import Tables

SKEWED: Final = "node(s) didn't match pod topology spread constraints"
LACKING: Final = f"{SKEWED} (missing required label)"
_SPREAD: Final[StateKey[Spread]] = StateKey("pod_topology_spread.spread")


class PodTopologySpread(PreFilterPlugin, FilterPlugin, DomainScorePlugin):
    """Rejects nodes in domains that would have too many of the pods that are spread; prefers those with few.

    A constraint spreads the pods of the namespace that its `labelSelector` matches (and, of `matchLabelKeys`, those
    with the pod's own values) over the domains that the label `topologyKey` of nodes names. Pods that terminate do not
    count.

    - `node(s) didn't match pod topology spread constraints`: with `DoNotSchedule`, the pod would be the one more that
      makes the domain of the node exceed the domain with the fewest by more than `maxSkew`
    - `node(s) didn't match pod topology spread constraints (missing required label)`: the node lacks `topologyKey`

    Nodes count that have the keys of all constraints and that the pod's node selector and affinity allow
    (`nodeAffinityPolicy`, `Honor` by default) and whose taints it tolerates (`nodeTaintsPolicy`, `Ignore` by default).
    With fewer domains than `minDomains` the fewest are taken to be none. With `ScheduleAnyway` nothing is rejected: of
    the feasible nodes those with the fewest such pods in their domains are best, one with none of the keys gets no
    points. A selector that is left out matches no pods; one that is empty counts none, as in kube-scheduler. A pod
    that comes or goes moves whole domains, so the rule is asked about all nodes at every decision.
    Source: kube-scheduler, plugins/podtopologyspread.
    """

    name: ClassVar[str] = "PodTopologySpread"
    on_by_default: ClassVar[bool] = True
    depends: ClassVar[Change] = Change.LABELS | Change.DOMAINS
    default_weight: ClassVar[int] = 2
    facts = (MatchingPods, NodeDomains)

    def pre_filter(self, pod: Pod, tables: Tables, state: CycleState) -> PreFilterResult:  # noqa: ARG002 - nodes are judged later
        """Only hard constraints reject."""
        return Relevance.JUDGE if pod.template.spread and _spread(pod, state).hard else Relevance.SKIP

    def filter(self, pod: Pod, tables: Tables, state: CycleState, rows: Rows) -> Sequence[Objection]:
        """Nodes that lack a label, and nodes in domains that are too full."""
        lacking, skewed = spread_constraints.objecting(_spread(pod, state), tables, rows)
        return Objection(lacking, LACKING), Objection(skewed, SKEWED)

    def opened_by(self, pod: Pod, tables: Tables, state: CycleState) -> int:
        """Pods that are spread and nodes that count, as they come, go and change."""
        return spread_constraints.opened_by(_spread(pod, state), tables.fact(MatchingPods))

    def scores(self, pod: Pod) -> bool:
        """Pods with soft constraints."""
        return any(each.soft for each in written(pod.template)) if pod.template.spread else False

    def score_domains(self, pod: Pod, tables: Tables, state: CycleState, feasible: BoolArray) -> Int64Array | None:
        """Best where the fewest of the pods that are spread are."""
        return spread_constraints.points(_spread(pod, state), tables, feasible)

    def signature(self, pod: Pod, tables: Tables) -> Hashable:  # noqa: ARG002 - the pod says all
        """Of a pod with constraints: which pods are spread, and whether it is one of them."""
        if not pod.template.spread:
            return None
        constraints = written(pod.template)
        own = [pod.labels.get(key) for each in constraints for key in each.match_label_keys]
        return pod.key.namespace, *(each.takes(pod.labels) for each in constraints), *own


def _spread(pod: Pod, state: CycleState) -> Spread:
    """Worked out at the first question."""
    spread = state.find(_SPREAD)
    if spread is None:
        namespace, labels = pod.key.namespace, pod.labels
        spread = spread_of([constraint_of(each, namespace, labels) for each in written(pod.template)], pod.template)
        state.write(_SPREAD, spread)
    return spread
