"""State shared by all kinds of work of the core. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from scheduler.core.effects import Effect, Nominate
from scheduler.core.outlet import Outlet, Unlimited
from scheduler.core.scheduling_cycle import SchedulingCycle
from scheduler.framework.runtime import Signature
from scheduler.pods.pod import Pod
from scheduler.queue.scheduling_queue import SchedulingQueue
from scheduler.state.nominations import Nominations
from scheduler.state.tables import Tables


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

    def give_up(self, pod: Pod, now_s: float, longest_backoff_s: float = 0.0) -> None:
        """Undo the placement of a pod that was not bound. longest_backoff_s: see `SchedulingQueue.failed`."""
        self.cycles[pod.scheduler_name].unreserve(pod)
        if self.tables.record(pod.key.uid) is not None:
            # Another scheduler bound it.
            self.queue.done(pod.key.uid)
            return
        self.queue.failed(pod.key.uid, now_s, longest_s=longest_backoff_s)
        if pod.nominated_node:
            # Its status still names the node that it was nominated to.
            self.pending.append(Nominate(pod))
        self.retries.extend(self.nominations.pod_gone(pod.key.uid))

    def class_of(self, pod: Pod) -> tuple[str, Signature]:
        """Return a key that is equal for pods that every rule treats alike."""
        return pod.scheduler_name, self.cycles[pod.scheduler_name].signature(pod)
