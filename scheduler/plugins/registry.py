"""Every plugin by name, and how it is built from the configuration. Adding a rule adds a line here."""

from collections.abc import Callable, Mapping
from typing import Final, TypeVar

from config.settings.scheduler import Profile as ConfiguredProfile
from config.settings.scheduler import Resources
from scheduler.framework.plugin import (
    FilterPlugin,
    Plugin,
    PreEnqueuePlugin,
    PreFilterPlugin,
    ReservePlugin,
    ScorePlugin,
)
from scheduler.framework.profile import Profile
from scheduler.plugins.gpu_share import GpuShare, GpuShareArgs
from scheduler.plugins.inter_pod_affinity import InterPodAffinity
from scheduler.plugins.node_affinity import NodeAffinity
from scheduler.plugins.node_name import NodeName
from scheduler.plugins.node_ports import NodePorts
from scheduler.plugins.node_resources_fit import NodeResourcesFit, NodeResourcesFitArgs
from scheduler.plugins.node_unschedulable import NodeUnschedulable
from scheduler.plugins.scheduling_gates import SchedulingGates
from scheduler.plugins.taint_toleration import TaintToleration
from scheduler.plugins.unsupported_rules import UnsupportedRules
from scheduler.pods.gpu_request import Policy

PluginT = TypeVar("PluginT", bound=Plugin)
Build = Callable[[ConfiguredProfile, Resources], Plugin]


def _gpu_share(profile: ConfiguredProfile, resources: Resources) -> Plugin:
    args = profile.gpu_share
    return GpuShare(GpuShareArgs(Policy(args.card_policy), Policy(args.node_policy)), resources.gpu_mem)


def _node_resources_fit(profile: ConfiguredProfile, _resources: Resources) -> Plugin:
    args = profile.node_resources_fit
    return NodeResourcesFit(
        NodeResourcesFitArgs(
            strategy=args.scoring_strategy.type,
            weights={resource.name: resource.weight for resource in args.scoring_strategy.resources},
            ignored=frozenset(args.ignored_resources),
        )
    )


REGISTRY: Final[Mapping[str, Build]] = {
    UnsupportedRules.name: lambda _profile, _resources: UnsupportedRules(),
    SchedulingGates.name: lambda _profile, _resources: SchedulingGates(),
    NodeUnschedulable.name: lambda _profile, _resources: NodeUnschedulable(),
    NodeName.name: lambda _profile, _resources: NodeName(),
    TaintToleration.name: lambda _profile, _resources: TaintToleration(),
    NodeAffinity.name: lambda _profile, _resources: NodeAffinity(),
    NodePorts.name: lambda _profile, _resources: NodePorts(),
    NodeResourcesFit.name: _node_resources_fit,
    GpuShare.name: _gpu_share,
    InterPodAffinity.name: lambda _profile, _resources: InterPodAffinity(),
}


def build(profile: ConfiguredProfile, resources: Resources) -> Profile:
    """The profile's plugins, one object each, in the configured order."""
    chosen = profile.plugins
    named = {*chosen.pre_enqueue, *chosen.filter, *chosen.score}
    plugins = {name: make(profile, resources) for name, make in REGISTRY.items() if name in named}

    def at(names: tuple[str, ...], kind: type[PluginT]) -> tuple[PluginT, ...]:
        return tuple(plugin for name in names if isinstance(plugin := plugins[name], kind))

    return Profile(
        pre_enqueue=at(chosen.pre_enqueue, PreEnqueuePlugin),
        pre_filter=at(chosen.filter, PreFilterPlugin),
        filter=at(chosen.filter, FilterPlugin),
        score=tuple((plugin, chosen.weights[plugin.name]) for plugin in at(chosen.score, ScorePlugin)),
        reserve=at(chosen.filter, ReservePlugin),
    )
