"""What decides, put together as configured: tables, queue and cycles behind one engine."""

from typing import TYPE_CHECKING

from config.settings.scheduler import SchedulerConfiguration, resolve
from scheduler.engine import Engine
from scheduler.framework.runtime import Runtime
from scheduler.plugins import priority_sort, registry
from scheduler.pods.gpu_request import ResourceNames
from scheduler.pods.pod import PodReader
from scheduler.queue.scheduling_queue import SchedulingQueue
from scheduler.scheduling_cycle import SchedulingCycle
from scheduler.state.tables import Tables

if TYPE_CHECKING:
    from scheduler.framework.plugin import PreEnqueuePlugin


def build_engine(configuration: SchedulerConfiguration) -> tuple[Engine, PodReader]:
    """Tables, queue and cycles as configured, empty; and the reader of pods that suits them."""
    names = ResourceNames(
        configuration.resources.gpu_mem, configuration.resources.gpu_count, configuration.resources.gpu_core
    )
    tables = Tables(names, configuration.memory_unit_mib)
    cycles: dict[str, SchedulingCycle] = {}
    gates: dict[str, tuple[PreEnqueuePlugin, ...]] = {}
    for profile in resolve(configuration):
        built = registry.build(profile, configuration.resources)
        cycle = SchedulingCycle(Runtime(built, tables))
        cycles.update(dict.fromkeys(profile.scheduler_names, cycle))
        gates.update(dict.fromkeys(profile.scheduler_names, built.pre_enqueue))
    queue = SchedulingQueue(
        initial_backoff_s=configuration.pod_initial_backoff_seconds,
        max_backoff_s=configuration.pod_max_backoff_seconds,
        pre_enqueue=gates,
        queue_sort=priority_sort.sort_key,
    )
    return Engine(tables, queue, cycles), PodReader(names)
