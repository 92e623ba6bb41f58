"""Events on the node and on its pods, for operators: what happened, and the port that reports it."""

from dataclasses import dataclass
from typing import Protocol

from scheduler.kube.port import PodKey


@dataclass(frozen=True, slots=True)
class NodeEvent:
    """An Event. reason: one word in CamelCase. pod: None if it is about the node. warning: it requires action."""

    reason: str
    note: str
    pod: PodKey | None = None
    warning: bool = True


class EventRecorder(Protocol):
    """Port: `node.events.NodeEventRecorder`."""

    def record(self, event: NodeEvent) -> None:
        """Report the event, without waiting."""
        ...
