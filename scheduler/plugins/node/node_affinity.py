"""NodeAffinity: node selector and node affinity, required and preferred, computed on label columns.

Its argument is a node affinity that is added to every pod of a profile, as in YAML.
Source: kube-scheduler, plugins/nodeaffinity/node_affinity.go and apis/config/types_pluginargs.go, NodeAffinityArgs;
k8s.io/component-helpers/scheduling/corev1/nodeaffinity/nodeaffinity.go.
"""

from collections.abc import Sequence
from typing import ClassVar, Final, Literal, Self, TypeAlias

import msgspec
import numpy as np
from pydantic import Field, model_validator

from config.settings.plugins import Weight
from scheduler.framework.cycle_state import CycleState, StateKey
from scheduler.framework.plugin import (
    FilterPlugin,
    Normalization,
    PluginArgs,
    PreFilterPlugin,
    PreFilterResult,
    Rejected,
    Rejection,
    Relevance,
    ScorePlugin,
)
from scheduler.kube import objects
from scheduler.pods.gpu_request import ResourceNames
from scheduler.pods.pod import Pod, Template
from scheduler.state.changes import Change
from scheduler.state.columns.arrays import Int64Array, Rows
from scheduler.state.columns.node_terms import NAME_FIELD, NodeTerm, Required, parsed_term
from scheduler.state.columns.selectors import Matcher, equalities
from scheduler.state.tables import Tables


class NodeSelectorRequirement(PluginArgs):
    """A requirement on one label of a node, or on its name."""

    key: str = Field(description="The label, or `metadata.name` in `matchFields`.")
    operator: Literal["In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt"] = Field(
        description="`matchFields` know `In` and `NotIn` only."
    )
    values: tuple[str, ...] = Field(default=(), description="Values that the operator compares with.")


class AddedNodeSelectorTerm(PluginArgs):
    """Requirements that must all be met; there is at least one."""

    match_expressions: tuple[NodeSelectorRequirement, ...] = Field(default=(), description="Requirements on labels.")
    match_fields: tuple[NodeSelectorRequirement, ...] = Field(
        default=(), description="Requirements on the node's name."
    )

    @model_validator(mode="after")
    def _can_be_read(self) -> Self:
        self.term()
        return self

    def term(self) -> NodeTerm:
        """Return the term that the rule reads. Raises ValueError for a term that can match no node."""
        written = msgspec.convert(self.model_dump(by_alias=True), objects.NodeSelectorTerm)
        term = parsed_term(written)
        if term is None:
            raise ValueError("expected a term that a pod's node affinity may have, with at least one requirement")
        return term


class AddedNodeSelector(PluginArgs):
    """A node matches when it matches one of the terms."""

    node_selector_terms: tuple[AddedNodeSelectorTerm, ...] = Field(
        min_length=1, description="Terms; one match is enough."
    )


class PreferredSchedulingTerm(PluginArgs):
    """A term that counts in the score."""

    weight: Weight = Field(description="Weight of a node that matches.")
    preference: AddedNodeSelectorTerm = Field(description="The term.")


class AddedAffinity(PluginArgs):
    """Node affinity in the form of a pod's `affinity.nodeAffinity`."""

    required_during_scheduling_ignored_during_execution: AddedNodeSelector | None = Field(
        default=None, description="Nodes that pods of the profile may use."
    )
    preferred_during_scheduling_ignored_during_execution: tuple[PreferredSchedulingTerm, ...] = Field(
        default=(), description="Nodes that they prefer."
    )


class NodeAffinityArgs(PluginArgs):
    """A node affinity added to every pod of the profile."""

    added_affinity: AddedAffinity = Field(
        default=AddedAffinity(), description="Like a pod's `affinity.nodeAffinity`; both apply."
    )

    def required_terms(self) -> tuple[NodeTerm, ...] | None:
        """Return the required terms, at least one of which must match; None if nothing is required."""
        selector = self.added_affinity.required_during_scheduling_ignored_during_execution
        return None if selector is None else tuple(each.term() for each in selector.node_selector_terms)

    def preferred_terms(self) -> tuple[tuple[int, NodeTerm], ...]:
        """Return (weight, term) for each preference."""
        preferred = self.added_affinity.preferred_during_scheduling_ignored_during_execution
        return tuple((each.weight, each.preference.term()) for each in preferred)


REASON: Final = "node(s) didn't match Pod's node affinity/selector"
CONFLICT: Final = "pod affinity terms conflict"
ENFORCED: Final = "node(s) didn't match scheduler-enforced node affinity"

Preferred: TypeAlias = tuple[tuple[int, NodeTerm], ...]
_REQUIRED: Final[StateKey[Required]] = StateKey("node_affinity.required")
_PREFERRED: Final[StateKey[Preferred]] = StateKey("node_affinity.preferred")


class NodeAffinity(PreFilterPlugin, FilterPlugin, ScorePlugin):
    """Rejects nodes that do not match the pod's node selector and node affinity; prefers those it prefers.

    A node matches if it has all labels of `nodeSelector` and matches one of the terms of
    `requiredDuringSchedulingIgnoredDuringExecution`. Its score is the sum of the weights of the matching preferred
    terms.

    - `node(s) didn't match Pod's node affinity/selector`
    - `pod affinity terms conflict`, for every node: every term asks for several values of `metadata.name` at once

    In a term, all `matchExpressions` (`In`, `NotIn`, `Exists`, `DoesNotExist`, `Gt`, `Lt`) and all `matchFields`
    (`metadata.name` `In` or `NotIn` one value) must be met. `NotIn` and `DoesNotExist` also accept nodes that lack the
    key; `Gt` and `Lt` accept only integers. A term that is empty or invalid (such as `Gt` with a text) matches no node,
    and neither does an empty list of terms. An invalid preferred term is ignored; kube-scheduler ends the attempt with
    an error. Nodes that a term excludes by name are counted under this rule's reason; kube-scheduler writes
    `node(s) didn't satisfy plugin(s) [NodeAffinity]`. The argument `addedAffinity` is added to the affinity of every
    pod of the profile; nodes that its required terms exclude are counted under
    `node(s) didn't match scheduler-enforced node affinity`.
    Source: kube-scheduler, plugins/nodeaffinity/node_affinity.go.
    """

    name: ClassVar[str] = "NodeAffinity"
    on_by_default: ClassVar[bool] = True
    depends: ClassVar[Change] = Change.LABELS
    normalization: ClassVar[Normalization] = Normalization.BY_MAX
    default_weight: ClassVar[int] = 2

    Args = NodeAffinityArgs
    args: NodeAffinityArgs

    def __init__(self, args: NodeAffinityArgs | None = None, resources: ResourceNames = ResourceNames()) -> None:  # noqa: B008 - immutable
        super().__init__(args, resources)
        terms = self.args.required_terms()
        self._added = None if terms is None else Required(None, terms)
        self._added_preferred = self.args.preferred_terms()

    def pre_filter(self, pod: Pod, tables: Tables, state: CycleState) -> PreFilterResult:  # noqa: ARG002 - the pod says all
        """Compute the required part; reject terms that no node can meet."""
        wanted = required(pod.template)
        if wanted is None:
            return Relevance.SKIP if self._added is None else Relevance.EVALUATE
        if names_conflict(pod.template):
            return Rejected(CONFLICT)
        state.write(_REQUIRED, wanted)
        return Relevance.EVALUATE

    def filter(self, pod: Pod, tables: Tables, state: CycleState, rows: Rows) -> Sequence[Rejection]:  # noqa: ARG002
        """Reject nodes that do not match the profile's affinity, then those that do not match the pod's terms."""
        wanted = state.find(_REQUIRED)
        if self._added is None:
            return () if wanted is None else (Rejection(~wanted.over(tables, rows), REASON),)
        left_out = ~self._added.over(tables, rows)
        if wanted is None:
            return (Rejection(left_out, ENFORCED),)
        return Rejection(left_out, ENFORCED), Rejection(~wanted.over(tables, rows) & ~left_out, REASON)

    def scores(self, pod: Pod) -> bool:
        """Score pods with preferences, or all pods if the profile has preferences."""
        affinity = pod.template.node_affinity
        own = affinity is not None and bool(affinity.preferred_during_scheduling_ignored_during_execution)
        return own or bool(self._added_preferred)

    def score(self, pod: Pod, tables: Tables, state: CycleState, rows: Rows) -> Int64Array:
        """Return int64[rows]: the sum of the weights of the matching preferred terms."""
        total = np.zeros(len(tables.valid[rows]), dtype=np.int64)
        for weight, term in (*self._added_preferred, *_preferred(pod, state)):
            total += weight * term.over(tables, rows)
        return total


def required(template: Template) -> Required | None:
    """Return the pod's requirements; None if it has none. An invalid term matches no node."""
    affinity = template.node_affinity
    wanted = None if affinity is None else affinity.required_during_scheduling_ignored_during_execution
    if wanted is None and not template.node_selector:
        return None
    selector = tuple(Matcher(expression) for expression in equalities(template.node_selector))
    terms = None
    if wanted is not None:
        written_terms = dict.fromkeys(wanted.node_selector_terms)
        terms = tuple(term for written in written_terms if (term := parsed_term(written)) is not None)
    return Required(NodeTerm(selector) if selector else None, terms)


def preferred(template: Template) -> Preferred:
    """Return (weight, term) for each preference of the pod.

    An invalid term is left out, because a preference cannot reject. kube-scheduler ends the attempt with an error.
    """
    affinity = template.node_affinity
    written = () if affinity is None else affinity.preferred_during_scheduling_ignored_during_execution
    terms = [(preference.weight, parsed_term(preference.preference)) for preference in written]
    return tuple((weight, term) for weight, term in terms if term is not None)


def names_conflict(template: Template) -> bool:
    """Return whether every required term demands node names that exclude each other."""
    affinity = template.node_affinity
    wanted = None if affinity is None else affinity.required_during_scheduling_ignored_during_execution
    if wanted is None or not wanted.node_selector_terms:
        return False
    for term in wanted.node_selector_terms:
        asked = [frozenset(r.values) for r in term.match_fields if r.key == NAME_FIELD and r.operator == "In"]
        if not asked or frozenset.intersection(*asked):
            return False
    return True


def _preferred(pod: Pod, state: CycleState) -> Preferred:
    """Return the preferences, computed at the first Score: without the Filter, a profile runs no PreFilter."""
    try:
        return state.read(_PREFERRED)
    except KeyError:
        terms = preferred(pod.template)
        state.write(_PREFERRED, terms)
        return terms
