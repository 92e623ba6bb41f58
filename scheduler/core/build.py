"""Builds the engine from a configuration: the installed plugins, the tables, the queue and the cycles."""

import inspect
from collections.abc import Sequence
from dataclasses import replace
from importlib.metadata import EntryPoint, entry_points
from typing import TYPE_CHECKING, Final

from config.settings.plugins import MAX_WEIGHT
from config.settings.scheduler import SchedulerConfiguration, resolve
from scheduler.core.engine import Engine
from scheduler.core.scheduling_cycle import SchedulingCycle
from scheduler.framework.plugin import Plugin, PluginArgs
from scheduler.framework.runtime import Runtime
from scheduler.plugins import registry
from scheduler.plugins.pod import priority_sort
from scheduler.pods.gpu_request import ResourceNames
from scheduler.pods.pod import PodReader
from scheduler.queue.scheduling_queue import SchedulingQueue
from scheduler.state.tables import Tables

if TYPE_CHECKING:
    from scheduler.framework.plugin import PreEnqueuePlugin


ENTRY_POINTS: Final = "gpushare_scheduler.plugins"


class BrokenPlugin(Exception):
    """An entry point does not name a plugin. The message names the package and the problem."""


def installed_plugins() -> tuple[type[Plugin], ...]:
    """Return the built-in plugins and those that installed packages offer as entry points. Raises BrokenPlugin."""
    plugins = list(registry.PLUGINS)
    names = {plugin.name for plugin in registry.describe(plugins)}
    for entry in sorted(entry_points(group=ENTRY_POINTS)):
        found = plugin_of(entry)
        if found.name in names:
            raise BrokenPlugin(_about(entry, f"another plugin already has the name {found.name}"))
        names.add(found.name)
        plugins.append(found)
    return tuple(plugins)


def build_engine(
    configuration: SchedulerConfiguration, plugins: Sequence[type[Plugin]] = registry.PLUGINS, *, preempts: bool = True
) -> tuple[Engine, PodReader]:
    """Return an engine with empty tables, as configured, and the matching pod reader.

    plugins: all that exist. preempts: whether PostFilter plugins run.
    """
    names = resource_names(configuration)
    tables = Tables(names, configuration.memory_unit_mib)
    cycles: dict[str, SchedulingCycle] = {}
    gates: dict[str, tuple[PreEnqueuePlugin, ...]] = {}
    for profile in resolve(configuration):
        built = registry.build(profile, names, plugins)
        built = built if preempts else replace(built, post_filter=())
        cycle = SchedulingCycle(Runtime(built, tables))
        cycles.update(dict.fromkeys(profile.scheduler_names, cycle))
        gates.update(dict.fromkeys(profile.scheduler_names, built.pre_enqueue))
    queue = SchedulingQueue(
        initial_backoff_s=configuration.pod_initial_backoff_seconds,
        max_backoff_s=configuration.pod_max_backoff_seconds,
        pre_enqueue=gates,
        queue_sort=priority_sort.sort_key,
        members=tables.gangs,
    )
    engine = Engine(
        tables,
        queue,
        cycles,
        reserve_after_s=configuration.reserve_after_s,
        audit_period_s=configuration.ledger_audit_period_s,
    )
    return engine, PodReader(names, configuration.memory_unit_mib)


def resource_names(configuration: SchedulerConfiguration) -> ResourceNames:
    """Return the configured names of the resources that pods request."""
    resources = configuration.resources
    return ResourceNames(resources.gpu_mem, resources.gpu_count, resources.gpu_core)


def plugin_of(entry: EntryPoint) -> type[Plugin]:
    """Return the plugin that an entry point names. Raises BrokenPlugin."""
    try:
        found = entry.load()
    except Exception as error:  # importing runs third-party code, which may raise anything
        raise BrokenPlugin(_about(entry, f"cannot be imported: {type(error).__name__}: {error}")) from error
    if not (isinstance(found, type) and issubclass(found, Plugin)):
        expected = "a class that inherits scheduler.framework.plugin.Plugin"
        raise BrokenPlugin(_about(entry, f"expected {expected}, found {found!r}"))
    if problem := _problem(found):
        raise BrokenPlugin(_about(entry, problem))
    return found


def _problem(plugin: type[Plugin]) -> str:
    """Return why a class is not a valid plugin; "" if it is."""
    if inspect.isabstract(plugin):
        return f"the plugin lacks {', '.join(sorted(plugin.__abstractmethods__))}"
    name = getattr(plugin, "name", None)
    if not isinstance(name, str) or not name.isidentifier():
        return f"its name is {name!r}; expected letters, digits and _, such as MaxPodsPerOwner"
    if not (isinstance(plugin.Args, type) and issubclass(plugin.Args, PluginArgs)) or any(
        field.is_required() for field in plugin.Args.model_fields.values()
    ):
        return "its Args must inherit PluginArgs, with a default for every field"
    weight = getattr(plugin, "default_weight", 1)
    return "" if 1 <= weight <= MAX_WEIGHT else f"its default_weight is {weight}; expected 1 to {MAX_WEIGHT}"


def _about(entry: EntryPoint, problem: str) -> str:
    package = entry.dist.name if entry.dist else "?"
    return f"package {package}, entry point {entry.name} = {entry.value}: {problem}"
