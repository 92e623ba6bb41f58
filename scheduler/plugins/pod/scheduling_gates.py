"""SchedulingGates: a pod with scheduling gates is not queued.

Source: kube-scheduler, plugins/schedulinggates/scheduling_gates.go.
"""

from typing import ClassVar

from scheduler.framework.plugin import PreEnqueuePlugin
from scheduler.pods.pod import Pod


class SchedulingGates(PreEnqueuePlugin):
    """Keeps a pod with `spec.schedulingGates` out of the queue until the last gate is removed.

    - `waiting for scheduling gates: [example.com/quota b]`

    Source: kube-scheduler, plugins/schedulinggates/scheduling_gates.go.
    """

    name: ClassVar[str] = "SchedulingGates"
    on_by_default: ClassVar[bool] = True

    def pre_enqueue(self, pod: Pod) -> str | None:
        """Name the remaining gates."""
        return f"waiting for scheduling gates: [{' '.join(pod.gates)}]" if pod.gates else None
