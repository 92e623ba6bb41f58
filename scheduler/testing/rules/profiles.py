"""The two profiles that a rule is tried in."""

from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import Any, Final

from config.settings.plugins import PluginRef, Plugins, WeightedPluginRef, WeightedPluginSet
from config.settings.scheduler import ResolvedProfile
from scheduler.framework.plugin import Plugin, PluginArgs
from scheduler.framework.profile import Profile
from scheduler.plugins import registry
from scheduler.plugins.card.gpu_share import GpuShare
from scheduler.plugins.pod.unsupported_rules import UnsupportedRules
from scheduler.testing.rules.world import RESOURCES

_INDISPENSABLE: Final = (UnsupportedRules, GpuShare)
_EVERYTHING: Final = (PluginRef[str](name="*"),)


class Company(StrEnum):
    """Other plugins of the profile."""

    ALONE = "alone, beside GpuShare and UnsupportedRules"
    DEFAULT = "in the default profile"


def profile_with(rule: type[Plugin] | None, args: PluginArgs | None, company: Company) -> Profile:
    """A profile with new plugin objects. rule: None leaves it out."""
    names = [plugin.name for plugin in _INDISPENSABLE if company is Company.ALONE]
    if rule is not None and rule.name not in names:
        names.append(rule.name)
    multi = WeightedPluginSet[str, str](
        enabled=tuple(WeightedPluginRef[str](name=name) for name in names),
        disabled=_EVERYTHING if company is Company.ALONE else (),
    )
    given = {} if rule is None or args is None else {rule.name: args}
    return registry.build(ResolvedProfile((), Plugins(multi_point=multi), given), RESOURCES, _known(rule))


def args_of(rule: type[Plugin], args: PluginArgs | Mapping[str, Any] | None) -> PluginArgs:
    """The rule's arguments, validated as in `pluginConfig`. Raises pydantic's ValidationError."""
    return args if isinstance(args, PluginArgs) else rule.Args.model_validate(args or {})


def _known(rule: type[Plugin] | None) -> Sequence[type[Plugin]]:
    if rule is None:
        return registry.PLUGINS
    if rule.name in {plugin.name for plugin in registry.PLUGINS}:
        return tuple(rule if plugin.name == rule.name else plugin for plugin in registry.PLUGINS)
    return (*registry.PLUGINS, rule)
