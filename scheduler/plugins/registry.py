"""All built-in plugins, in the order in which the default profile calls them. To add a rule, add a line here."""

import inspect
from collections.abc import Mapping, Sequence
from typing import Any, Final, TypeVar

from config.settings.mistakes import ConfigurationError, Mistake
from config.settings.plugins import PluginDescription, choose
from config.settings.scheduler import ResolvedProfile
from scheduler.framework.plugin import (
    CardFilterPlugin,
    CardScorePlugin,
    FilterPlugin,
    PermitPlugin,
    Plugin,
    PluginArgs,
    PreBindPlugin,
    PreEnqueuePlugin,
    PreFilterPlugin,
    ReservePlugin,
    ScorePlugin,
)
from scheduler.framework.post_filter import PostFilterPlugin
from scheduler.framework.profile import Profile
from scheduler.plugins.card.card_affinity import CardAffinity
from scheduler.plugins.card.gpu_core import GpuCore
from scheduler.plugins.card.gpu_share import GpuShare
from scheduler.plugins.card.gpu_sharers_per_card import GpuSharersPerCard
from scheduler.plugins.node.image_locality import ImageLocality
from scheduler.plugins.node.kubelet_rejections import KubeletRejections
from scheduler.plugins.node.node_affinity import NodeAffinity
from scheduler.plugins.node.node_declared_features import NodeDeclaredFeatures
from scheduler.plugins.node.node_name import NodeName
from scheduler.plugins.node.node_ports import NodePorts
from scheduler.plugins.node.node_resources_balanced_allocation import NodeResourcesBalancedAllocation
from scheduler.plugins.node.node_resources_fit import NodeResourcesFit
from scheduler.plugins.node.node_unschedulable import NodeUnschedulable
from scheduler.plugins.node.taint_toleration import TaintToleration
from scheduler.plugins.pod.inter_pod_affinity import InterPodAffinity
from scheduler.plugins.pod.pod_topology_spread import PodTopologySpread
from scheduler.plugins.pod.scheduling_gates import SchedulingGates
from scheduler.plugins.pod.unsupported_rules import UnsupportedRules
from scheduler.plugins.preemption.default_preemption import DefaultPreemption
from scheduler.plugins.volume.node_volume_limits import NodeVolumeLimits
from scheduler.plugins.volume.volume_binding import VolumeBinding
from scheduler.plugins.volume.volume_restrictions import VolumeRestrictions
from scheduler.plugins.volume.volume_zone import VolumeZone
from scheduler.pods.gpu_request import ResourceNames

PLUGINS: Final[tuple[type[Plugin], ...]] = (
    UnsupportedRules,
    SchedulingGates,
    NodeName,
    NodeUnschedulable,
    KubeletRejections,
    TaintToleration,
    NodeAffinity,
    NodePorts,
    NodeResourcesFit,
    VolumeRestrictions,
    NodeVolumeLimits,
    VolumeBinding,
    VolumeZone,
    GpuSharersPerCard,
    CardAffinity,
    GpuCore,
    GpuShare,
    PodTopologySpread,
    InterPodAffinity,
    NodeResourcesBalancedAllocation,
    ImageLocality,
    NodeDeclaredFeatures,
    DefaultPreemption,
)

PluginT = TypeVar("PluginT", bound=Plugin)
# A PreFilter that only rejects is enabled and disabled like a filter.
_POINTS: Final[Mapping[type[Plugin], str]] = {
    PreEnqueuePlugin: "preEnqueue",
    PreFilterPlugin: "filter",
    FilterPlugin: "filter",
    PostFilterPlugin: "postFilter",
    ScorePlugin: "score",
    CardFilterPlugin: "cardFilter",
    CardScorePlugin: "cardScore",
    ReservePlugin: "filter",
    PermitPlugin: "permit",
    PreBindPlugin: "preBind",
}
_OF_CARDS: Final = frozenset({"cardFilter", "cardScore"})
# The only queue sort and the only binder; they are not classes.
_ONE_OF_A_KIND: Final = (
    PluginDescription(
        name="PrioritySort", points=frozenset({"queueSort"}), indispensable=True, summary="The order of the queue."
    ),
    PluginDescription(
        name="DefaultBinder", points=frozenset({"bind"}), indispensable=True, summary="One POST with node and cards."
    ),
)


def describe(plugins: Sequence[type[Plugin]] = PLUGINS) -> tuple[PluginDescription, ...]:
    """Describe `plugins`, the queue sort and the binder for the configuration."""
    return (*map(_described, plugins), *_ONE_OF_A_KIND)


def build(profile: ResolvedProfile, resources: ResourceNames, plugins: Sequence[type[Plugin]] = PLUGINS) -> Profile:
    """Build the profile's plugins, one object each, in the configured order.

    Raises ConfigurationError if one is unknown.
    """
    chosen = choose(profile.plugins, describe(plugins))
    named = {name for point in chosen.__slots__ if point != "weights" for name in getattr(chosen, point)}
    classes = {plugin.name: plugin for plugin in plugins}
    unknown = (named | profile.args.keys()) - classes.keys() - {plugin.name for plugin in _ONE_OF_A_KIND}
    if unknown:
        known = ", ".join(classes)
        raise ConfigurationError(
            [Mistake("", "plugins", f"unknown plugin {n}; expected one of {known}") for n in unknown]
        )
    made = {name: cls(_args(cls, profile.args.get(name)), resources) for name, cls in classes.items() if name in named}

    def at(names: Sequence[str], kind: type[PluginT]) -> tuple[PluginT, ...]:
        return tuple(plugin for name in names if isinstance(plugin := made.get(name), kind))

    at_cards = (*chosen.card_filter, *chosen.card_score)
    return Profile(
        pre_enqueue=at(chosen.pre_enqueue, PreEnqueuePlugin),
        pre_filter=at((*chosen.filter, *at_cards), PreFilterPlugin),
        filter=at(chosen.filter, FilterPlugin),
        post_filter=at(chosen.post_filter, PostFilterPlugin),
        score=tuple((plugin, chosen.weights[plugin.name]) for plugin in at(chosen.score, ScorePlugin)),
        card_filter=at(chosen.card_filter, CardFilterPlugin),
        card_score=at(chosen.card_score, CardScorePlugin),
        reserve=at(chosen.filter, ReservePlugin),
        permit=at(chosen.permit, PermitPlugin),
        pre_bind=at(chosen.pre_bind, PreBindPlugin),
    )


def _described(plugin: type[Plugin]) -> PluginDescription:
    return PluginDescription(
        name=plugin.name,
        points=_points(plugin),
        args=plugin.Args if plugin.Args is not PluginArgs else None,
        weight=plugin.default_weight if issubclass(plugin, ScorePlugin) else 0,
        on_by_default=plugin.on_by_default and plugin in PLUGINS,
        indispensable=plugin.indispensable,
        summary=inspect.cleandoc(plugin.__doc__ or "").partition("\n\n")[0],
    )


def _points(plugin: type[Plugin]) -> frozenset[str]:
    found = {point for kind, point in _POINTS.items() if issubclass(plugin, kind)}
    if found & _OF_CARDS and not issubclass(plugin, FilterPlugin):
        # The PreFilter of a card rule belongs to that rule.
        found.discard("filter")
    return frozenset(found)


def _args(plugin: type[Plugin], said: Any) -> PluginArgs:  # noqa: ANN401 - as the configuration has it
    if isinstance(said, PluginArgs):
        return said
    return plugin.Args.model_validate(said or {})
