"""The two profiles for testing a rule, and the report for the author of a failing one."""

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
from scheduler.pods.pod import Pod
from scheduler.testing.rules.history import Failure, FailureKind
from scheduler.testing.rules.world import RESOURCES

_INDISPENSABLE: Final = (UnsupportedRules, GpuShare)
_EVERYTHING: Final = (PluginRef[str](name="*"),)


class Company(StrEnum):
    """Other plugins of the profile."""

    ALONE = "alone, alongside GpuShare and UnsupportedRules"
    DEFAULT = "in the default profile"


def profile_with(rule: type[Plugin] | None, args: PluginArgs | None, company: Company) -> Profile:
    """Return a profile with new plugin objects. rule: None omits the rule."""
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
    """Return the rule's arguments, validated as in `pluginConfig`. Raises pydantic's ValidationError."""
    return args if isinstance(args, PluginArgs) else rule.Args.model_validate(args or {})


def _known(rule: type[Plugin] | None) -> Sequence[type[Plugin]]:
    if rule is None:
        return registry.PLUGINS
    if rule.name in {plugin.name for plugin in registry.PLUGINS}:
        return tuple(rule if plugin.name == rule.name else plugin for plugin in registry.PLUGINS)
    return (*registry.PLUGINS, rule)


class RuleBroken(AssertionError):
    """A rule's answer differs from a fresh evaluation; the message has the rule's name, a hint, and the history."""


def message(rule: type[Plugin], failure: Failure, company: Company, cause: str, seed: int) -> str:
    """Return the complete text of the report."""
    lines = [f"{rule.name}: {cause}", "", f"The smallest history found, with {rule.name} {company}:"]
    lines += [f"{number:>3}. {sentence}" for number, sentence in enumerate(failure.log, start=1)]
    lines += ["", *_outcome(failure), "", f"seed={seed} reproduces this history."]
    return "\n".join(lines)


def _outcome(failure: Failure) -> list[str]:
    about = "" if failure.pod is None else described(failure.pod)
    match failure.kind:
        case FailureKind.ANSWER:
            return [
                f"Then, for {about}:",
                f"  the scheduler says:      {failure.kept}",
                f"  from scratch it is:      {failure.fresh}",
            ]
        case FailureKind.WAITING:
            return [f"Then {about} still waits and is not woken, although it {failure.fresh}"]
        case FailureKind.TABLES:
            return ["Then the tables do not match the pods: this is a bug in gpushare-scheduler, please report it."]
        case FailureKind.RESTLESS:
            return ["Then the engine keeps waking pods that fit nowhere."]
        case FailureKind.RAISED:
            return [f"Then it raises {type(failure.error).__name__}: {failure.error}"]


def described(pod: Pod) -> str:
    """Return, for example, `pod p1 (label app=web, owner o1)`."""
    said = [f"label {key}={value!r}" for key, value in pod.labels.items()]
    said += [f"annotation {key}={value!r}" for key, value in pod.annotations.items()]
    said += [f"owner {pod.owner_uid}"] if pod.owner_uid else []
    said += [f"namespace {pod.key.namespace}"] if pod.key.namespace != "default" else []
    said.append(f"{pod.template.gpu_units} units")
    name = "a pod" if pod.key.name == "probe" else f"pod {pod.key.name}"
    return f"{name} ({', '.join(said)})"
