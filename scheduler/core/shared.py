"""State shared by all kinds of work of the core. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TypeAlias

from scheduler.core.effects import Effect
from scheduler.core.outlet import Outlet, Unlimited
from scheduler.core.scheduling_cycle import SchedulingCycle
from scheduler.framework.runtime import Signature
from scheduler.pods.gang import GangKey
from scheduler.pods.pod import Pod
from scheduler.queue.scheduling_queue import SchedulingQueue
from scheduler.state.nominations import Nominations
from scheduler.state.tables import Tables

# Scheduler name, signature, gang.
ClassKey: TypeAlias = tuple[str, Signature, GangKey | None]


@dataclass(slots=True)
class Shared:
    """Tables, queue and nominations; cycles: scheduler name -> its cycle. outlet: what dispatch takes now.

    retries: waiting pods that the next hint retries, because their node has room or their nomination is gone. pending:
    effects of what dispatch reported, which the next hint returns.
    """

    tables: Tables
    queue: SchedulingQueue
    cycles: Mapping[str, SchedulingCycle]
    nominations: Nominations
    outlet: Outlet = field(default_factory=Unlimited)
    retries: list[Pod] = field(default_factory=list)
    pending: list[Effect] = field(default_factory=list)

    def class_of(self, pod: Pod) -> ClassKey:
        """Return a key that is equal for pods that every rule treats alike and that are attempted alike."""
        gang = None if pod.gang is None else pod.gang.key
        return pod.scheduler_name, self.cycles[pod.scheduler_name].signature(pod), gang
