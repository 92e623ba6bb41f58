"""PreEnqueue plugins as gates: each decides whether a pod may be queued."""

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Final, Protocol

from scheduler.pods.pod import Pod


class Gate(Protocol):
    """A PreEnqueue plugin as the queue sees it."""

    def pre_enqueue(self, pod: Pod) -> str | None:
        """Why the pod may not be queued; None if it may."""


# By scheduler name, in calling order.
NO_GATES: Final[Mapping[str, Sequence[Gate]]] = MappingProxyType({})


def gate_message(gates: Mapping[str, Sequence[Gate]], pod: Pod) -> str:
    """Message of the first gate that rejects the pod; "" if none does."""
    for plugin in gates.get(pod.scheduler_name, ()):
        message = plugin.pre_enqueue(pod)
        if message is not None:
            return message
    return ""
