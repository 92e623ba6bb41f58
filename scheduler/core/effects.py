"""Effects: what the core wants done outside, returned by each step of the agenda. Pure."""

from typing import TypeAlias

import msgspec

from scheduler.core.scheduling_cycle import Placement
from scheduler.framework.diagnosis import Diagnosis
from scheduler.framework.preemption import Preemption
from scheduler.pods.pod import Pod
from scheduler.queue.entry import QueuedPod
from scheduler.state.audit import AuditRound, NodeAudit


class Bind(msgspec.Struct, frozen=True):
    """Bind a pod to the node and the cards that are booked for it. queued: the pod with its attempts and times."""

    queued: QueuedPod
    placement: Placement


class Unschedulable(msgspec.Struct, frozen=True):
    """Tell the owner of a waiting pod why it waits. attempt: its number; None if a longer search found the message."""

    pod: Pod
    diagnosis: Diagnosis
    attempt: int | None = None


class Delay(msgspec.Struct, frozen=True):
    """Tell the owner of a waiting pod that it is not placed, because Bindings of its namespace fail."""

    pod: Pod


class Evict(msgspec.Struct, frozen=True):
    """Nominate a pod and delete its victims."""

    preemption: Preemption


class Nominate(msgspec.Struct, frozen=True):
    """Write the pod's current nomination into its status, or that it has none."""

    pod: Pod


class Reserve(msgspec.Struct, frozen=True):
    """Log that a starving pod got a reservation, or lost it. The pod's next attempt tells its owner."""

    pod: Pod
    diagnosis: Diagnosis
    kept: bool


class Reevaluated(msgspec.Struct, frozen=True):
    """Correct the message of a waiting pod, if its reasons have changed."""

    pod: Pod
    diagnosis: Diagnosis


class LostWakeup(msgspec.Struct, frozen=True):
    """Log that nothing woke a waiting pod that would fit, or that preemption would help. It is a bug."""

    pod: Pod


class NodeAudited(msgspec.Struct, frozen=True):
    """Report what the ledger audit found on a node."""

    audit: NodeAudit


class Audited(msgspec.Struct, frozen=True):
    """Count a round of the ledger audit."""

    round: AuditRound


Effect: TypeAlias = (
    Bind | Unschedulable | Delay | Evict | Nominate | Reserve | Reevaluated | LostWakeup | NodeAudited | Audited
)
