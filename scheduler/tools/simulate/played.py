"""Cluster from cluster files, for commands that otherwise read a real cluster."""

from collections.abc import Sequence
from pathlib import Path

from config.clusterfile.reading import left_out, read
from config.settings.mistakes import ConfigurationError
from config.settings.scheduler import SchedulerConfiguration
from scheduler.core.build import build_engine, installed_plugins, resource_names
from scheduler.process.output import warn
from scheduler.testing.cluster.cluster import MemoryCluster
from scheduler.testing.cluster.world import World
from scheduler.tools.cli.answering import configured, give_up
from scheduler.tools.cli.asking import ClusterView, cluster_view
from scheduler.tools.cli.target import Target
from scheduler.tools.simulate.replay import world_after


def played(configuration: SchedulerConfiguration, files: Sequence[Path]) -> World:
    """Return the cluster of the files once it is stable. Raises ConfigurationError."""
    built, resources = build_engine(configuration, installed_plugins(), preempts=False), resource_names(configuration)
    described = read(*files)
    if line := left_out(described.ignored):
        warn([line])
    return world_after(described, built, resources=resources, unit_mib=configuration.memory_unit_mib)


def cluster_of(target: Target, files: Sequence[Path]) -> tuple[SchedulerConfiguration, MemoryCluster]:
    """Return (the configuration of the flags, the cluster). Mistakes in a file end the program."""
    configuration = configured(target.program, target.config, {})
    try:
        return configuration, MemoryCluster(played(configuration, files))
    except ConfigurationError as error:
        give_up(target.program, str(error))


async def view_of(target: Target, files: Sequence[Path]) -> ClusterView:
    """Return the cluster of the files as a command reads it. Mistakes in a file end the program."""
    configuration, cluster = cluster_of(target, files)
    of = await cluster_view(cluster, configuration)
    of.namespace, of.of_files = target.namespace or of.namespace, True
    return of
