"""Log of a demo: the scheduler's decisions, and other changes of the cluster."""

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum

from scheduler.core.scheduling_cycle import Placement
from scheduler.framework.diagnosis import Diagnosis
from scheduler.kube.bind_outcome import BindRejected
from scheduler.metrics.metrics import Metrics
from scheduler.metrics.observer import ServiceObserver
from scheduler.pods.pod import Pod
from scheduler.process.clock import Clock
from scheduler.queue.entry import QueuedPod


class LogTone(Enum):
    """Subject of a line."""

    BOUND = "bound"
    WAITS = "waits"
    CLUSTER = "cluster"


@dataclass(frozen=True, slots=True)
class LogLine:
    """Line of the log. at_s: seconds of the demo."""

    at_s: float
    tone: LogTone
    text: str


class DemoLog(ServiceObserver):
    """Observer that writes the demo's log. waiting: pod name -> message, for pods that do not fit yet."""

    def __init__(self, metrics: Metrics, now_s: Callable[[], float], tell: Callable[[LogLine], None]) -> None:
        """now_s: seconds of the demo. tell: called with each line."""
        super().__init__(metrics, Clock())
        self.waiting: dict[str, str] = {}
        self.bound_pods = 0
        self._now_s = now_s
        self._tell = tell

    def happened(self, text: str) -> None:
        """Log a change of the cluster that the scheduler did not make."""
        self._say(LogTone.CLUSTER, text)

    def unschedulable(self, pod: Pod, diagnosis: Diagnosis, attempt: int | None = None) -> None:
        """Log why a pod waits; a repeated message about a pod only once."""
        super().unschedulable(pod, diagnosis, attempt)
        if self.waiting.get(pod.key.name) != diagnosis.message:
            self.waiting[pod.key.name] = diagnosis.message
            self._say(LogTone.WAITS, f"{pod.key.name}: {diagnosis.message}")

    def bound(self, queued: QueuedPod, placement: Placement, now_s: float) -> None:
        super().bound(queued, placement, now_s)
        pod = placement.pod.key.name
        self.waiting.pop(pod, None)
        self.bound_pods += 1
        cards = " and ".join(f"card {share.index} ({share.units})" for share in placement.cards)
        self._say(LogTone.BOUND, f"{pod} to {placement.node}, {cards}" if cards else f"{pod} to {placement.node}")

    def bind_rejected(self, placement: Placement, refused: BindRejected) -> None:
        super().bind_rejected(placement, refused)
        self._say(LogTone.WAITS, f"{placement.pod.key.name}: binding was rejected: {refused.reason}")

    def _say(self, tone: LogTone, text: str) -> None:
        self._tell(LogLine(self._now_s(), tone, text))
