"""The arguments of NodeAffinity: a node affinity added to every pod of a profile, as in YAML.

Source: kube-scheduler, apis/config/types_pluginargs.go, NodeAffinityArgs.
"""

from typing import Literal, Self

import msgspec
from pydantic import Field, model_validator

from config.settings.plugins import Weight
from scheduler.framework.plugin import PluginArgs
from scheduler.kube import objects
from scheduler.state.columns.node_terms import NodeTerm, parsed_term


class NodeSelectorRequirement(PluginArgs):
    """A requirement on one label of a node, or on its name."""

    key: str = Field(description="The label, or `metadata.name` in `matchFields`.")
    operator: Literal["In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt"] = Field(
        description="`matchFields` know `In` and `NotIn` only."
    )
    values: tuple[str, ...] = Field(default=(), description="What the operator compares with.")


class AddedNodeSelectorTerm(PluginArgs):
    """Requirements that must all be met; there is at least one."""

    match_expressions: tuple[NodeSelectorRequirement, ...] = Field(default=(), description="About labels.")
    match_fields: tuple[NodeSelectorRequirement, ...] = Field(default=(), description="About the node's name.")

    @model_validator(mode="after")
    def _can_be_read(self) -> Self:
        self.term()
        return self

    def term(self) -> NodeTerm:
        """The term that the rule reads. Raises ValueError for a term that can match no node."""
        written = msgspec.convert(self.model_dump(by_alias=True), objects.NodeSelectorTerm)
        term = parsed_term(written)
        if term is None:
            raise ValueError("expected a term that a pod's node affinity may have, with at least one requirement")
        return term


class AddedNodeSelector(PluginArgs):
    """A node matches when it matches one of the terms."""

    node_selector_terms: tuple[AddedNodeSelectorTerm, ...] = Field(
        min_length=1, description="Terms, of which one is enough."
    )


class PreferredSchedulingTerm(PluginArgs):
    """A term that counts in the score."""

    weight: Weight = Field(description="What a node that matches gets.")
    preference: AddedNodeSelectorTerm = Field(description="The term.")


class AddedAffinity(PluginArgs):
    """The same form as `affinity.nodeAffinity` of a pod."""

    required_during_scheduling_ignored_during_execution: AddedNodeSelector | None = Field(
        default=None, description="Where pods of the profile may go at all."
    )
    preferred_during_scheduling_ignored_during_execution: tuple[PreferredSchedulingTerm, ...] = Field(
        default=(), description="Where they are better off."
    )


class NodeAffinityArgs(PluginArgs):
    """The affinity added to every pod of the profile."""

    added_affinity: AddedAffinity = Field(
        default=AddedAffinity(), description="A node affinity that every pod of the profile has beside its own."
    )

    def required_terms(self) -> tuple[NodeTerm, ...] | None:
        """ORed; None where nothing is required."""
        selector = self.added_affinity.required_during_scheduling_ignored_during_execution
        return None if selector is None else tuple(each.term() for each in selector.node_selector_terms)

    def preferred_terms(self) -> tuple[tuple[int, NodeTerm], ...]:
        """(weight, term)."""
        preferred = self.added_affinity.preferred_during_scheduling_ignored_during_execution
        return tuple((each.weight, each.preference.term()) for each in preferred)
