"""SchedulingGates: a pod with scheduling gates is not queued.

Source: kube-scheduler, plugins/schedulinggates/scheduling_gates.go.
"""

from typing import ClassVar

from scheduler.framework.plugin import PreEnqueuePlugin
from scheduler.pods.pod import Pod


class SchedulingGates(PreEnqueuePlugin):
    """Waits until somebody has removed every gate."""

    name: ClassVar[str] = "SchedulingGates"
    on_by_default: ClassVar[bool] = True

    def pre_enqueue(self, pod: Pod) -> str | None:
        """Name the gates that are left."""
        return f"waiting for scheduling gates: [{' '.join(pod.gates)}]" if pod.gates else None
